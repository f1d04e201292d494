package node

import (
	"net"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// move gives a node another address in the configuration from here on, and
// returns the listener.
func (c *cluster) move(id raftyard.NodeID) net.Listener {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.peers = slices.Clone(c.peers)
	c.peers[id-1].Addr = l.Addr().String()
	return l
}

// A node that comes back at another address is known there by its own
// configuration only: the others find it because it tells them.
func TestMovedNodeIsFound(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	c.close(3)
	c.open(3, c.move(3))
	c.eventually("the moved node is ready", func() bool {
		ready, _ := c.nodes[3].Ready()
		return ready
	})
	c.add(3, 1, "after")
	c.wantWords(3, 1, "before", "after")
}

// When all nodes come back at other addresses, what is registered leads nowhere.
func TestAllNodesMoved(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	moved := make(map[raftyard.NodeID]net.Listener)
	for _, p := range c.peers {
		c.close(p.ID)
	}
	for _, p := range c.peers {
		moved[p.ID] = c.move(p.ID)
	}
	for _, p := range c.peers {
		c.open(p.ID, moved[p.ID])
	}
	c.add(2, 1, "after")
	c.wantWords(3, 1, "before", "after")
}
