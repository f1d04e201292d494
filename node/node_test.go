package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestProposeAndReadFromAnyNode(t *testing.T) {
	c := newCluster(t, 4)
	c.create(7, 1, 2, 3)
	c.add(1, 7, "a")
	c.add(2, 7, "b")
	c.add(3, 7, "c")
	c.add(4, 7, "d") // has no replica
	for id := range raftyard.NodeID(4) {
		c.wantWords(id+1, 7, "a", "b", "c", "d")
	}
}

func TestOneNodeCluster(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "a", "b")
	c.close(1)
	c.open(1, nil)
	c.wantWords(1, 1, "a", "b")
}

func TestRestartOfAllNodes(t *testing.T) {
	c := newCluster(t, 3)
	for g := range raftyard.GroupID(5) {
		c.create(g+1, 1, 2, 3)
		c.add(1, g+1, fmt.Sprint("word of ", g+1))
	}
	for range 2 {
		for _, p := range c.peers {
			c.close(p.ID)
		}
		for _, p := range c.peers {
			c.open(p.ID, nil)
		}
		for g := range raftyard.GroupID(5) {
			c.wantWords(2, g+1, fmt.Sprint("word of ", g+1))
		}
	}
}

func TestLeaderLoss(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	lost := c.leader(1)
	c.close(lost)
	c.add(lost%3+1, 1, "during")
	c.open(lost, nil)
	c.add(lost, 1, "after")
	c.wantWords(lost, 1, "before", "during", "after")
}

func TestCreateGroupIsIdempotent(t *testing.T) {
	c := newCluster(t, 3)
	spec := Spec{ID: 5, Kind: "list", Voters: []raftyard.NodeID{3, 1, 2}}
	for i, want := range []bool{true, false, false} {
		n := c.nodes[raftyard.NodeID(i+1)]
		if created, err := n.CreateGroup(t.Context(), spec); err != nil || created != want {
			t.Errorf("CreateGroup at node %d = %t, %v; want %t", n.ID(), created, err, want)
		}
	}
	spec.Voters = []raftyard.NodeID{1, 2}
	if _, err := c.nodes[1].CreateGroup(t.Context(), spec); !errors.Is(err, ErrGroupExists) {
		t.Errorf("CreateGroup with other voters = %v, want ErrGroupExists", err)
	}
	for _, bad := range []Spec{
		{ID: 0, Kind: "list", Voters: []raftyard.NodeID{1}},
		{ID: 9, Kind: "nothing", Voters: []raftyard.NodeID{1}},
		{ID: 9, Kind: "list"},
		{ID: 9, Kind: "list", Voters: []raftyard.NodeID{1, 1}},
		{ID: 9, Kind: "list", Voters: []raftyard.NodeID{77}},
	} {
		if _, err := c.nodes[1].CreateGroup(t.Context(), bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("CreateGroup(%+v) = %v, want ErrInvalid", bad, err)
		}
	}
}

func TestDeleteAndCreateAgain(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(2, 1, "old")
	for range 2 { // repeats are a success
		if err := c.nodes[2].DeleteGroup(t.Context(), 1); err != nil {
			t.Fatalf("DeleteGroup = %v", err)
		}
	}
	_, err := c.nodes[3].Query(t.Context(), 1, Linearizable, nil)
	if err == nil {
		c.eventually("the group is gone", func() bool {
			_, err = c.nodes[3].Query(t.Context(), 1, Linearizable, nil)
			return err != nil
		})
	}
	c.create(1, 1, 2, 3)
	c.add(3, 1, "new")
	for id := range raftyard.NodeID(3) {
		c.wantWords(id+1, 1, "new")
	}
	if err := c.nodes[1].DeleteGroup(t.Context(), 99); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("DeleteGroup of what never was = %v, want ErrGroupNotFound", err)
	}
}

func TestDeleteReachesNodesThatWereDown(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "x")
	c.close(3)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatalf("DeleteGroup = %v", err)
	}
	c.open(3, nil)
	c.eventually("node 3 destroys its replica", func() bool { return c.nodes[3].replica(1) == nil })
}

func TestMoveGroup(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	want := Members{Voters: []raftyard.NodeID{2, 3, 4}}
	st, err := c.nodes[1].SetMembers(ctx, 1, want, true)
	if err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	if len(st.Problems) != 0 || len(st.Members) != 3 {
		t.Errorf("after the move: members %+v, problems %q", st.Members, st.Problems)
	}
	c.eventually("node 1 destroys its replica", func() bool { return c.nodes[1].replica(1) == nil })
	c.add(1, 1, "b")
	for id := range raftyard.NodeID(4) {
		c.wantWords(id+1, 1, "a", "b")
	}
	want.ExpectEpoch = 1
	if _, err := c.nodes[1].SetMembers(ctx, 1, want, false); !errors.Is(err, ErrEpochMismatch) {
		t.Errorf("SetMembers at an old epoch = %v, want ErrEpochMismatch", err)
	}
	// And back: node 1 gets a new replica.
	want = Members{Voters: []raftyard.NodeID{1, 2, 3}}
	if _, err := c.nodes[4].SetMembers(ctx, 1, want, true); err != nil {
		t.Fatalf("SetMembers back = %v", err)
	}
	c.add(4, 1, "c")
	c.wantWords(1, 1, "a", "b", "c")
	if r := c.nodes[1].replica(1); r == nil || r.id < 5 {
		t.Errorf("node 1 has %v, want a replica with an id that was never used", r)
	}
}

func TestTransferLeader(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	for _, to := range []raftyard.NodeID{1, 2, 3, 3, 1} {
		if err := c.nodes[4].TransferLeader(t.Context(), 1, to); err != nil {
			t.Fatalf("TransferLeader to %d = %v", to, err)
		}
		c.eventually("everybody knows", func() bool {
			for _, id := range []raftyard.NodeID{1, 2, 3} {
				if l, _ := c.nodes[id].Leader(1); l != to {
					return false
				}
			}
			return true
		})
	}
	if err := c.nodes[1].TransferLeader(t.Context(), 1, 4); !errors.Is(err, ErrTransfer) {
		t.Errorf("TransferLeader to a node without a replica = %v, want ErrTransfer", err)
	}
}

func TestSnapshotAndCatchUp(t *testing.T) {
	c := newCluster(t, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 50, TrailingEntries: 10,
	})
	var want []string
	write := func(count int) {
		for range count {
			w := fmt.Sprint("w", len(want))
			c.add(1, 1, w)
			want = append(want, w)
		}
	}
	write(20)
	c.close(3)
	write(300)
	c.eventually("the others have cut their logs beyond what node 3 has", func() bool {
		return !slices.ContainsFunc([]raftyard.NodeID{1, 2}, func(id raftyard.NodeID) bool {
			st, err := c.nodes[id].RaftStatus(t.Context(), 1)
			return err != nil || st.First < 100
		})
	})
	c.open(3, nil)
	c.eventually("node 3 catches up", func() bool { return slices.Equal(c.words(3, 1), want) })
	// A node that has not read the registry yet has others answer.
	c.eventually("node 3 has caught up by a snapshot", func() bool {
		return c.nodes[3].Metrics().SnapshotsInstalled > 0
	})
	for id := range raftyard.NodeID(3) {
		st, err := c.nodes[id+1].RaftStatus(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if st.Last+1-st.First > 150 {
			t.Errorf("node %d keeps entries %d to %d; the log is not cut", id+1, st.First, st.Last)
		}
	}
	write(60)
	for _, p := range c.peers {
		c.close(p.ID)
	}
	for _, p := range c.peers {
		c.open(p.ID, nil)
	}
	c.wantWords(2, 1, want...)
}

func TestTakeSnapshot(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2)
	c.add(1, 1, "a", "b")
	for id := range raftyard.NodeID(3) {
		info, err := c.nodes[id+1].TakeSnapshot(t.Context(), 1)
		if err != nil || info.Index == 0 || info.Term == 0 {
			t.Errorf("TakeSnapshot at node %d = %+v, %v", id+1, info, err)
		}
	}
}

func TestBrokenStateMachineStopsItsReplicaOnly(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.create(2, 1)
	_, err := c.nodes[1].Propose(t.Context(), 1, []byte("panic now"))
	if !errors.Is(err, ErrUnknownOutcome) || NotApplied(err) {
		t.Errorf("Propose of what breaks the state machine = %v, want ErrUnknownOutcome", err)
	}
	if _, err = c.nodes[1].Propose(t.Context(), 1, []byte("x")); !errors.Is(err, ErrFaulty) {
		t.Errorf("Propose to a stopped replica = %v, want ErrFaulty", err)
	}
	c.add(1, 2, "fine")
	c.wantWords(1, 2, "fine")
	st, err := c.nodes[1].Group(t.Context(), 1)
	if err != nil || !slices.Contains(st.Problems, "faulty") {
		t.Errorf("Group = %+v, %v; want the problem to be listed", st.Problems, err)
	}
}

func TestOutcomesWithoutQuorum(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	leader := c.leader(1)
	for _, p := range c.peers {
		if p.ID != leader {
			c.close(p.ID)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.nodes[leader].Propose(ctx, 1, []byte("b")); err == nil {
		t.Error("Propose without a quorum succeeded")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.nodes[leader].Query(ctx, 1, Linearizable, nil)
	if !NotApplied(err) {
		t.Errorf("Query without a quorum = %v, want an error that is not an unknown outcome", err)
	}
	if _, err := c.nodes[leader].Query(t.Context(), 1, Stale, nil); err != nil {
		t.Errorf("stale Query without a quorum = %v", err)
	}
}

func TestWatchTellsThePresentStateFirst(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deleted := false
	for ev := range c.nodes[1].Watch(ctx) {
		switch {
		case ev.Group == 1 && ev.Kind == EventReplica && ev.Leads && !deleted:
			deleted = true
			if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		case ev.Group == 1 && ev.Kind == EventReplicaGone:
			return
		}
	}
	t.Error("Watch ended before the group was gone")
}
