//go:build unix

package test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestDroppedChange cuts a leader off just after it has begun a change of members that
// nobody else has heard of. The others change the members otherwise, and cut their logs,
// so that the old leader comes back by a snapshot. It must forget what it had begun: two
// parts of the cluster must never each have a majority.
func TestDroppedChange(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 5, Links: true})
	c.Start()
	const g = 1
	spec := kvGroup(1, 2, 3, 4, 5)
	spec.SnapshotEntries, spec.TrailingEntries = 20, 5
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
	w := watchLeaders(t, c.Nodes(), g)
	old, rest := c.Node(1), c.Nodes()[1:]
	for round := range cluster.Sized(1, 10) {
		// The system group is led by another, so that it goes on deciding.
		lead(t, old, g)
		lead(t, c.Node(2), raftyard.SystemGroup)
		dropChange(t, c, g, round)

		// Nobody else has begun what is decided; now something else is.
		one, four := ids([]*cluster.Node{old}), ids(rest)
		c.Network().Set(cluster.Condition{Cut: true}, cluster.Between(one, four)...)
		c.Network().Reset(cluster.Between(one, four)...)
		final := []raftyard.NodeID{1, 4, 5}
		cluster.Eventually(t, moveLimit, "the others change the members", func() error {
			m := client.Members{Voters: final}
			return c.Node(4).SetMembers(t.Context(), g, m, 5*time.Second).Error()
		})
		for _, key := range droppedKeys() {
			if err := put(t, c.Node(4), g, key, []byte("value")); err != nil {
				t.Fatal(err)
			}
		}
		pending := raftOf(t, old, g)
		c.Network().Heal()
		awaitPlaced(t, c.Nodes(), g, final)
		cluster.Eventually(t, settleLimit, "the old leader has caught up", func() error {
			r, err := old.Raft(t.Context(), g)
			return cmp.Or(err, want(r.First > pending.Last,
				"its log begins at %d; it ended at %d before", r.First, pending.Last))
		})
		halves(t, c, g)
		// As before, for the next round.
		all := client.Members{Voters: ids(c.Nodes())}
		if a := c.Node(1).SetMembers(t.Context(), g, all, moveLimit); a.Error() != nil {
			t.Fatal(a)
		}
	}
	w.check(t)
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{g})
	verifyDisks(t, c, placed{g: {1, 2, 3, 4, 5}})
}

// lead hands the leadership of a group to a node.
func lead(t *testing.T, n *cluster.Node, g raftyard.GroupID) {
	t.Helper()
	cluster.Eventually(t, startLimit, fmt.Sprintf("node %d leads", n.ID()), func() error {
		return n.Transfer(t.Context(), g, n.ID(), 2*time.Second).Error()
	})
}

// dropChange has node 1, which leads, begin a change to the members 1, 2 and 3, and cuts
// what it says before anybody hears of it.
func dropChange(t *testing.T, c *cluster.Cluster, g raftyard.GroupID, round int) {
	t.Helper()
	says := cluster.Towards([]raftyard.NodeID{1}, ids(c.Nodes()[1:]))
	before := raftOf(t, c.Node(1), g)
	c.Network().Set(cluster.Condition{Delay: 700 * time.Millisecond}, says...)
	decided := make(chan cluster.Answer, 1)
	go func() {
		m := client.Members{Voters: []raftyard.NodeID{1, 2, 3}}
		decided <- c.Node(2).SetMembers(t.Context(), g, m, 3*time.Second)
	}()
	cluster.Eventually(t, startLimit, "it has begun the change", func() error {
		r, err := c.Node(1).Raft(t.Context(), g)
		return cmp.Or(err, want(r.Last > before.Last, "its log ends at %d", r.Last))
	})
	c.Network().Set(cluster.Condition{Cut: true}, says...)
	a := <-decided
	r := raftOf(t, c.Node(1), g)
	t.Logf("round %d: %v; node 1 has %d entries that are not committed, epoch %d",
		round, a, r.Last-r.Commit, r.Epoch)
	if r.Last == r.Commit || r.Epoch != before.Epoch {
		t.Fatal("the change was not dropped in time; this shows nothing")
	}
}

// halves parts the cluster so that the members that were dropped, 1, 2 and 3, are on one
// side, and a majority of those that there are, 1, 4 and 5, on the other.
func halves(t *testing.T, c *cluster.Cluster, g raftyard.GroupID) {
	t.Helper()
	minor, major := c.Nodes()[:3], c.Nodes()[3:]
	links := cluster.Between(ids(minor), ids(major))
	c.Network().Set(cluster.Condition{Cut: true}, links...)
	c.Network().Reset(links...)
	for _, n := range major {
		cluster.Eventually(t, settleLimit, "the majority writes", func() error {
			return put(t, n, g, "major", []byte("value"))
		})
	}
	for _, n := range minor {
		a := n.Do(t.Context(), cluster.Request{
			Method: "PUT", Path: cluster.KeyPath(g, "minor"), Body: []byte("value"),
			Timeout: 2 * time.Second,
		})
		if a.Outcome == cluster.Applied {
			t.Errorf("node %d has written in a minority", n.ID())
		}
	}
	c.Network().Heal()
	cluster.Eventually(t, settleLimit, "all are together again", func() error {
		return put(t, c.Node(1), g, "major", []byte("value"))
	})
	there := make(map[string]bool)
	err := c.Node(2).List(t.Context(), g, client.Linearizable, func(item client.Item) {
		there[string(item.Key)] = true
	})
	if err != nil {
		t.Error(err)
	}
	for _, key := range append(droppedKeys(), "major") {
		if !there[key] {
			t.Errorf("key %s is acknowledged, and not there", key)
		}
	}
}

// droppedKeys are the keys that are written while the old leader is away.
func droppedKeys() []string {
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	return keys
}
