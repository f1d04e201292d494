//go:build unix

package test

import (
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestMemberThatNeverStarts gives a group of one member another one, whose node never
// runs. That must be refused, and if it is forced the group must go on, and it must be
// possible to take it back.
func TestMemberThatNeverStarts(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 4})
	for _, n := range c.Nodes()[:3] {
		n.Start()
	}
	c.AwaitReady(startLimit)
	const g = 1
	createGroups(t, c.Nodes()[:3], []raftyard.GroupID{g}, kvGroup(1))
	alone := []raftyard.NodeID{1}

	// A node that is not known at all.
	a := c.Node(2).SetMembers(
		t.Context(), g, client.Members{Voters: []raftyard.NodeID{1, 9}}, time.Second)
	if a.Outcome != cluster.NotApplied || a.Why != client.CodeInvalid {
		t.Errorf("node 9 is to be a member: %v, want %s", a, client.CodeInvalid)
	}
	asked := c.Nodes()[:3]
	if testing.Short() {
		asked = asked[1:2]
	}
	for i, n := range asked {
		m := client.Members{Voters: []raftyard.NodeID{1, 4}}
		a = n.SetMembers(t.Context(), g, m, time.Second)
		if a.Outcome != cluster.NotApplied || a.Why != client.CodeUnhealthy {
			t.Errorf("node 4 is to be a member: %v, want %s", a, client.CodeUnhealthy)
		}
		m.Force = true
		a = n.SetMembers(t.Context(), g, m, time.Second)
		if a.Outcome != cluster.Unknown || a.Why != client.CodeNotReached {
			t.Errorf("node 4 is to be a member all the same: %v, want it decided, and not "+
				"reached", a)
		}
		begun := time.Now()
		other := c.Nodes()[(i+1)%3]
		if err := put(t, other, g, "key", []byte("value")); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > standstill {
			t.Errorf("a write took %v", took)
		}
		begun = time.Now()
		a = n.SetMembers(t.Context(), g, client.Members{Voters: alone}, moveLimit)
		if a.Error() != nil {
			t.Fatalf("take the member back that never was there: %v", a)
		}
		t.Logf("taken back in %.2fs", time.Since(begun).Seconds())
		awaitPlaced(t, c.Nodes()[:3], g, alone)
	}
	if err := put(t, c.Node(3), g, "last", []byte("value")); err != nil {
		t.Error(err)
	}
	verifyDisks(t, c, placed{g: alone})
}
