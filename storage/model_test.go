package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
)

// modelReplica is what a replica should be, with raft's own storage in memory as
// the reference.
type modelReplica struct {
	info  Replica
	mem   *raft.MemoryStorage
	snaps uint64 // index of the newest snapshot

	updates []Update // all that were applied
	rewrote bool     // an index has had more than one entry
}

// clone returns a replica that has gone through the same.
func (m *modelReplica) clone(t failer) *modelReplica {
	c := &modelReplica{info: m.info}
	if m.mem != nil {
		c.mem = raft.NewMemoryStorage()
		for _, u := range m.updates {
			c.apply(t, u)
		}
	}
	return c
}

func (m *modelReplica) bounds() (start, last uint64) {
	first, err := m.mem.FirstIndex()
	if err != nil {
		panic(err)
	}
	last, err = m.mem.LastIndex()
	if err != nil {
		panic(err)
	}
	return first - 1, last
}

func (m *modelReplica) term(t failer, i uint64) uint64 {
	term, err := m.mem.Term(i)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// failer is a test, of the testing package or of rapid.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// apply does to the model what the update does to the store.
func (m *modelReplica) apply(t failer, u Update) {
	m.updates = append(m.updates, u)
	_, last := m.bounds()
	if len(u.Entries) > 0 && u.Entries[0].GetIndex() <= last || u.Reset && last > 0 {
		m.rewrote = true
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if u.Reset {
		check(m.mem.ApplySnapshot(u.Snapshot))
		m.snaps = u.Snapshot.GetMetadata().GetIndex()
	}
	check(m.mem.Append(u.Entries))
	if md := u.Snapshot.GetMetadata(); u.Snapshot != nil && !u.Reset && md.GetIndex() > m.snaps {
		_, err := m.mem.CreateSnapshot(md.GetIndex(), md.GetConfState(), u.Snapshot.GetData())
		check(err)
		m.snaps = md.GetIndex()
	}
	if start, _ := m.bounds(); u.CompactTo > start {
		check(m.mem.Compact(u.CompactTo))
	}
	if u.HardState != nil {
		check(m.mem.SetHardState(proto.CloneOf(u.HardState)))
	}
	hs, _, err := m.mem.InitialState()
	check(err)
	if start, _ := m.bounds(); hs != nil && hs.GetCommit() < start {
		hs.Commit = new(start) // the one intended difference
	}
	if u.Meta != nil {
		m.info.Meta = u.Meta
	}
}

// machine is the state machine that rapid drives.
type machine struct {
	dir   string
	n     int
	opts  Options
	on    Backing
	store *Store
	model map[raftyard.GroupID]*modelReplica
}

func (m *machine) open(t *rapid.T) {
	s, err := OpenOn(m.opts, m.on)
	if err != nil {
		t.Fatal(err)
	}
	s.recordLimit = 20_000 // four entries that are longer fit into a batch
	m.store = s
}

func drawGroup(t *rapid.T) raftyard.GroupID {
	return raftyard.GroupID(rapid.IntRange(0, 3).Draw(t, "group"))
}

func drawEntries(t *rapid.T, first, term uint64) []*raftpb.Entry {
	n := rapid.IntRange(1, 6).Draw(t, "entries")
	// Sometimes a long entry, which is cut into parts.
	big := rapid.IntRange(0, 15).Draw(t, "big") == 0
	var entries []*raftpb.Entry
	for i := range n {
		if rapid.IntRange(0, 4).Draw(t, "next term") == 0 {
			term++
		}
		e := &raftpb.Entry{Index: new(first + uint64(i)), Term: new(term)}
		switch rapid.IntRange(0, 3).Draw(t, "shape") {
		case 0: // no data, as raft's own entries
		case 1:
			e.Type = raftpb.EntryConfChangeV2.Enum()
			e.Data = []byte{}
		default:
			e.Data = fmt.Appendf(nil, "%d.%d", term, e.GetIndex())
			e.Type = raftpb.EntryNormal.Enum()
		}
		if big && i == 0 {
			e.Data = bytes.Repeat([]byte{byte(term)}, 30_000)
		}
		entries = append(entries, e)
	}
	return entries
}

// drawUpdate makes an update that is valid for a copy of the model's replica.
func drawUpdate(t *rapid.T, r *modelReplica) Update {
	var u Update
	start, last := r.bounds()
	if rapid.IntRange(0, 9).Draw(t, "reset") == 0 {
		low := max(start, r.snaps) + 1
		index := rapid.Uint64Range(low, max(low, last)+5).Draw(t, "snapshot index")
		u.Snapshot, u.Reset = snapshotAt(index, r.term(t, last)+1), true
		start, last = index, index
	}
	if rapid.Bool().Draw(t, "append") {
		first := rapid.Uint64Range(max(start, 1), last+1).Draw(t, "first")
		term := u.Snapshot.GetMetadata().GetTerm()
		if !u.Reset {
			term = max(1, r.term(t, last))
		}
		u.Entries = drawEntries(t, first, term)
		if n := u.Entries[len(u.Entries)-1].GetIndex(); n > start {
			last = n
		}
	}
	// The rest depends on what the log is after that.
	after := *r
	after.mem = cloneMemory(t, r.mem)
	after.apply(t, u)
	snaps := after.snaps
	if !u.Reset && last > start && rapid.IntRange(0, 3).Draw(t, "snapshot") == 0 {
		low := max(start, snaps, 1)
		if low <= last {
			index := rapid.Uint64Range(low, last).Draw(t, "snapshot index")
			u.Snapshot = snapshotAt(index, after.term(t, index))
			if index == snaps {
				u.Snapshot = nil
			}
			snaps = index
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "compact") == 0 && snaps > 0 {
		u.CompactTo = rapid.Uint64Range(0, min(snaps, last)).Draw(t, "compact to")
	}
	if rapid.Bool().Draw(t, "hard state") {
		commit := rapid.Uint64Range(max(start, u.CompactTo), last).Draw(t, "commit")
		u.HardState = hardStateOf(r.term(t, r.lastIndex())+1, 2, commit)
	} else if hs, _, err := r.mem.InitialState(); err == nil && hs.GetCommit() > last {
		u.HardState = hardStateOf(hs.GetTerm(), hs.GetVote(), last)
	}
	if rapid.IntRange(0, 4).Draw(t, "meta") == 0 {
		u.Meta = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "meta bytes")
	}
	return u
}

func (m *modelReplica) lastIndex() uint64 {
	_, last := m.bounds()
	return last
}

func cloneMemory(t *rapid.T, from *raft.MemoryStorage) *raft.MemoryStorage {
	to := raft.NewMemoryStorage()
	hs, cs, err := from.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	first, _ := from.FirstIndex()
	last, _ := from.LastIndex()
	term, _ := from.Term(first - 1)
	if first > 1 {
		base := snapshotAt(first-1, term)
		base.Metadata.ConfState = cs
		if err := to.ApplySnapshot(base); err != nil {
			t.Fatal(err)
		}
	}
	if last >= first {
		entries, err := from.Entries(first, last+1, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Append(entries); err != nil {
			t.Fatal(err)
		}
	}
	if hs != nil {
		_ = to.SetHardState(proto.CloneOf(hs))
	}
	return to
}

// fill makes a batch and does to the model what that will do to the store.
func (m *machine) fill(t *rapid.T) *Batch {
	b := m.store.NewBatch()
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		g := drawGroup(t)
		r := m.model[g]
		switch {
		case r == nil || r.info.Tombstone != nil:
			m.create(t, b, g)
		case rapid.IntRange(0, 19).Draw(t, "destroy") == 0:
			tomb := Tombstone{NextReplica: r.info.ID + 1, Epoch: 3, Data: []byte("members")}
			b.Destroy(g, tomb)
			r.info.Tombstone, r.info.Meta, r.mem = &tomb, nil, nil
			if rapid.Bool().Draw(t, "purged") {
				b.MarkPurged(g)
				tomb.Purged = true
			}
		default:
			u := drawUpdate(t, r)
			b.Update(g, u)
			r.apply(t, u)
		}
	}
	if b.Bytes() > m.store.Limits().MaxBatchBytes {
		t.Fatalf("batch of %d bytes", b.Bytes())
	}
	return b
}

func (m *machine) commit(t *rapid.T) {
	if err := m.fill(t).Commit(); err != nil {
		t.Fatal(err)
	}
	if used := m.store.Stats().CacheBytes; used > m.opts.CacheBytes {
		t.Fatalf("cache holds %d bytes, the budget is %d", used, m.opts.CacheBytes)
	}
}

func (m *machine) create(t *rapid.T, b *Batch, g raftyard.GroupID) {
	old := m.model[g]
	r := &modelReplica{info: testReplica(g), mem: raft.NewMemoryStorage()}
	if old != nil && !old.info.Incarnation.IsZero() { // which a damaged record did not tell
		r.info.ID = old.info.Tombstone.NextReplica
		if rapid.IntRange(0, 3).Draw(t, "incarnation") == 0 {
			r.info.Incarnation = old.info.Incarnation
			r.info.Incarnation[7]++
			r.info.ID = 1
		} else {
			r.info.Incarnation = old.info.Incarnation
		}
	}
	u := Update{Meta: []byte("born")}
	if rapid.Bool().Draw(t, "with snapshot") {
		u.Snapshot, u.Reset = snapshotAt(rapid.Uint64Range(1, 9).Draw(t, "index"), 1), true
		u.HardState = hardStateOf(1, 0, u.Snapshot.GetMetadata().GetIndex())
	}
	b.Create(r.info, u)
	r.apply(t, u)
	m.model[g] = r
}

// forget removes a tombstone, if its log is deleted by then and it is purged.
func (m *machine) forget(t *rapid.T) {
	g := drawGroup(t)
	r := m.model[g]
	if r == nil {
		return
	}
	if rapid.Bool().Draw(t, "collect") {
		collectAll(t, m.store)
	}
	b := m.store.NewBatch()
	b.Forget(g)
	slots := &m.store.replicas[g].slots
	var want error
	switch {
	case r.info.Tombstone == nil:
		want = ErrInvalid
	case !r.info.Tombstone.Purged || slots.held+slots.doomed > 0:
		want = ErrRemains
	}
	if err := b.Commit(); !errors.Is(err, want) {
		t.Fatalf("Forget(%d) = %v, want %v", g, err, want)
	}
	if want == nil {
		delete(m.model, g)
	}
}

// collectAll has all garbage deleted.
func collectAll(t failer, s *Store) {
	t.Helper()
	for s.garbage.size.Load() > 0 {
		if err := s.collect(); err != nil {
			t.Fatal(err)
		}
	}
}

// reopen closes the store and opens it again.
func (m *machine) reopen(t *rapid.T) {
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	m.open(t)
}

// kill opens what a kill would have left: the files as they are now.
func (m *machine) kill(t *rapid.T) {
	m.n++
	to := filepath.Join(m.dir, fmt.Sprint(m.n))
	if err := copyStore(m.opts.Dir, to); err != nil {
		t.Fatal(err)
	}
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
	m.opts.Dir = to
	m.open(t)
}

func (m *machine) check(t *rapid.T) {
	for g := range raftyard.GroupID(4) {
		want := m.model[g]
		got, ok := m.store.Replica(g)
		if ok != (want != nil) {
			t.Fatalf("group %d: found %t, want %t", g, ok, want != nil)
		}
		if want == nil {
			continue
		}
		if len(got.Meta) == 0 && len(want.info.Meta) == 0 {
			got.Meta = want.info.Meta
		}
		if diff := cmp.Diff(want.info, got); diff != "" {
			t.Fatalf("group %d: replica (-want +got):\n%s", g, diff)
		}
		l := m.store.Log(g)
		if (l != nil) != (want.mem != nil) {
			t.Fatalf("group %d: log = %v", g, l)
		}
		if l != nil {
			compareLogs(t, want.mem, l)
			start, last := want.bounds()
			lo := rapid.Uint64Range(max(start, 1), last+1).Draw(t, "lo")
			hi := rapid.Uint64Range(lo, last+1).Draw(t, "hi")
			limit := rapid.Uint64Range(1, 200).Draw(t, "limit")
			for _, limit := range []uint64{0, limit, 1 << 40} {
				compareEntries(t, want.mem, l, lo, hi, limit)
			}
		}
	}
}

// compareLogs asks both for everything that raft may ask, but the entries.
func compareLogs(t failer, want *raft.MemoryStorage, got *Log) {
	equal := func(what string, want, have any) {
		if diff := cmp.Diff(want, have, protocmp.Transform()); diff != "" {
			t.Fatalf("group %d: %s (-want +got):\n%s", got.group, what, diff)
		}
	}
	wf, _ := want.FirstIndex()
	gf, err := got.FirstIndex()
	if err != nil || wf != gf {
		t.Fatalf("FirstIndex = %d, %v, want %d", gf, err, wf)
	}
	wl, _ := want.LastIndex()
	gl, err := got.LastIndex()
	if err != nil || wl != gl {
		t.Fatalf("LastIndex = %d, %v, want %d", gl, err, wl)
	}
	for i := max(wf, 2) - 2; i <= wl+2; i++ {
		wt, werr := want.Term(i)
		gt, gerr := got.Term(i)
		if wt != gt || !errors.Is(gerr, werr) {
			t.Fatalf("Term(%d) = %d, %v, want %d, %v", i, gt, gerr, wt, werr)
		}
	}
	whs, wcs, _ := want.InitialState()
	ghs, gcs, err := got.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	equal("hard state", whs, ghs)
	equal("conf state", wcs, gcs)

	ws, _ := want.Snapshot()
	gs, err := got.Snapshot()
	if raft.IsEmptySnap(ws) {
		if !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
			t.Fatalf("Snapshot = %v, %v, want that it is not available", gs, err)
		}
	} else {
		if err != nil {
			t.Fatal(err)
		}
		equal("snapshot", ws, gs)
	}
}

// compareEntries asks both for the entries [lo, hi).
func compareEntries(t failer, want *raft.MemoryStorage, got *Log, lo, hi, limit uint64) {
	t.Helper()
	we, werr := want.Entries(lo, hi, limit)
	ge, gerr := got.Entries(lo, hi, limit)
	if !errors.Is(gerr, werr) {
		t.Fatalf("Entries(%d, %d, %d) = %v, want %v", lo, hi, limit, gerr, werr)
	}
	if werr == nil && !slices.EqualFunc(we, ge, func(a, b *raftpb.Entry) bool {
		return proto.Equal(a, b)
	}) {
		t.Fatalf("Entries(%d, %d, %d) = %v, want %v", lo, hi, limit, ge, we)
	}
}

// TestModel compares the store with raft's storage in memory, over batches,
// reopening, and what a kill would leave, for several groups at once.
func TestModel(t *testing.T) {
	base, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		m := &machine{dir: dir, on: Real(), model: make(map[raftyard.GroupID]*modelReplica)}
		m.opts = testOptions(filepath.Join(dir, "0"))
		m.opts.CacheBytes = rapid.SampledFrom([]int64{1, 2000, 1 << 20}).Draw(rt, "cache")
		m.open(rt)
		defer func() {
			if err := errors.Join(m.store.Close(), os.RemoveAll(dir)); err != nil {
				rt.Fatal(err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"commit":  m.commit,
			"commit2": m.commit,
			"commit3": m.commit,
			"commit4": m.commit,
			"keep": func(t *rapid.T) {
				if err := m.store.collect(); err != nil {
					t.Fatal(err)
				}
			},
			"give back": func(t *rapid.T) {
				limit := rapid.Int64Range(0, 2000).Draw(t, "group limit")
				if err := m.store.giveBack(spaceLimits{group: limit, store: 1 << 20}); err != nil {
					t.Fatal(err)
				}
			},
			"forget": m.forget,
			"fill": func(t *rapid.T) {
				if err := m.store.fill(rapid.IntRange(0, 50_000).Draw(t, "size")); err != nil {
					t.Fatal(err)
				}
			},
			"reopen": m.reopen,
			"kill":   m.kill,
			"":       m.check,
		})
	})
}

// copyStore copies the directory of an open store that nobody writes to. Badger
// may be flushing and compacting meanwhile; it copies again until that has not
// changed anything, so that the copy is of one moment.
func copyStore(from, to string) error {
	for {
		before, err := fingerprint(from)
		if err != nil {
			return err
		}
		err = copyDir(from, to)
		after, ferr := fingerprint(from)
		if ferr != nil {
			return ferr
		}
		if before == after {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
}

// fingerprint tells which tables and logs a store has.
func fingerprint(dir string) (string, error) {
	manifest, err := os.ReadFile(filepath.Join(dir, logName, "MANIFEST"))
	if err != nil {
		return "", err
	}
	names, err := filepath.Glob(filepath.Join(dir, logName, "*"))
	return fmt.Sprintf("%q %x", names, manifest), err
}

// copyDir copies a directory; holes stay holes.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	var size int64
	block, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, rerr := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zero[:n]) {
			if _, err := out.WriteAt(block[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(rerr, io.EOF) || errors.Is(rerr, io.ErrUnexpectedEOF) {
			return out.Truncate(size)
		}
		if rerr != nil {
			return rerr
		}
	}
}
