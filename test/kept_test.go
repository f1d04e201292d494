//go:build unix

package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestMembersSurvive kills all nodes just after a change of members was acknowledged, and
// starts them with the configuration that they had before, in which the group is to be
// created with its first members. The members must be the new ones, also if one of them had
// come by a snapshot, and majorities must be theirs.
func TestMembersSurvive(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name     string
		snapshot bool
	}{{"by the log", false}, {"by a snapshot", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Config{Nodes: 4})
			const g = 1
			spec := kvGroup(1, 2, 3)
			if tt.snapshot {
				spec.SnapshotEntries, spec.TrailingEntries = 20, 5
			}
			// Each start finds the first members in the configuration.
			for _, n := range c.Nodes() {
				n.Configure("nodes:\n", fmt.Sprintf("groups:\n  - {id: %d, kind: %s, "+
					"voters: [1, 2, 3], snapshot_entries: %d, trailing_entries: %d}\nnodes:\n",
					g, spec.Kind, spec.SnapshotEntries, spec.TrailingEntries))
			}
			c.Start()
			createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
			awaitPlaced(t, c.Nodes(), g, spec.Voters)
			for i := range 100 {
				key := fmt.Sprintf("key-%03d", i)
				if err := put(t, c.Nodes()[i%4], g, key, []byte("value")); err != nil {
					t.Fatal(err)
				}
			}
			others := []raftyard.NodeID{2, 3, 4}
			for round := range cluster.Sized(2, 20) {
				voters := others
				if round%2 == 1 {
					voters = []raftyard.NodeID{1, 2, 3}
				}
				setThenKillAll(t, c, g, voters)
			}
			setThenKillAll(t, c, g, others)
			if tt.snapshot {
				if r := raftOf(t, c.Node(4), g); r.First == 1 {
					t.Errorf("node 4 has the whole log: it has not come by a snapshot")
				}
				a := c.Node(2).Snapshot(t.Context(), g, 10*time.Second)
				if a.Error() != nil {
					t.Error(a)
				}
				c.Kill(c.Nodes()...)
				c.Start()
				awaitPlaced(t, c.Nodes(), g, others)
			}
			majorities(t, c, g)
			verifyHashes(t, c.Nodes()[1:], []raftyard.GroupID{g})
			verifyDisks(t, c, placed{g: others})
		})
	}
}

// setThenKillAll changes the members of a group, kills all nodes as soon as that is
// acknowledged, and starts them.
func setThenKillAll(
	t *testing.T, c *cluster.Cluster, g raftyard.GroupID, voters []raftyard.NodeID,
) {
	t.Helper()
	a := c.Node(1).SetMembers(t.Context(), g, client.Members{Voters: voters}, moveLimit)
	acked := time.Now()
	c.Kill(c.Nodes()...)
	t.Logf("all killed %.1f ms after %v was acknowledged",
		float64(time.Since(acked).Microseconds())/1000, voters)
	if a.Error() != nil {
		t.Fatal(a)
	}
	c.Start()
	awaitPlaced(t, c.Nodes(), g, voters)
}

// majorities checks that a group with the members 2, 3 and 4 goes on with two of them,
// and does not with one, whatever else there is.
func majorities(t *testing.T, c *cluster.Cluster, g raftyard.GroupID) {
	t.Helper()
	c.Kill(c.Node(3), c.Node(4))
	for _, n := range c.Nodes()[:2] {
		a := n.Do(t.Context(), cluster.Request{
			Method: "PUT", Path: cluster.KeyPath(g, "minority"), Body: []byte("value"),
			Timeout: 3 * time.Second,
		})
		if a.Outcome == cluster.Applied {
			t.Errorf("node %d has written with one of three members", n.ID())
		}
	}
	c.Node(3).Start()
	c.Node(4).Start()
	c.AwaitReady(startLimit)
	c.Kill(c.Node(1), c.Node(2))
	for _, n := range c.Nodes()[2:] {
		if err := put(t, n, g, "majority", []byte("value")); err != nil {
			t.Error(err)
		}
	}
	c.Node(1).Start()
	c.Node(2).Start()
	c.AwaitReady(startLimit)
}
