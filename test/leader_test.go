//go:build unix

package test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// standstill is for how long no write of a group may succeed while its leader is
// removed or is to hand over to somebody who cannot take over.
const standstill = 3 * time.Second

// TestLeaderIsRemoved removes the leader of a group again and again, under writes. The
// group must not stand still, and the one that was removed must leave it in peace.
func TestLeaderIsRemoved(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	const g = 1
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2, 3))
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: []raftyard.GroupID{g}, clients: 8, keys: 10_000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	all, members := ids(c.Nodes()), []raftyard.NodeID{1, 2, 3}
	rounds := cluster.Sized(6, 40)
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		l.awaitApplied(t, 50)
		leader := leaderOf(t, c.Nodes(), g)
		members = slices.DeleteFunc(slices.Clone(all), func(n raftyard.NodeID) bool {
			return n == leader.ID()
		})
		asked := c.Nodes()[(int(leader.ID())+1)%4]
		a := asked.SetMembers(t.Context(), g, client.Members{Voters: members}, moveLimit)
		if a.Error() != nil {
			t.Fatalf("remove the leader, node %d: %v", leader.ID(), a)
		}
		awaitPlaced(t, c.Nodes(), g, members)
	}
	l.awaitApplied(t, 50)
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	if _, worst := l.tally.gaps(); worst.gap > standstill {
		t.Errorf("the group stood still for %v", worst.gap)
	}
	l.verifyLists(t, c.Nodes())
	verifyDisks(t, c, placed{g: members})
}

// leaderOf waits until a node says that it leads a group, and returns it.
func leaderOf(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) *cluster.Node {
	t.Helper()
	var leader *cluster.Node
	var term uint64
	cluster.Eventually(t, startLimit, "there is a leader", func() error {
		leader, term = nil, 0
		for _, n := range nodes {
			r, err := n.Raft(t.Context(), g)
			if err == nil && r.Role == "leader" && r.Term > term {
				leader, term = n, r.Term
			}
		}
		return want(leader != nil, "group %d has none", g)
	})
	return leader
}

// TestImpossibleTransfers asks for the leadership of a group to be handed to nodes that
// cannot take it. Each call must say why, within its time, and writes must go on.
func TestImpossibleTransfers(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{Nodes: 5})
	c.Start()
	const g = 1
	spec := kvGroup(1, 2, 3)
	spec.Learners = []raftyard.NodeID{4}
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
	leader, frozen := c.Node(1), c.Node(3)
	for _, id := range []raftyard.GroupID{raftyard.SystemGroup, g} {
		cluster.Eventually(t, startLimit, "node 1 leads", func() error {
			return leader.Transfer(t.Context(), id, 1, 2*time.Second).Error()
		})
	}
	l := newLoad(loadSpec{
		nodes:  []*cluster.Node{c.Node(1), c.Node(2), c.Node(4), c.Node(5)},
		groups: []raftyard.GroupID{g}, clients: 8, keys: 10_000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	term := raftOf(t, leader, g).Term
	tests := []struct {
		name   string
		to     raftyard.NodeID
		before func()
		after  func()
		// works: that is no change at all. Otherwise it is refused with the code.
		works bool
		code  string
	}{
		{name: "to itself", to: 1, works: true},
		{name: "to a learner", to: 4, code: client.CodeTransferFailed},
		{name: "to a node that is no member", to: 5, code: client.CodeTransferFailed},
		{name: "to a node that nobody knows", to: 9, code: client.CodeTransferFailed},
		{
			name: "to a frozen node", to: 3, code: client.CodeTransferFailed,
			before: frozen.Freeze, after: frozen.Thaw,
		},
		{
			name: "to a dead node", to: 3, code: client.CodeTransferFailed,
			before: frozen.Kill, after: frozen.Start,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.before != nil {
				tt.before()
				defer tt.after()
			}
			// By way of a node that has to ask the leader.
			const patience = 10 * time.Second
			begun := time.Now()
			a := c.Node(2).Transfer(t.Context(), g, tt.to, patience)
			took := time.Since(begun)
			t.Logf("after %.2fs: %v", took.Seconds(), a)
			ok := a.Outcome == cluster.NotApplied && a.Why == tt.code
			if tt.works {
				ok = a.Status == http.StatusOK
			}
			if !ok || took > patience+time.Second {
				t.Errorf("after %v: %v, want %q", took, a, tt.code)
			}
			if err := put(t, c.Node(2), g, "key", []byte(tt.name)); err != nil {
				t.Error(err)
			}
			l.awaitApplied(t, 50)
		})
	}
	c.AwaitReady(startLimit)
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	if _, worst := l.tally.gaps(); worst.gap > standstill {
		t.Errorf("the group stood still for %v", worst.gap)
	}
	if r := raftOf(t, leader, g); r.Term != term || r.Role != "leader" {
		t.Errorf("node 1 led at term %d, and is a %s at term %d", term, r.Role, r.Term)
	}
	verifyHashes(t, c.Nodes()[:4], []raftyard.GroupID{g})
}
