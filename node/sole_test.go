package node

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestSoleFounderIsWiped wipes the node that has founded the cluster alone. It must not found
// it once more: whoever came to it then would find an empty cluster, and what that takes would
// be gone when the others replace it.
func TestSoleFounderIsWiped(t *testing.T) {
	c := newCluster(t, 1)
	c.soleAfter = soleAfter
	for _, id := range nodeIDs(2, 3) {
		c.joiner(id)
		c.put(id)
	}
	for _, id := range nodeIDs(1, 2, 3) {
		c.eventually("three vote", func() bool {
			return c.systemIs(id, nodeIDs(1, 2, 3), nil)
		})
	}
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.eventually("all is well", func() bool { return len(c.problems(2, 1)) == 0 })
	before := c.ids(1)
	c.close(1)
	c.wipe(1)
	c.open(1, nil)
	n := c.nodes[1]
	waits := false
	c.eventually("it is ready", func() bool {
		r := n.replica(raftyard.SystemGroup)
		if r != nil && r.id == before[0] && r.view.Load().Role == "leader" {
			t.Fatal("it has founded the cluster once more")
		}
		ready, checks := n.Ready()
		waits = waits || strings.Contains(checks[2].Detail, "wiped or replaced")
		return ready
	})
	if !waits {
		t.Error("it has not said what it waits for")
	}
	c.backInPlace(1, 2, before)
	c.wantWords(1, 1, "a")
}

// TestSoleFounderWithJoiners has nodes wait that nobody has let in, and that call the founder
// before it founds: they know nothing of it.
func TestSoleFounderWithJoiners(t *testing.T) {
	c := newCluster(t, 1)
	c.close(1)
	c.wipe(1)
	c.joiner(2)
	c.soleAfter = soleAfter
	c.open(1, nil)
	c.eventually("the joiner has called", func() bool {
		return len(c.nodes[1].founding.callers.all()) == 1
	})
	c.awaitReady(1)
	if _, known := c.nodes[1].registry.Node(2); known {
		t.Error("the joiner has let itself in")
	}
	c.put(2)
	c.awaitReady(2)
}
