package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

func TestWithout(t *testing.T) {
	zone := func(z string) map[string]string { return map[string]string{"zone": z} }
	nodes := []registry.Node{
		{ID: 1, Labels: zone("a")},
		{ID: 2, Labels: zone("b")},
		{ID: 3, Labels: zone("c"), State: registry.NodeLeaving},
		{ID: 4, Labels: zone("a")},
		{ID: 5, Labels: zone("c")},
		{ID: 6, Labels: zone("c")},
		{ID: 7, Labels: zone("c"), State: registry.NodeDrained},
	}
	tests := []struct {
		name     string // if it begins with rare, only node 4 has the state machine
		voters   []raftyard.NodeID
		learners []raftyard.NodeID
		down     []raftyard.NodeID
		forced   bool
		want     string
	}{
		{"rare kind", nodeIDs(1, 2, 3), nil, nil, false, "[1 2 4] []"},
		{"rare kind, and it is down", nodeIDs(1, 2, 3), nil, nodeIDs(4), false, "[1 2 6] []"},
		{"the one with fewer replicas", nodeIDs(1, 2, 3), nil, nil, false, "[1 2 6] []"},
		{"another zone before fewer", nodeIDs(1, 2, 3), nil, nodeIDs(6), false, "[1 2 5] []"},
		{"what is left", nodeIDs(1, 2, 3), nil, nodeIDs(5, 6), false, "[1 2 4] []"},
		{"a learner is not promoted", nodeIDs(1, 2, 3), nodeIDs(6, 5), nil, false, "[1 2 4] [6 5]"},
		{"a learner goes", nodeIDs(1, 2), nodeIDs(3, 5), nil, false, "[1 2] [5]"},
		{"nobody", nodeIDs(1, 2, 3), nil, nodeIDs(4, 5, 6), false, nobodyElse},
		{"all are members", nodeIDs(1, 2, 3), nodeIDs(4, 5, 6), nil, false, onlyLearners},
		{
			"all are members, by force", nodeIDs(1, 2, 3), nodeIDs(4, 5), nodeIDs(6), true,
			"[1 2] [4 5]",
		},
		{"nobody, by force", nodeIDs(1, 2, 3), nil, nodeIDs(4, 5, 6), true, "[1 2] []"},
		{"somebody, by force", nodeIDs(1, 2, 3), nil, nodeIDs(5, 6), true, "[1 2 4] []"},
		{
			"the only voter", nodeIDs(3), nodeIDs(5), nodeIDs(1, 2, 4, 5, 6), true,
			onlyVoter,
		},
		{
			"the only voter, and a learner", nodeIDs(3), nodeIDs(5), nodeIDs(1, 2, 4, 6), true,
			onlyLearners,
		},
		{"the only voter is dead", nodeIDs(3), nil, nodeIDs(3), true, deadVoter},
		{"the only voter moves", nodeIDs(3), nil, nodeIDs(4), false, "[1] []"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &departure{
				id: 3, forced: tt.forced, nodes: nodes, live: make(map[raftyard.NodeID]bool),
				load: map[raftyard.NodeID]int{1: 1, 2: 1, 4: 0, 5: 3, 6: 2},
				lacks: func(id raftyard.NodeID, kind string) bool {
					return kind == "rare" && id != 4
				},
			}
			for _, n := range nodes {
				p.live[n.ID] = !slices.Contains(tt.down, n.ID)
			}
			rec := &registry.Group{Voters: tt.voters, Learners: tt.learners}
			rec.Kind, _, _ = strings.Cut(tt.name, " ")
			voters, learners, why := p.without(rec)
			got := why
			if why == "" {
				got = fmt.Sprint(voters, " ", learners)
			}
			if got != tt.want {
				t.Errorf("without = %s, want %s", got, tt.want)
			}
		})
	}
}

// TestWithoutProperties: whatever there is, a group never loses all its voters, nor one
// without getting another unless that is forced, and gets only nodes that are there.
func TestWithoutProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &departure{id: 1, live: make(map[raftyard.NodeID]bool)}
		p.lacks = func(id raftyard.NodeID, _ string) bool { return id%2 == 0 }
		p.forced = rapid.Bool().Draw(t, "forced")
		var rec registry.Group
		usable := make(map[raftyard.NodeID]bool)
		for id := range raftyard.NodeID(rapid.IntRange(1, 8).Draw(t, "nodes")) {
			n := registry.Node{ID: id + 1}
			n.State = registry.NodeState(rapid.IntRange(0, 2).Draw(t, "state"))
			if n.ID == p.id {
				n.State = registry.NodeLeaving
			}
			n.Labels = map[string]string{"zone": rapid.StringMatching("[ab]").Draw(t, "zone")}
			p.live[n.ID] = rapid.Bool().Draw(t, "live")
			usable[n.ID] = n.State == registry.NodeActive && p.live[n.ID]
			p.nodes = append(p.nodes, n)
			switch rapid.IntRange(0, 2).Draw(t, "member") {
			case 1:
				rec.Voters = append(rec.Voters, n.ID)
			case 2:
				rec.Learners = append(rec.Learners, n.ID)
			}
		}
		if len(rec.Voters) == 0 || !wants(&rec, p.id) {
			return
		}
		voters, learners, why := p.without(&rec)
		after := registry.Group{Voters: voters, Learners: learners}
		switch {
		case why != "" && len(voters)+len(learners) > 0:
			t.Fatalf("it waits (%s), and is changed: %+v", why, after)
		case why != "":
			return
		case wants(&after, p.id) || len(voters) == 0:
			t.Fatalf("from %+v to %+v", rec, after)
		case len(voters) < len(rec.Voters) && !p.forced:
			t.Fatalf("a voter is lost: from %+v to %+v", rec, after)
		case !slices.IsSorted(voters):
			t.Fatalf("voters out of order: %d", voters)
		}
		for _, id := range voters {
			may := usable[id] && !slices.Contains(rec.Learners, id)
			if !slices.Contains(rec.Voters, id) && !may {
				t.Fatalf("node %d is made a voter: from %+v to %+v", id, rec, after)
			}
		}
	})
}

// state returns what the registry of a node says that another is used for.
func (c *cluster) state(at, id raftyard.NodeID) registry.NodeState {
	rec, _ := c.nodes[at].registry.Node(id)
	return rec.State
}

// isGone reports whether a node knows that another is removed, and that neither a group
// nor the system group has anything on it.
func (c *cluster) isGone(at, id raftyard.NodeID) bool {
	_, member := c.system(at).MemberOn(id)
	return c.state(at, id) == registry.NodeRemoved && !member
}

func (c *cluster) voters(g raftyard.GroupID) []raftyard.NodeID {
	rec, _ := c.anyNode().registry.Group(g)
	return rec.Voters
}

func TestRemoveNode(t *testing.T) {
	c := newCluster(t, 4)
	c.awaitReady(1, 2, 3, 4)
	for g := range raftyard.GroupID(5) {
		c.create(g+1, 1, 2, 3)
		c.add(1, g+1, "a")
	}
	c.createSpec(Spec{ID: 6, Kind: "list", Voters: nodeIDs(1), Learners: nodeIDs(3)})
	n := c.nodes[1]
	_, err := n.RemoveNode(t.Context(), 3, false)
	if !errors.Is(err, ErrNodeInUse) ||
		!strings.Contains(err.Error(), "6 groups (1, 2, 3, 4, 5 and 1 more)") {
		t.Fatalf("RemoveNode of a node in use = %v, want ErrNodeInUse", err)
	}
	if _, err = n.RemoveNode(t.Context(), 3, true); !errors.Is(err, ErrNodeInUse) {
		t.Fatalf("RemoveNode by force of a node that is live = %v, want ErrNodeInUse", err)
	}
	if _, err = n.DrainNode(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	st, err := n.RemoveNode(t.Context(), 3, false)
	if err != nil || st.State != "leaving" || !strings.Contains(st.Problem, "a member there") {
		t.Fatalf("RemoveNode = %+v, %v", st, err)
	}
	// Another leader goes on with it.
	c.toNode2(raftyard.SystemGroup)
	c.eventually("the node is removed", func() bool { return c.isGone(1, 3) })
	for g := range raftyard.GroupID(5) {
		c.eventually("the group is where it is wanted", func() bool {
			gs, groupErr := n.Group(t.Context(), g+1)
			return groupErr == nil && slices.Equal(c.voters(g+1), nodeIDs(1, 2, 4)) &&
				len(gs.Problems) == 0
		})
		c.wantWords(4, g+1, "a")
	}
	if rec, _ := n.registry.Group(6); len(rec.Learners) != 0 {
		t.Errorf("group 6 still wants learners on %d", rec.Learners)
	}
	c.eventually("it has nothing left", func() bool {
		return !slices.ContainsFunc(c.nodes[3].allReplicas(), func(r *replica) bool {
			return r.group != raftyard.SystemGroup
		})
	})
	if st, err = n.RemoveNode(t.Context(), 3, false); err != nil || st.State != "removed" {
		t.Errorf("RemoveNode again = %+v, %v", st, err)
	}
	_, err = n.PutNode(t.Context(), NodeSpec{ID: 3, Peer: "h:1"})
	if !errors.Is(err, ErrNodeRemoved) {
		t.Errorf("PutNode of a removed node = %v, want ErrNodeRemoved", err)
	}
	if _, err = n.DrainNode(t.Context(), 3); !errors.Is(err, ErrNodeRemoved) {
		t.Errorf("DrainNode of a removed node = %v, want ErrNodeRemoved", err)
	}
	if list := n.Nodes(t.Context()); len(list) != 3 {
		t.Errorf("the removed node is listed: %+v", list)
	}
	c.eventually("three vote for the system group", func() bool {
		return c.systemIs(1, nodeIDs(1, 2, 4), nil)
	})
}

// TestRemovedNodeSaysSo: a node that was removed says so, while it runs and when it is
// started again, and takes no part; those that were there talk to it no more.
func TestRemovedNodeSaysSo(t *testing.T) {
	c := newCluster(t, 4)
	c.awaitReady(1, 2, 3, 4)
	c.create(1, 1, 2, 3)
	if _, err := c.nodes[1].RemoveNode(t.Context(), 4, false); err != nil {
		t.Fatal(err)
	}
	says := func() bool {
		ready, checks := c.nodes[4].Ready()
		return !ready && strings.Contains(checks[2].Detail, "node 4 was removed from cluster")
	}
	c.eventually("it says so while it runs", says)
	if _, err := c.nodes[4].PutNode(t.Context(), NodeSpec{ID: 9, Peer: "h:1"}); !NotApplied(err) {
		t.Errorf("PutNode at a removed node = %v", err)
	}
	c.close(4)
	c.open(4, nil)
	c.eventually("it says so when it is started again", says)
	c.eventually("nobody talks to it", func() bool {
		for _, id := range nodeIDs(1, 2, 3) {
			for _, p := range c.nodes[id].transport.Peers() {
				if p.Node == 4 {
					return false
				}
			}
		}
		return true
	})
	// It was away when it was removed, and knows nothing of it.
	c.close(3)
	c.eventually("node 3 is not live", func() bool { return !c.nodes[1].liveNodes()[3] })
	if _, err := c.nodes[1].RemoveNode(t.Context(), 3, true); err != nil {
		t.Fatal(err)
	}
	c.eventually("node 3 is removed", func() bool { return c.isGone(1, 3) })
	c.open(3, nil)
	c.eventually("it learns of it", func() bool {
		ready, checks := c.nodes[3].Ready()
		return !ready && strings.Contains(checks[2].Detail, "node 3 was removed from cluster")
	})
	if _, err := c.nodes[3].serving(1); !errors.Is(err, ErrNotReady) {
		t.Errorf("its replica is asked: %v, want ErrNotReady", err)
	}
	c.add(1, 1, "a")
}

// TestLeaveWaitsForAnother: with nobody to take its place a node stays until somebody
// joins.
func TestLeaveWaitsForAnother(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	n := c.nodes[1]
	if _, err := n.DrainNode(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	st, err := n.RemoveNode(t.Context(), 3, false)
	if err != nil || !strings.Contains(st.Problem, "no other node is there for group 1: ") {
		t.Fatalf("RemoveNode = %+v, %v", st, err)
	}
	// Taken back, and again.
	st, err = n.UndrainNode(t.Context(), 3)
	if err != nil || st.State != "active" || st.Problem != "" {
		t.Fatalf("UndrainNode = %+v, %v", st, err)
	}
	if _, err = n.DrainNode(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err = n.RemoveNode(t.Context(), 3, false); err != nil {
		t.Fatal(err)
	}
	c.joiner(4)
	c.put(4)
	c.eventually("the node is removed", func() bool { return c.isGone(1, 3) })
	if got := c.voters(1); !slices.Equal(got, nodeIDs(1, 2, 4)) {
		t.Errorf("voters %d, want 1, 2 and 4", got)
	}
	c.wantWords(4, 1, "a")
}

// TestRemoveDeadNode: what is dead for ever is taken out by force, and groups go on with
// fewer voters; one that is lost must be deleted first.
func TestRemoveDeadNode(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 3)
	c.add(1, 1, "a")
	c.close(3)
	n := c.nodes[1]
	if _, err := n.RemoveNode(t.Context(), 3, false); !errors.Is(err, ErrNodeInUse) {
		t.Fatalf("RemoveNode without force = %v, want ErrNodeInUse", err)
	}
	c.eventually("the node is not live", func() bool { return !n.liveNodes()[3] })
	if _, err := n.RemoveNode(t.Context(), 3, true); err != nil {
		t.Fatalf("RemoveNode by force = %v", err)
	}
	c.eventually("group 1 goes on with two", func() bool {
		return slices.Equal(c.voters(1), nodeIDs(1, 2))
	})
	c.eventually("what is left is said", func() bool {
		st, err := n.NodeStatus(t.Context(), 3)
		return err == nil && st.State == "leaving" &&
			strings.Contains(st.Problem, "is not live, for group 2: ")
	})
	del := registry.EncodeDeleteGroup(registry.DeleteGroup{ID: 2})
	if _, err := n.command(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node is removed", func() bool { return c.isGone(1, 3) })
	c.add(2, 1, "b")
	c.wantWords(1, 1, "a", "b")
}

// TestLastNodeStays: somebody must be there.
func TestLastNodeStays(t *testing.T) {
	c := newCluster(t, 2)
	c.awaitReady(1, 2)
	n := c.nodes[2]
	// Nothing is on it, so it need not be drained.
	if st, err := n.RemoveNode(t.Context(), 1, false); err != nil {
		t.Fatalf("RemoveNode = %+v, %v", st, err)
	}
	c.eventually("the first node is removed", func() bool { return c.isGone(2, 1) })
	if _, err := n.RemoveNode(t.Context(), 2, false); !errors.Is(err, ErrInvalid) {
		t.Errorf("RemoveNode of the last node = %v, want ErrInvalid", err)
	}
	if _, err := n.RemoveNode(t.Context(), 9, false); !errors.Is(err, ErrNodeNotFound) {
		t.Errorf("RemoveNode of no node = %v, want ErrNodeNotFound", err)
	}
	c.close(1)
	c.create(1, 2)
	c.add(2, 1, "a")
}

// TestLeaveSurvivesLeaders: whoever leads the system group goes on with what the one
// before has begun, wherever that was.
func TestLeaveSurvivesLeaders(t *testing.T) {
	c := newCluster(t, 5)
	c.awaitReady(1, 2, 3, 4, 5)
	const groups = 8
	for g := range raftyard.GroupID(groups) {
		c.create(g+1, 5, 1+raftyard.NodeID(g%2), 3)
		c.add(1, g+1, "a")
	}
	if _, err := c.nodes[1].DrainNode(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes[1].RemoveNode(t.Context(), 5, false); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		led := c.leader(raftyard.SystemGroup)
		if led == 5 {
			continue
		}
		c.crash(led)
		c.open(led, nil)
		c.awaitReady(led)
	}
	c.eventually("the node is removed", func() bool {
		return c.isGone(1, 5) && c.isGone(2, 5)
	})
	for g := range raftyard.GroupID(groups) {
		if got := c.voters(g + 1); len(got) != 3 || slices.Contains(got, 5) {
			t.Errorf("group %d has the voters %d", g+1, got)
		}
		c.wantWords(1, g+1, "a")
	}
}

// crash stops a node that hands nothing over.
func (c *cluster) crash(id raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	cancel()
	if err := c.nodes[id].Close(ctx); err != nil {
		c.t.Errorf("close node %d: %v", id, err)
	}
	delete(c.nodes, id)
}

// TestPauseAfterALook: a look that waited for a node that does not answer does not keep what
// comes after it for half a minute, and one that had much to do is not all that is done.
func TestPauseAfterALook(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: moveEvery, time.Second: 6 * time.Second, 5 * time.Second: maxMovePause,
	} {
		if got := movePause(took); got != want {
			t.Errorf("after %v: %v, want %v", took, got, want)
		}
	}
}
