package node

import (
	"fmt"
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

// Those that have joined are in nobody's configuration: when all nodes come back at other
// addresses, only they themselves can tell where they are, to those that they reach.
// Without them there is no majority. If the one that both of them reach cannot lead, since
// it was down when something was decided, they need each other: it has to tell them.
func TestAllNodesMovedWhereSomeHaveJoined(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind=%t", behind), func(t *testing.T) {
			testMovedWhereSomeHaveJoined(t, behind)
		})
	}
}

func testMovedWhereSomeHaveJoined(t *testing.T, behind bool) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	for _, id := range nodeIDs(4, 5) {
		c.joiner(id)
		c.put(id)
	}
	// Those who come back must know it, or the others are a majority of those they know of.
	for _, id := range nodeIDs(1, 3, 4, 5) {
		c.eventually("five nodes vote", func() bool {
			return c.systemIs(id, nodeIDs(1, 2, 3, 4, 5), nil)
		})
	}
	if behind {
		c.close(3)
		c.decideWithout3()
	}
	c.closeAll()
	clear(c.nodes)
	moved := make(map[raftyard.NodeID]net.Listener)
	for _, id := range nodeIDs(3, 4, 5) { // the others stay away
		if id == 3 {
			moved[id] = c.move(id)
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		moved[id], c.addrs[id] = l, l.Addr().String()
	}
	for _, id := range nodeIDs(3, 4, 5) {
		c.open(id, moved[id])
	}
	c.awaitReady(3, 4, 5)
	c.eventually("everybody knows where the others are", func() bool {
		for _, id := range nodeIDs(3, 4, 5) {
			rec, _ := c.nodes[4].registry.Node(id)
			if rec.Peer != moved[id].Addr().String() {
				return false
			}
		}
		return true
	})
}

// decideWithout3 has the registry decide something that nodes 4 and 5 know.
func (c *cluster) decideWithout3() {
	c.t.Helper()
	spec := NodeSpec{ID: 9, Peer: "127.0.0.1:9"}
	if _, err := c.nodes[4].PutNode(c.t.Context(), spec); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the others know it", func() bool {
		_, four := c.nodes[4].registry.Node(9)
		_, five := c.nodes[5].registry.Node(9)
		return four && five
	})
}

func TestWhereabouts(t *testing.T) {
	var w whereabouts
	current, other, third := raftyard.StoreID{1}, raftyard.StoreID{2}, raftyard.StoreID{3}
	if got := w.addr(4); got != "" {
		t.Errorf("nobody has told, and it is at %q", got)
	}
	for _, step := range []struct {
		store raftyard.StoreID
		boot  uint64
		addr  string
		want  string
	}{
		{other, 7, "a", "a"},
		{third, 2, "b", "b"},
		{current, 3, "c", "c"},
		{other, 8, "a", "c"}, // of a directory that is not the node's any more
		{current, 2, "d", "c"},
		{current, 4, "e", "e"},
	} {
		w.heard(whereabout{Node: 4, Store: step.store, Boot: step.boot, Addr: step.addr}, current)
		if got := w.addr(4); got != step.want {
			t.Errorf("after %+v: %q", step, got)
		}
	}
}
