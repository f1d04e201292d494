package node

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// hooked is a list whose steps a test can hold up or break.
type hooked struct {
	list
	c   *cluster
	env group.Env
}

func (h *hooked) Apply(batch []group.Command) ([]group.Result, error) {
	if hook := h.c.onApply.Load(); hook != nil {
		for _, cmd := range batch {
			(*hook)(h.env, string(cmd.Data))
		}
	}
	return h.list.Apply(batch)
}

func (h *hooked) Snapshot() (group.Snapshot, error) {
	s, err := h.list.Snapshot()
	if h.c.badSource.Load() == uint64(h.env.Node) {
		panic("no snapshot today")
	}
	return hookedSnapshot{s, h.c}, err
}

// Destroy counts that it was called, and fails as often as the test wants.
func (h *hooked) Destroy() error {
	if h.c.failDestroy.Add(-1) >= 0 {
		return errors.New("not yet")
	}
	h.c.destroyed.Add(1)
	return nil
}

type hookedSnapshot struct {
	group.Snapshot
	c *cluster
}

// WriteTo waits or panics if the test wants it to.
func (s hookedSnapshot) WriteTo(w io.Writer) (int64, error) {
	if hook := s.c.onWriteTo.Load(); hook != nil {
		(*hook)()
	}
	if s.c.panicInWriteTo.Load() {
		panic("in WriteTo")
	}
	return s.Snapshot.WriteTo(w)
}

// hooks are what tests do to the hooked state machines of their cluster.
type hooks struct {
	onOpen         atomic.Pointer[func(env group.Env)]
	onApply        atomic.Pointer[func(env group.Env, word string)]
	onWriteTo      atomic.Pointer[func()]
	panicInWriteTo atomic.Bool
	badSource      atomic.Uint64 // the node whose state machines give no snapshot
	destroyed      atomic.Int32
	failDestroy    atomic.Int32
	full           [16]atomic.Bool // by node id: its disk is
	held           [16]atomic.Bool // by node id: its log waits for space
	rots           [16]atomic.Bool // by node id: what one of its state machines has stored
	breaks         [16]atomic.Bool // by node id: the store of its state machines
}

// holdWord makes the state machine on a node stop before it applies a word. It
// returns a channel that is closed when it is there, and one to close to let it go.
func (c *cluster) holdWord(on raftyard.NodeID, word string) (there, release chan struct{}) {
	there, release = make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook := func(env group.Env, w string) {
		if env.Node == on && w == word {
			once.Do(func() { close(there) })
			<-release
		}
	}
	c.onApply.Store(&hook)
	return there, release
}

// TestProposalIsNotRepeatedWhenItsReplicaGoes moves a group away while its leader
// applies a command: the proposer must be told that the outcome is unknown, and
// nobody may propose the command again.
func TestProposalIsNotRepeatedWhenItsReplicaGoes(t *testing.T) {
	c := newCluster(t, 2)
	c.createSpec(Spec{ID: 2, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	c.add(1, 2, "a")
	there, release := c.holdWord(1, "X")
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	go func() {
		_, err := c.nodes[1].Propose(ctx, 2, []byte("X"))
		got <- err
	}()
	<-there
	to2 := Members{Voters: []raftyard.NodeID{2}}
	if _, err := c.nodes[2].SetMembers(ctx, 2, to2, true); err != nil {
		t.Fatal(err)
	}
	err := <-got
	close(release)
	if err != nil && NotApplied(err) {
		t.Errorf("Propose = %v, which says that it is not applied", err)
	}
	c.wantWords(2, 2, "a", "X")
}

func TestDeletionLeavesTheOutcomeUnknown(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 2, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	there, release := c.holdWord(1, "X")
	got := make(chan error, 1)
	go func() {
		_, err := c.nodes[1].Propose(context.Background(), 2, []byte("X"))
		got <- err
	}()
	<-there
	if err := c.nodes[1].DeleteGroup(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	err := <-got
	close(release)
	if err == nil || NotApplied(err) {
		t.Errorf("Propose of what is being applied = %v, want an unknown outcome", err)
	}
}

func TestPanicOfASnapshotIsAnError(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 2, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	c.add(1, 2, "a")
	c.panicInWriteTo.Store(true)
	if _, err := c.nodes[1].TakeSnapshot(t.Context(), 2); err == nil {
		t.Error("TakeSnapshot succeeded")
	}
	c.panicInWriteTo.Store(false)
	if _, err := c.nodes[1].TakeSnapshot(t.Context(), 2); err != nil {
		t.Errorf("TakeSnapshot after that = %v", err)
	}
	c.wantWords(1, 2, "a")
}

// TestLeaderThatWasFilledSteers lets a node lead whose replica began without a
// state: it must know what membership is wanted.
func TestLeaderThatWasFilledSteers(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3) // all must be there at the founding
	c.close(3)
	c.create(3, 1, 2, 3) // node 1 founds it
	if err := c.nodes[1].TransferLeader(t.Context(), 3, 2); err != nil {
		t.Fatal(err)
	}
	c.open(3, nil)
	c.eventually("the group is complete", func() bool { return len(c.problems(2, 3)) == 0 })
}

// TestWipedSeedDoesNotFoundAgain wipes the node on which a group began, while it
// is the only one with a say.
func TestWipedSeedDoesNotFoundAgain(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "acknowledged")
	rec, _ := c.nodes[1].registry.Group(1)
	seed := rec.Seed
	c.close(seed)
	if err := os.RemoveAll(filepath.Join(c.dir, seed.String())); err != nil {
		t.Fatal(err)
	}
	others := slices.DeleteFunc([]raftyard.NodeID{1, 2, 3}, func(id raftyard.NodeID) bool {
		return id == seed
	})
	c.close(others[0])
	c.open(seed, nil) // with a new directory
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := c.nodes[seed].Propose(short, 1, []byte("split")); err == nil {
		t.Error("a wiped node and another acknowledged a write: it votes as if it had been there")
	}
	c.eventually("it knows why it is not listened to", func() bool {
		err := c.nodes[seed].standing()
		return err != nil && strings.Contains(err.Error(), "wiped")
	})
	c.eventually("it is not shown as one of the living", func() bool {
		st, err := c.nodes[others[1]].NodeStatus(t.Context(), seed)
		return err == nil && !st.Live && strings.Contains(st.Problem, "comes with data directory")
	})
	c.open(others[0], nil)
	c.wantWords(others[0], 1, "acknowledged")
	c.add(others[1], 1, "more")
	c.wantWords(others[1], 1, "acknowledged", "more")
}

// TestStagedFileOutlivesItsIntent takes a snapshot of one's own in the moment in
// which a received one is restored but not yet recorded.
func TestStagedFileOutlivesItsIntent(t *testing.T) {
	s := newSurroundings(nil)
	w := &worker{node: &Node{
		world: s, files: newBackground(s), logger: (Config{}).withDefaults().Logger,
	}}
	w.box = newMailbox(minBound)
	dir := t.TempDir()
	const name = incomingPrefix + "x"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("state"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := group.Descriptor{
		Group: 1, Incarnation: raftyard.Incarnation{1}, Kind: "kv", Epoch: 1, NextReplica: 2,
		Members: []group.Member{{ID: 1, Node: 1, Role: group.Voter}},
	}
	m := group.Manifest{State: group.State{Descriptor: d, Index: 1}}
	snap := group.NewSnapshot(100, 5, m)
	r := &replica{
		group: 1, worker: w, gone: make(chan struct{}),
		machine: &machine{world: s, env: group.Env{Dir: dir}},
	}
	r.busy, r.snap.running = true, true
	r.out = group.Output{
		Install: &group.Install{Index: 100, Term: 5, Snapshot: snap, Manifest: m},
		Save:    &group.Save{Snapshot: snap, Reset: true},
	}
	r.meta.Install = &installIntent{Index: 100, Term: 5, File: name, Manifest: snap.GetData()}

	w.installed(r, floor{Index: 100, Term: 5, Machine: 100})
	w.snapshotTaken(r, snapshotResult{
		at: position{applied: 100, term: 5}, floor: floor{Index: 100},
	})
	w.node.files.close()
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Errorf("the file that the durable intent names: %v", err)
	}
}

func TestIdleSnapshotsLeaveOneFile(t *testing.T) {
	c := newCluster(t, 1)
	c.create(2, 1)
	c.add(1, 2, "a")
	for range 5 {
		if _, err := c.nodes[1].TakeSnapshot(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	dir := c.nodes[1].replica(2).machine.env.Dir
	c.eventually("one file is left", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 1
	})
}

// TestFactoryThatFailsWithANilPointer: as a program's factory easily does.
func TestFactoryThatFailsWithANilPointer(t *testing.T) {
	m := &machine{world: newSurroundings(nil), factory: func(string) group.Factory {
		return func(group.Env) (group.StateMachine, error) {
			var nothing *list
			return nothing, io.ErrUnexpectedEOF
		}
	}}
	for range 2 {
		if err := m.open("list"); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("open = %v, want the factory's error each time", err)
		}
	}
	if err := m.close(true); err != nil {
		t.Errorf("close = %v", err)
	}
}

func TestPortInUseIsAnError(t *testing.T) {
	c := newCluster(t, 1)
	_, err := Open(t.Context(), Config{
		ID: 1, Dir: t.TempDir(), Cluster: "other", Peers: c.peers,
		Kinds: map[string]group.Factory{"list": newList},
	})
	if err == nil || !strings.Contains(err.Error(), c.peers[0].Addr) {
		t.Errorf("Open on a port in use = %v, want an error that names it", err)
	}
}

// TestPurgeAfterACrash starts a node in whose directory there is a tombstone, but
// what the state machine stored is not deleted yet.
func TestPurgeAfterACrash(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	id := c.nodes[1].cluster
	d := c.nodes[1].replica(1).view.Load().State.Descriptor
	c.close(1)
	store, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, "1"), Cluster: id, Node: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := store.NewBatch()
	d.Members = nil // as one that was destroyed on somebody's word
	b.Destroy(1, storage.Tombstone{NextReplica: 2, Epoch: 9, Data: remains{Descriptor: d}.encode()})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	c.eventually("it is purged", func() bool { return !c.nodes[1].purging(1) })
	if got := c.destroyed.Load(); got != 1 {
		t.Errorf("Destroy was called %d times, want once", got)
	}
}

// TestCrashAfterOwnRemoval starts a replica that has applied its own removal, but
// has no tombstone.
func TestCrashAfterOwnRemoval(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	id := c.nodes[1].cluster
	c.close(1)
	editMeta(t, c, id, func(m *meta) {
		d := m.State.Descriptor.Clone()
		d.Epoch++
		d.Members = []group.Member{{ID: 2, Node: 9, Role: group.Voter}}
		d.NextReplica = 3
		m.State = group.State{Descriptor: d, Index: m.State.Index + 1}
	})
	c.open(1, nil)
	c.eventually("the replica is destroyed", func() bool { return c.nodes[1].replica(1) == nil })
}

// TestRemovedLearnerThatWasCutOff removes a learner that is up but hears nothing.
// It never stands for election, so nobody's vote tells it.
func TestRemovedLearnerThatWasCutOff(t *testing.T) {
	net := transport.NewMemory(1)
	c := newMemoryCluster(t, 3, net)
	c.createSpec(Spec{
		ID: 2, Kind: "list", Voters: []raftyard.NodeID{1}, Learners: []raftyard.NodeID{2},
	})
	c.add(1, 2, "a")
	if c.leader(0) == 2 {
		if err := c.nodes[1].TransferLeader(t.Context(), 0, 3); err != nil {
			t.Fatal(err)
		}
	}
	net.CutBoth(1, 2)
	net.CutBoth(2, 3)
	c.eventually("node 1 has lost node 2", func() bool { return !c.nodes[1].liveNodes()[2] })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	alone := Members{Voters: []raftyard.NodeID{1}}
	if _, err := c.nodes[1].SetMembers(ctx, 2, alone, true); err != nil {
		t.Fatal(err)
	}
	net.HealAll()
	c.eventually("node 2 destroys its replica", func() bool { return c.nodes[2].replica(2) == nil })
}

// TestStateOfAnUnreadableReplicaIsDestroyed deletes a group of whose replica here
// not even the record can be read. What its state machine stored must go all the same.
func TestStateOfAnUnreadableReplicaIsDestroyed(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	id := c.nodes[1].cluster
	c.close(1)
	store, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, "1"), Cluster: id, Node: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := store.NewBatch()
	b.Update(1, storage.Update{Meta: []byte("nonsense")})
	if err := errors.Join(b.Commit(), store.Close()); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.eventually("it is purged", func() bool {
		st, ok := c.nodes[1].store.Replica(1)
		return ok && st.Tombstone != nil && st.Tombstone.Purged
	})
	if got := c.destroyed.Load(); got != 1 {
		t.Errorf("Destroy was called %d times, want once", got)
	}
}

// TestRefusedCreationHarmsNobody submits a creation of what is there.
func TestRefusedCreationHarmsNobody(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	n := c.nodes[1]
	again := n.lifecycle.createWrite(creation{
		group: 1, incarnation: n.replica(1).incarnation, id: n.replica(1).id,
	})
	if err := n.committer.wait([]write{again})[0]; err == nil {
		t.Error("the store took a replica that is there already")
	}
	c.add(1, 1, "fine")
	c.wantWords(1, 1, "fine")
}

// TestFatalErrorInTheBackground: a store that many state machines share fails when it writes what
// was answered already. The node hears of it without another command.
func TestFatalErrorInTheBackground(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "brittle", Voters: []raftyard.NodeID{1}})
	c.add(1, 1, "fine")
	c.breaks[1].Store(true)
	<-c.nodes[1].Failed()
	if err := c.nodes[1].Err(); !errors.Is(err, group.ErrFatal) {
		t.Errorf("Err = %v, want what the state machine said", err)
	}
}

// TestFailedStoreIsNoDamage: a store that cannot write any more has lost nothing, whoever comes
// upon it first. The others keep the replica, which is there again after a restart.
func TestFailedStoreIsNoDamage(t *testing.T) {
	for _, first := range []string{"Damage", "Apply"} {
		t.Run(first, func(t *testing.T) {
			c, at := brittleCluster(t, "a")
			r := c.nodes[at].replica(1)
			hook := func(env group.Env, w string) {
				if env.Node == at && w == "b" {
					c.breaks[at].Store(true)
					panic("the store has failed")
				}
			}
			if first == "Apply" {
				c.onApply.Store(&hook)
				c.add(c.leader(1), 1, "b")
			} else {
				c.breaks[at].Store(true)
			}
			<-c.nodes[at].Failed()
			<-r.gone
			if q := r.quarantine(); q.Reason != MachineFailed || c.nodes[at].isDamaged(r) {
				t.Errorf("its quarantine is %+v", q)
			}
			c.add(c.leader(1), 1, "c")
			c.mend()
			c.breaks[at].Store(false)
			c.close(at)
			c.open(at, nil)
			c.eventually("it has followed", func() bool {
				words := c.stale(at, 1)
				return len(words) > 1 && words[len(words)-1] == "c"
			})
			if now := c.nodes[at].replica(1); now.id != r.id {
				t.Errorf("replica %d is there, want %d", now.id, r.id)
			}
		})
	}
}

// TestFatalErrorOfAStateMachine: a store that many state machines share has failed.
func TestFatalErrorOfAStateMachine(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	_, err := c.nodes[1].Propose(t.Context(), 1, []byte("fatal"))
	if err == nil || NotApplied(err) {
		t.Errorf("Propose = %v, want an unknown outcome", err)
	}
	<-c.nodes[1].Failed()
	if err := c.nodes[1].Err(); !errors.Is(err, group.ErrFatal) {
		t.Errorf("Err = %v, want what the state machine said", err)
	}
}
