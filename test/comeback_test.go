//go:build unix

package test

import (
	"cmp"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestComesBackUnheard takes a group away from a node that is cut off, and gives it
// back before the node can have heard of it. The node hears of both at once: its old
// replica must go, and the new one must come.
func TestComesBackUnheard(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{Nodes: 4, Links: true})
	c.Start()
	groups := groupIDs(4)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	away, rest := c.Node(3), []*cluster.Node{c.Node(1), c.Node(2), c.Node(4)}
	old := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for _, g := range groups {
		if err := put(t, c.Node(1), g, "key", []byte(g.String())); err != nil {
			t.Fatal(err)
		}
		old[g] = raftOf(t, away, g).Replica.Replica
	}
	for range cluster.Sized(1, 5) {
		for _, g := range append([]raftyard.GroupID{raftyard.SystemGroup}, groups...) {
			cluster.Eventually(t, startLimit, "node 1 leads", func() error {
				return c.Node(1).Transfer(t.Context(), g, 1, 2*time.Second).Error()
			})
		}
		c.Network().Set(cluster.Condition{Cut: true},
			cluster.Between(ids([]*cluster.Node{away}), ids(rest))...)
		members := client.Members{Voters: []raftyard.NodeID{1, 2, 4}}
		for _, g := range groups {
			if a := c.Node(1).SetMembers(t.Context(), g, members, moveLimit); a.Error() != nil {
				t.Fatal(a)
			}
		}
		// Only decided: a voter that is cut off cannot catch up.
		members.Voters = []raftyard.NodeID{1, 2, 3}
		for _, g := range groups {
			a := c.Node(1).SetMembers(t.Context(), g, members, time.Second)
			if a.Outcome != cluster.Unknown || a.Why != client.CodeNotReached {
				t.Fatalf("group %d is to have a member that is cut off: %v", g, a)
			}
		}
		c.Network().Heal()
		for _, g := range groups {
			cluster.Eventually(t, moveLimit, "the node is a member again", func() error {
				return cmp.Or(
					hasMembers(t, away, g, members.Voters),
					hasReplica(t, away, g, members.Voters),
				)
			})
			now := raftOf(t, away, g).Replica.Replica
			if now <= old[g] {
				t.Errorf("group %d: replica %d on node 3 again after it was removed; it was %d",
					g, now, old[g])
			}
			old[g] = now
		}
	}
	for _, g := range groups {
		wantKeys(t, c, g, "key")
	}
	verifyHashes(t, c.Nodes()[:3], groups)
}
