package registry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

func hash(t testing.TB, r *Registry) []byte {
	t.Helper()
	h, err := r.Hash()
	if err != nil {
		t.Fatalf("Hash = %v", err)
	}
	return h
}

func save(t testing.TB, r *Registry) []byte {
	t.Helper()
	s, err := r.Snapshot()
	if err != nil {
		t.Fatalf("Snapshot = %v", err)
	}
	var buf bytes.Buffer
	n, err := s.WriteTo(&buf)
	if err != nil || n != int64(buf.Len()) {
		t.Fatalf("WriteTo = %d, %v; wrote %d bytes", n, err, buf.Len())
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	return buf.Bytes()
}

func restore(t testing.TB, r *Registry, stream []byte) {
	t.Helper()
	if err := r.Restore(bytes.NewReader(stream)); err != nil {
		t.Fatalf("Restore = %v", err)
	}
}

// sample returns a registry with some of everything.
func sample(t testing.TB) *Registry {
	t.Helper()
	r := withNodes(t, 4)
	labelled := node(3)
	labelled.Labels = map[string]string{"zone": "a", "rack": "7"}
	apply(t, r, EncodeSetNode(SetNode{Node: labelled}))
	stored := node(2)
	stored.Store, stored.Boot = Store{2}, 7
	apply(t, r, EncodeSetNode(SetNode{Node: stored}))
	apply(t, r, EncodeReplaceStore(ReplaceStore{ID: 2, Old: Store{2}, New: Store{3}}))
	apply(t, r, EncodeSetNodeState(SetNodeState{ID: 4, State: NodeDrained}))
	c := create()
	for id := raftyard.GroupID(1); id <= 5; id++ {
		c.ID = id
		apply(t, r, EncodeCreateGroup(c))
	}
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 2}))
	return r
}

func TestSnapshotRoundTrip(t *testing.T) {
	for name, r := range map[string]*Registry{"empty": New(nil, nil), "sample": sample(t)} {
		t.Run(name, func(t *testing.T) {
			stream := save(t, r)
			// What was there before is gone.
			other := withNodes(t, 9)
			if err := other.Restore(iotest.OneByteReader(bytes.NewReader(stream))); err != nil {
				t.Fatalf("Restore = %v", err)
			}
			if !bytes.Equal(hash(t, other), hash(t, r)) || other.Version() != r.Version() {
				t.Error("the restored state is another one")
			}
			if diff := cmp.Diff(r.Nodes(), other.Nodes()); diff != "" {
				t.Errorf("Nodes (-want +got):\n%s", diff)
			}
			if r.Counts() != other.Counts() {
				t.Errorf("Counts = %+v, want %+v", other.Counts(), r.Counts())
			}
		})
	}
}

func TestSnapshotIsAPointInTime(t *testing.T) {
	r := sample(t)
	want := save(t, r)
	s, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 1}))
	apply(t, r, EncodeSetNode(SetNode{Node: node(8)}))
	var buf bytes.Buffer
	if _, err := s.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), want) {
		t.Error("the snapshot shows what was applied after it was taken")
	}
}

// A restored table is still shared by nobody, but the next change must not
// touch a page that a snapshot shows.
func TestSnapshotAfterRestoreIsAPointInTime(t *testing.T) {
	r := New(nil, nil)
	restore(t, r, save(t, sample(t)))
	want := save(t, r)
	s, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	c := create()
	c.ID = 6
	apply(t, r, EncodeCreateGroup(c))
	var buf bytes.Buffer
	if _, err := s.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), want) {
		t.Error("the snapshot shows what was applied after it was taken")
	}
}

// refuses checks that Restore fails and changes nothing.
func refuses(t *testing.T, stream io.Reader, want error) {
	t.Helper()
	called := false
	r := New(nil, func() { called = true })
	apply(t, r, EncodeSetNode(SetNode{Node: node(1)}))
	before := hash(t, r)
	called = false
	if err := r.Restore(stream); !errors.Is(err, want) {
		t.Fatalf("Restore = %v, want %v", err, want)
	}
	if !bytes.Equal(hash(t, r), before) || called {
		t.Fatal("a failed Restore changed the state")
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	stream := save(t, sample(t))
	for i := range stream {
		for _, bit := range []byte{0x01, 0x80} {
			damaged := bytes.Clone(stream)
			damaged[i] ^= bit
			refuses(t, bytes.NewReader(damaged), ErrSnapshot)
		}
		refuses(t, bytes.NewReader(stream[:i]), ErrSnapshot)
	}
	refuses(t, bytes.NewReader(append(bytes.Clone(stream), 0)), ErrSnapshot)
	refuses(t, bytes.NewReader(append(bytes.Clone(stream), stream...)), ErrSnapshot)
}

func TestRestorePassesReadErrorsOn(t *testing.T) {
	stream := save(t, sample(t))
	broken := errors.New("broken")
	for _, cut := range []int{0, 5, 20, len(stream) - 1, len(stream)} {
		src := io.MultiReader(bytes.NewReader(stream[:cut]), iotest.ErrReader(broken))
		refuses(t, src, broken)
	}
}

// frames makes a stream with good checksums of any payloads.
func frames(payloads ...[]byte) io.Reader {
	var buf bytes.Buffer
	fw := newFrameWriter(&buf)
	for _, p := range payloads {
		fw.write(p)
	}
	return &buf
}

func TestRestoreRefusesNonsense(t *testing.T) {
	head := func(version, nodes, groups uint64) []byte {
		b := wire.AppendUvarint([]byte{frameHead, snapshotFormat}, version)
		return wire.AppendUvarint(wire.AppendUvarint(b, nodes), groups)
	}
	nodes := func(list ...Node) []byte {
		b := []byte{frameNodes, byte(len(list))}
		for _, n := range list {
			b = appendNode(b, &n)
		}
		return b
	}
	groups := func(list ...Group) []byte {
		b := []byte{frameGroups, byte(len(list))}
		for _, g := range list {
			b = appendGroup(b, &g)
		}
		return b
	}
	g := Group{ID: 7, Incarnation: incarnation(1), Kind: "kv", Voters: ids(1), Seed: 1, Version: 2}
	with := func(edit func(g *Group)) Group {
		g := g
		edit(&g)
		return g
	}
	nodeWith := func(edit func(n *Node)) Node {
		n := node(1)
		edit(&n)
		return n
	}
	end := []byte{frameEnd}
	tests := map[string]io.Reader{
		"no head":              frames(nodes(node(1)), end),
		"another format":       frames([]byte{frameHead, 9, 1, 0, 0}, end),
		"long head":            frames(append(head(2, 0, 0), 0), end),
		"no end":               frames(head(2, 0, 0)),
		"long end":             frames(head(2, 0, 0), []byte{frameEnd, 1}),
		"empty frame":          frames(head(2, 0, 0), nil, end),
		"unknown frame":        frames(head(2, 0, 0), []byte{77, 1, 1}, end),
		"second head":          frames(head(2, 0, 0), head(2, 0, 0), end),
		"fewer nodes":          frames(head(2, 2, 0), nodes(node(1)), end),
		"more nodes":           frames(head(2, 0, 0), nodes(node(1)), end),
		"fewer groups":         frames(head(2, 0, 2), groups(g), end),
		"bytes after items":    frames(head(2, 1, 0), append(nodes(node(1)), 0), end),
		"items missing":        frames(head(2, 1, 0), []byte{frameNodes, 1}, end),
		"node twice":           frames(head(2, 2, 0), nodes(node(1), node(1)), end),
		"nodes out of order":   frames(head(2, 2, 0), nodes(node(2), node(1)), end),
		"node without address": frames(head(2, 1, 0), nodes(Node{ID: 1}), end),
		"state of a node not known": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.State = 4 })), end),
		"first directory without a present one": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.First = Store{1} })), end),
		"present directory without a first one": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.Store = Store{1} })), end),
		"start of no directory": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.Boot = 1 })), end),
		"removed with an address": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.State = NodeRemoved })), end),
		"forced and not leaving": frames(head(2, 1, 0),
			nodes(nodeWith(func(n *Node) { n.Forced = true })), end),
		"removed node zero": frames(head(2, 1, 0), nodes(Node{State: NodeRemoved}), end),
		"group twice":       frames(head(2, 0, 2), groups(g, g), end),
		"group zero": frames(head(2, 0, 1),
			groups(with(func(g *Group) { g.ID = 0 })), end),
		"version zero": frames(head(2, 0, 1),
			groups(with(func(g *Group) { g.Version = 0 })), end),
		"version of the future": frames(head(1, 0, 1), groups(g), end),
		"no voters": frames(head(2, 0, 1),
			groups(with(func(g *Group) { g.Voters = nil })), end),
		"members out of order": frames(head(2, 0, 1),
			groups(with(func(g *Group) { g.Voters = ids(2, 1) })), end),
	}
	for name, stream := range tests {
		t.Run(name, func(t *testing.T) { refuses(t, stream, ErrSnapshot) })
	}
	// The same parts, put together rightly.
	removed := Node{ID: 2, State: NodeRemoved}
	good := frames(head(2, 2, 1), nodes(node(1), removed), groups(g), end)
	if err := New(nil, nil).Restore(good); err != nil {
		t.Errorf("Restore of a good stream = %v", err)
	}
}

func TestRestoreDoesNotAllocateForAHugeFrame(t *testing.T) {
	stream := binary.LittleEndian.AppendUint32(nil, 1<<31)
	stream = binary.LittleEndian.AppendUint32(stream, crc32.Checksum(nil, castagnoli()))
	refuses(t, bytes.NewReader(stream), ErrSnapshot)
}

func TestWriteToReportsTheWritersError(t *testing.T) {
	stream := save(t, sample(t))
	full := errors.New("full")
	for room := range stream {
		s, err := sample(t).Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		w := &limitedWriter{room: room, err: full}
		if n, err := s.WriteTo(w); !errors.Is(err, full) || n != int64(room) {
			t.Fatalf("WriteTo with room for %d = %d, %v", room, n, err)
		}
	}
}

type limitedWriter struct {
	room int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		n := w.room
		w.room = 0
		return n, w.err
	}
	w.room -= len(p)
	return len(p), nil
}

// Readers see whole states beside Apply and Restore; the race detector watches.
func TestReadersBesideApply(t *testing.T) {
	r := sample(t)
	stream := save(t, r)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				counts := r.Counts()
				total := 0
				for g := range r.All() {
					total++
					// The others come and go with each restore.
					if _, ok := r.Group(g.ID); g.ID <= 5 && !ok {
						t.Errorf("group %d is listed, but not there", g.ID)
					}
				}
				if total < 5 || counts.Nodes != 4 {
					t.Errorf("%d groups, %+v", total, counts)
				}
				r.Groups(2, 2)
				r.Changes(3)
				r.Nodes()
			}
		})
	}
	c := create()
	for id := raftyard.GroupID(10); id < 400; id++ {
		c.ID = id
		apply(t, r, EncodeCreateGroup(c))
		if id%100 == 0 {
			restore(t, r, stream)
		}
	}
	close(stop)
	readers.Wait()
}
