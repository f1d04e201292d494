package node

import (
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// TestStoresAreKnownAtOnce starts each node of a cluster again, alone. Its registry
// then holds what is certainly committed, which may be less than it had applied; whose
// directory is whose it must know before it hears anybody.
func TestStoresAreKnownAtOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.eventually("every node has noted the three", func() bool {
		for _, n := range c.nodes {
			for id := range raftyard.NodeID(3) {
				if n.noted.of(id + 1).IsZero() {
					return false
				}
			}
		}
		return true
	})
	for _, p := range c.peers {
		c.close(p.ID)
	}
	for _, p := range c.peers {
		c.open(p.ID, nil)
		n := c.nodes[p.ID]
		for _, other := range c.peers {
			if !n.foreignStore(other.ID, registry.Store{9}) {
				t.Errorf("node %d would take anybody for node %d", p.ID, other.ID)
			}
		}
		c.close(p.ID)
	}
}
