package node

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestSharedHTTPAddress: users are told of one address in front of all nodes, by those that
// found the cluster and by one that joins.
func TestSharedHTTPAddress(t *testing.T) {
	const front = "front.example:80"
	c := newCluster(t, 0)
	var held []net.Listener
	for id := range raftyard.NodeID(3) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		c.peers = append(c.peers, Peer{ID: id + 1, Addr: l.Addr().String(), HTTP: front})
	}
	for i, l := range held {
		c.open(raftyard.NodeID(i+1), l)
	}
	c.awaitReady(1, 2, 3)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	cfg := c.config(4, l)
	cfg.Advertise = Peer{Addr: addr, HTTP: front}
	if c.nodes[4], err = Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	spec := NodeSpec{ID: 4, Peer: addr, HTTP: front}
	if _, err := c.nodes[1].PutNode(within(t, testTimeout), spec); err != nil {
		t.Fatal(err)
	}
	c.awaitReady(4)
	for _, rec := range c.nodes[4].registry.Nodes() {
		if rec.HTTP != front {
			t.Errorf("node %d is told to be at %q, want %q", rec.ID, rec.HTTP, front)
		}
	}
}

// TestMovedToAnAddressOfTheList: the list of founding nodes gives the address of a node that
// has moved to another one, which has moved as well. For a node without a directory that is a
// slip, and leaves none.
func TestMovedToAnAddressOfTheList(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	list := slices.Clone(c.peers)
	c.close(2)
	l := c.move(2)
	c.open(2, l)
	c.awaitReady(2)

	open := func(id raftyard.NodeID) (*Node, error) {
		cfg := c.config(id, nil)
		cfg.Peers, cfg.Listen = list, list[1].Addr
		cfg.Advertise = Peer{Addr: list[1].Addr}
		return Open(t.Context(), cfg)
	}
	for range 2 { // it stays a slip
		_, err := open(4)
		if err == nil || !strings.Contains(err.Error(), "is the peer address of node 2") {
			t.Fatalf("a node without a directory has begun at another's address: %v", err)
		}
	}
	c.close(3)
	n, err := open(3)
	if err != nil {
		t.Fatalf("a node that has moved does not start: %v", err)
	}
	c.nodes[3] = n
	c.awaitReady(3)
	c.add(3, 1, "after")
	c.wantWords(3, 1, "before", "after")
	c.eventually("the others have it at its new address", func() bool {
		rec, _ := c.nodes[1].registry.Node(3)
		return rec.Peer == list[1].Addr
	})
}

// TestAddressOfAnotherIsShown: a node that has joined tells the address of another one. It is
// not refused, but cannot be reached; it and the others say why until it tells its own.
func TestAddressOfAnotherIsShown(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.joiner(4)
	c.put(4)
	c.joiner(5)
	c.put(5)
	c.awaitReady(4, 5)
	c.close(5)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := l.Addr().String()
	c.addrs[5] = c.addrs[4]
	c.open(5, l)
	problem := func(at, id raftyard.NodeID) string {
		st, err := c.nodes[at].NodeStatus(within(t, testTimeout), id)
		if err != nil {
			return err.Error()
		}
		return st.Problem
	}
	want := "its peer address, " + c.addrs[4] + ", is that of node 4"
	for _, at := range nodeIDs(1, 4, 5) {
		c.eventually("node "+at.String()+" says whose address it has told", func() bool {
			return strings.Contains(problem(at, 5), want)
		})
	}
	if text := problem(1, 4); text != "" {
		t.Errorf("the node whose address it is has the problem %q", text)
	}
	c.close(5)
	c.addrs[5] = own
	c.joiner(5)
	c.awaitReady(5)
	c.eventually("nothing is wrong", func() bool { return problem(1, 5) == "" })
}

// TestSwappedAddresses: two nodes come back at each other's address.
func TestSwappedAddresses(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	c.close(2)
	c.close(3)
	c.peers = slices.Clone(c.peers)
	c.peers[1].Addr, c.peers[2].Addr = c.peers[2].Addr, c.peers[1].Addr
	c.open(2, nil)
	c.open(3, nil)
	c.awaitReady(2, 3)
	c.add(2, 1, "after")
	c.wantWords(3, 1, "before", "after")
	if err := errors.Join(c.nodes[2].Outside(), c.nodes[3].Outside()); err != nil {
		t.Error(err)
	}
}
