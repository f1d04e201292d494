package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestNobodyFollowsWhoHasCaughtUp: the log is kept for a member that was sent a snapshot until it
// has caught up, and not until the log is cut the next time. It may be gone by then, and would
// have the log kept for as long as it is away.
func TestNobodyFollowsWhoHasCaughtUp(t *testing.T) {
	c := newCluster(t, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	c.add(1, 1, "first")
	away := c.leader(1)%3 + 1
	leader := c.leader(1)
	c.close(away)
	for i := range 60 {
		c.add(leader, 1, fmt.Sprint("word ", i))
	}
	c.eventually("the leader has cut its log", func() bool {
		st, err := c.nodes[leader].RaftStatus(t.Context(), 1)
		return err == nil && st.First > 20
	})
	c.open(away, nil)
	c.eventually("it has caught up by a snapshot", func() bool {
		return c.nodes[away].Metrics().SnapshotsInstalled > 0 &&
			slices.Equal(c.stale(away, 1), c.words(leader, 1))
	})
	c.eventually("the leader keeps nothing for it", func() bool {
		var count int
		r := c.nodes[leader].replica(1)
		onWorker(r, func() { count = len(r.behind) })
		return count == 0
	})
	c.close(away)
	for i := range 40 {
		c.add(leader, 1, fmt.Sprint("more ", i))
	}
	c.eventually("the log is cut beyond what it has", func() bool {
		st, err := c.nodes[leader].RaftStatus(t.Context(), 1)
		return err == nil && st.First > 70
	})
}
