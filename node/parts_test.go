package node

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// TestInterruptedInstallIsFinished puts a node's directory into the state that a
// crash leaves between the intent and the last step of installing a snapshot.
func TestInterruptedInstallIsFinished(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "old")
	r := c.nodes[1].replica(1)
	dir, cluster := r.machine.env.Dir, c.nodes[1].cluster
	state := r.view.Load().State
	c.close(1)

	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	const name = incomingPrefix + "test"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("new\nstate"), 0o600); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, incomingPrefix+"left-over")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	editMeta(t, c, cluster, func(m *meta) {
		manifest := group.Manifest{State: state, ID: group.CommandID(uuid.New())}
		m.Install = &installIntent{Index: 100, Term: 7, File: name, Manifest: manifest.Encode()}
	})

	for range 2 { // the second start finds everything in place
		c.open(1, nil)
		c.wantWords(1, 1, "new", "state")
		st, err := c.nodes[1].RaftStatus(t.Context(), 1)
		if err != nil || st.First != 101 || st.Term <= 7 {
			t.Errorf("RaftStatus = first %d term %d, %v; want the log to begin at 101 after term 7",
				st.First, st.Term, err)
		}
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("left-over file: %v, want it gone", err)
		}
		c.close(1)
	}
}

// editMeta changes the record of group 1 on node 1, which is closed.
func editMeta(t *testing.T, c *cluster, id [16]byte, edit func(*meta)) {
	t.Helper()
	store, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, "1"), Cluster: id, Node: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	st, ok := store.Replica(1)
	if !ok {
		t.Fatal("no replica of group 1")
	}
	m, err := decodeMeta(st.Meta)
	if err != nil {
		t.Fatal(err)
	}
	edit(&m)
	b := store.NewBatch()
	b.Update(1, storage.Update{Meta: m.encode()})
	if err := errors.Join(b.Commit(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestUnusableReplicaIsShownAndAlone damages one replica's record; the node must
// start all the same.
func TestUnusableReplicaIsShownAndAlone(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.create(2, 1)
	c.add(1, 2, "fine")
	cluster := c.nodes[1].cluster
	c.close(1)
	editMeta(t, c, cluster, func(m *meta) { m.Floor.File = "not-there" })
	c.open(1, nil)
	c.wantWords(1, 2, "fine")
	_, err := c.nodes[1].Propose(t.Context(), 1, []byte("x"))
	if !errors.Is(err, ErrFaulty) || !NotApplied(err) {
		t.Errorf("Propose to the unusable replica = %v, want ErrFaulty", err)
	}
	st, err := c.nodes[1].RaftStatus(t.Context(), 1)
	if err != nil || !strings.Contains(st.Fault, "not-there") {
		t.Errorf("RaftStatus = %+v, %v; want the reason as fault", st.ReplicaStatus, err)
	}
}

// TestMadeUpGroupsLeaveNothing sends messages for groups and replicas that the
// registry does not know.
func TestMadeUpGroupsLeaveNothing(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	n, from := c.nodes[1], c.nodes[2].identity()
	c.eventually("node 1 listens to node 2", func() bool { return n.accept(from) == nil })
	before, strange := len(n.store.Replicas()), n.Metrics().MessagesStrange
	h := &handler{n}
	for g := range raftyard.GroupID(10_000) {
		h.HandleEnvelopes(from, []transport.Envelope{{
			Group: g + 100, Incarnation: raftyard.Incarnation{1}, Epoch: 1,
			From: transport.Endpoint{Node: 2, Replica: 1},
			To:   transport.Endpoint{Node: 1, Replica: 2},
			Message: &raftpb.Message{
				Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)),
				Term: new(uint64(1)),
			},
		}})
	}
	<-n.lifecycle.next()
	if got := n.Metrics().MessagesStrange - strange; got < 10_000 {
		t.Errorf("%d messages were looked at, want 10000: the others show nothing", got)
	}
	if got := len(n.store.Replicas()); got != before {
		t.Errorf("%d replicas in the store, want %d as before", got, before)
	}
}

// TestRemovedWhileAway moves a group away from a node that is down, both as a
// voter and as a learner. When the node is back its replicas go.
func TestRemovedWhileAway(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	c.createSpec(Spec{
		ID: 2, Kind: "list", Voters: []raftyard.NodeID{2, 3, 4}, Learners: []raftyard.NodeID{1},
	})
	c.add(2, 1, "a")
	c.add(2, 2, "b")
	c.close(1)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for g := range raftyard.GroupID(2) {
		want := Members{Voters: []raftyard.NodeID{2, 3, 4}}
		if _, err := c.nodes[2].SetMembers(ctx, g+1, want, true); err != nil {
			t.Fatalf("SetMembers of group %d = %v", g+1, err)
		}
	}
	term := c.nodes[2].replica(1).view.Load().Term
	c.open(1, nil)
	for g := range raftyard.GroupID(2) {
		c.eventually("node 1 destroys its replica", func() bool {
			return c.nodes[1].replica(g+1) == nil
		})
	}
	if got := c.nodes[2].replica(1).view.Load().Term; got != term {
		t.Errorf("the term rose from %d to %d; a removed replica disturbed the group", term, got)
	}
	c.wantWords(1, 1, "a")
	c.wantWords(1, 2, "b")
}

// TestGroupGrowsThoughAVoterIsDown creates a group one of whose nodes is down:
// the others must hold the data all the same.
func TestGroupGrowsThoughAVoterIsDown(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3) // a founder that is not known yet could wait for node 3
	c.close(3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	st, err := c.nodes[1].Group(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	voters := 0
	for _, m := range st.Members {
		if m.Role == "voter" {
			voters++
		}
	}
	if voters < 2 || !slices.Contains(st.Problems, "under_replicated") {
		t.Errorf("members %+v, problems %q; want two voters and the lack shown",
			st.Members, st.Problems)
	}
	c.open(3, nil)
	c.eventually("the group is complete", func() bool {
		st, err := c.nodes[1].Group(t.Context(), 1)
		return err == nil && len(st.Problems) == 0
	})
	c.wantWords(3, 1, "a")
}

func TestSaveIsCutIntoWrites(t *testing.T) {
	entries := make([]*raftpb.Entry, 10)
	for i := range entries {
		entries[i] = &raftpb.Entry{
			Index: new(uint64(i + 5)), Term: new(uint64(3)), Data: make([]byte, 1000),
		}
	}
	r := &replica{group: 1}
	hs := &raftpb.HardState{Term: new(uint64(3)), Vote: new(uint64(2)), Commit: new(uint64(9))}
	ws := r.saveWrites(nil, &group.Save{HardState: hs, Entries: entries}, 3200)
	next := uint64(5)
	for i, w := range ws {
		for _, e := range w.update.Entries {
			if e.GetIndex() != next {
				t.Fatalf("write %d: entry %d, want %d", i, e.GetIndex(), next)
			}
			next++
		}
		got := w.update.HardState
		if got.GetTerm() != 3 || got.GetVote() != 2 || got.GetCommit() > next-1 {
			t.Errorf("write %d: hard state %v after entry %d", i, got, next-1)
		}
		if last := i == len(ws)-1; (w.saved == r) != last {
			t.Errorf("write %d of %d: the step goes on: %t", i, len(ws), w.saved == r)
		}
	}
	if next != 15 || len(ws) < 4 {
		t.Errorf("%d writes up to entry %d, want at least 4 up to 14", len(ws), next-1)
	}
}

func TestMailboxIsBounded(t *testing.T) {
	const most = 16 << 20
	b := newMailbox(most)
	r := &replica{}
	count := 0
	for b.message(inbound{r: r}, 100) {
		count++
	}
	if count != maxMailMessages {
		t.Errorf("%d messages fit, want %d", count, maxMailMessages)
	}
	b = newMailbox(most)
	if !b.message(inbound{r: r}, most) || b.message(inbound{r: r}, 1) {
		t.Error("the size of messages is not bounded")
	}
	for range 100 {
		b.tick()
		b.applied(r)
	}
	m := b.take(mail{})
	if m.ticks != maxMailTicks || len(m.applied) != 1 {
		t.Errorf("%d ticks and %d applied, want %d and 1", m.ticks, len(m.applied), maxMailTicks)
	}
	b.close()
	if b.control(func() {}) {
		t.Error("a closed mailbox took something")
	}
}

func TestMetaRoundTrip(t *testing.T) {
	for _, m := range []meta{
		{},
		{Floor: floor{Index: 9, Term: 2, Machine: 7, File: "snapshot-1"}},
		{Install: &installIntent{Index: 5, Term: 1, File: "incoming-1", Manifest: []byte("m")}},
		{Stores: []knownStore{{Node: 1, Store: registry.Store{1}, Boot: 4711}, {Node: 300}}},
		sampleMeta(),
	} {
		got, err := decodeMeta(m.encode())
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("decodeMeta(encode(%+v)) = %+v, %v", m, got, err)
		}
		b := m.encode()
		for i := range b {
			if _, err := decodeMeta(b[:i]); err == nil {
				t.Errorf("decodeMeta of the first %d of %d bytes succeeded", i, len(b))
			}
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(sampleMeta().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		if _, err := decodeMeta(m.encode()); err != nil {
			t.Errorf("decodeMeta(encode(%+v)) = %v", m, err)
		}
	})
}

func TestErrorsTravelBetweenNodes(t *testing.T) {
	for code, kind := range remoteCodes {
		if code == 0 {
			continue
		}
		err := decodeError(9, encodeError(errors.Join(kind, io.EOF)))
		if !errors.Is(err, kind) {
			t.Errorf("%v arrives as %v", kind, err)
		}
		if NotApplied(err) != NotApplied(kind) {
			t.Errorf("%v: NotApplied = %t after the journey", kind, NotApplied(err))
		}
	}
	err := decodeError(9, encodeError(&NotLeaderError{Group: 7, Leader: 3}))
	if nl, ok := errors.AsType[*NotLeaderError](err); !ok || nl.Leader != 3 || nl.Group != 7 {
		t.Errorf("NotLeaderError arrives as %v", err)
	}
	if err = decodeError(9, encodeError(io.EOF)); NotApplied(err) {
		t.Errorf("an error of no known kind arrives as %v, want ErrUnknownOutcome", err)
	}
	if err = decodeError(9, transport.ErrTooLarge); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a request that does not fit is %v, want ErrTooLarge", err)
	}
	if err = decodeError(9, transport.ErrBusy); !errors.Is(err, ErrOverloaded) || !NotApplied(err) {
		t.Errorf("a busy peer is %v, want ErrOverloaded", err)
	}
	both := errors.Join(transport.ErrBusy, transport.ErrUnknown)
	if err = decodeError(9, both); NotApplied(err) {
		t.Errorf("busy and unknown is %v, want ErrUnknownOutcome", err)
	}
	if err = decodeError(9, transport.ErrUnreachable); !NotApplied(err) {
		t.Errorf("unreachable is %v, want an error that says not applied", err)
	}
}

// TestRefusedWriteStopsOneReplica submits, between sound writes, one that the log
// store must refuse.
func TestRefusedWriteStopsOneReplica(t *testing.T) {
	c := newCluster(t, 1)
	for g := range raftyard.GroupID(3) {
		c.create(g+1, 1)
	}
	n := c.nodes[1]
	bad := write{group: 2, done: func(error) {}, update: storage.Update{
		Entries: []*raftpb.Entry{{Index: new(uint64(1000)), Term: new(uint64(1))}},
	}}
	st, _ := n.store.Replica(1)
	sound := write{group: 1, done: func(error) {}, update: storage.Update{Meta: st.Meta}}
	n.committer.submit(sound, bad, sound)
	<-n.replica(2).gone
	if err := n.replica(2).fault(); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("fault = %v, want what the store said", err)
	}
	c.add(1, 1, "fine")
	c.add(1, 3, "fine")
	if err := n.Err(); err != nil {
		t.Errorf("the node has failed: %v", err)
	}
}
