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

// TestLateMessages takes a group from a node while another member hears nothing of it,
// and goes on asking the node for its vote. The node must not make a replica of those
// messages, not even if it was killed in the middle of the removal, or since.
func TestLateMessages(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		killed bool // in the middle of the removal
	}{{"removed", false}, {"killed while it is removed", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Config{Nodes: 4, Links: true})
			c.Start()
			const g = 1
			createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2, 3))
			leader, behind, removed := c.Node(1), c.Node(2), c.Node(3)
			for _, id := range []raftyard.GroupID{raftyard.SystemGroup, g} {
				cluster.Eventually(t, startLimit, "node 1 leads", func() error {
					return leader.Transfer(t.Context(), id, 1, 2*time.Second).Error()
				})
			}
			if err := put(t, leader, g, "first", []byte("value")); err != nil {
				t.Fatal(err)
			}
			old := raftOf(t, removed, g).Replica.Replica
			c.Network().Set(cluster.Condition{Cut: true},
				cluster.Between([]raftyard.NodeID{2}, []raftyard.NodeID{1, 4})...)
			members := client.Members{Voters: []raftyard.NodeID{1, 2, 4}}
			if a := leader.SetMembers(t.Context(), g, members, moveLimit); a.Error() != nil {
				t.Fatal(a)
			}
			if tt.killed {
				removed.Kill()
				removed.Start()
			}
			gone := func() error { return hasReplica(t, removed, g, members.Voters) }
			cluster.Eventually(t, moveLimit, "the replica is gone", gone)
			before := raftOf(t, leader, g)
			asked := awaitAsked(t, removed)
			span := cluster.Sized(2*time.Second, 30*time.Second)
			watchQuiet(t, leader, g, before, span, gone)
			removed.Kill()
			removed.Start()
			removed.AwaitReady(startLimit)
			asked += awaitAsked(t, removed)
			watchQuiet(t, leader, g, before, span, gone)
			if r := raftOf(t, behind, g); r.Role == "leader" || r.Epoch >= before.Epoch {
				t.Errorf("node 2 is a %s at epoch %d, though it has heard of nothing",
					r.Role, r.Epoch)
			}
			t.Logf("node 3 was sent %.0f messages for its replica that is gone", asked)

			c.Network().Heal()
			awaitPlaced(t, c.Nodes(), g, members.Voters)
			if err := put(t, behind, g, "last", []byte("value")); err != nil {
				t.Error(err)
			}
			watchQuiet(t, leader, g, before, time.Second, gone)
			readd(t, c, g, old)
			wantKeys(t, c, g, "first", "last")
			verifyHashes(t, c.Nodes(), []raftyard.GroupID{g})
			verifyDisks(t, c, placed{g: {1, 2, 3, 4}})
		})
	}
}

// awaitAsked waits until a node has been sent messages for replicas that it has not,
// and returns how many.
func awaitAsked(t *testing.T, n *cluster.Node) float64 {
	t.Helper()
	var asked float64
	cluster.Eventually(t, startLimit, "it is asked", func() error {
		var err error
		asked, err = n.Metric(t.Context(), "raftyard_messages_refused_total", `reason="no_replica"`)
		return cmp.Or(err, want(asked > 0, "nobody has asked it"))
	})
	return asked
}

// readd makes node 3 a member again, whose replica must be a new one.
func readd(t *testing.T, c *cluster.Cluster, g raftyard.GroupID, old raftyard.ReplicaID) {
	t.Helper()
	members := client.Members{Voters: []raftyard.NodeID{1, 2, 3, 4}}
	if a := c.Node(3).SetMembers(t.Context(), g, members, moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	awaitPlaced(t, c.Nodes(), g, members.Voters)
	if now := raftOf(t, c.Node(3), g).Replica.Replica; now <= old {
		t.Errorf("node 3 has replica %d; it had %d before", now, old)
	}
}
