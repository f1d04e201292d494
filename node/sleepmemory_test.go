package node

import (
	"testing"
)

// TestSleepersKeepNothingInMemory: what a replica has kept while it was awake it lets go of
// when it sleeps, and it has all that it needs when it wakes.
func TestSleepersKeepNothingInMemory(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	for range 2 {
		c.add(1, 1, "a")
		c.asleep(3)
		for id, n := range c.nodes {
			r := n.replica(1)
			first, last := r.log.Bounds()
			before := n.store.Stats()
			if es, err := r.log.Entries(first, last+1, 1<<40); err != nil || len(es) == 0 {
				t.Fatalf("node %d: %d entries, %v", id, len(es), err)
			}
			if after := n.store.Stats(); after.CacheMisses == before.CacheMisses {
				t.Errorf("node %d: entries are still in memory", id)
			}
			onWorker(r, func() {
				if r.peers != nil || r.reads != nil {
					t.Errorf("node %d keeps %v, %v", id, r.peers, r.reads)
				}
			})
		}
	}
	c.wantWords(2, 1, "a", "a")
}
