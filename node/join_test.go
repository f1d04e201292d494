package node

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// joiner opens a node that is not among the founding ones.
func (c *cluster) joiner(id raftyard.NodeID) *Node {
	c.t.Helper()
	if c.addrs == nil {
		c.addrs = make(map[raftyard.NodeID]string)
	}
	var l net.Listener
	if c.net == nil {
		var err error
		addr := c.addrs[id]
		if addr == "" {
			addr = "127.0.0.1:0"
		}
		if l, err = net.Listen("tcp", addr); err != nil {
			c.t.Fatal(err)
		}
		c.addrs[id] = l.Addr().String()
	}
	c.open(id, l)
	return c.nodes[id]
}

// put has the cluster let a joiner in.
func (c *cluster) put(id raftyard.NodeID) {
	c.t.Helper()
	spec := NodeSpec{ID: id, Peer: c.addrs[id], HTTP: fmt.Sprintf("h:%d", id)}
	if created, err := c.anyNode().PutNode(c.t.Context(), spec); err != nil || !created {
		c.t.Fatalf("PutNode = %t, %v", created, err)
	}
}

func (c *cluster) isReady(id raftyard.NodeID) bool {
	ready, _ := c.nodes[id].Ready()
	return ready
}

// awaitReady waits until nodes are ready.
func (c *cluster) awaitReady(ids ...raftyard.NodeID) {
	c.t.Helper()
	c.eventually("the nodes are ready", func() bool {
		return !slices.ContainsFunc(ids, func(id raftyard.NodeID) bool { return !c.isReady(id) })
	})
}

// system returns the members of the system group as a node knows them.
func (c *cluster) system(id raftyard.NodeID) group.Descriptor {
	r := c.nodes[id].replica(raftyard.SystemGroup)
	if r == nil {
		return group.Descriptor{}
	}
	return r.view.Load().State.Descriptor
}

// systemIs reports whether the system group has just these members, as a node knows.
func (c *cluster) systemIs(id raftyard.NodeID, voters, learners []raftyard.NodeID) bool {
	return reachedWant(c.system(id), group.Want{
		Voters: slices.Clone(voters), Learners: slices.Clone(learners),
	})
}

func nodeIDs(list ...raftyard.NodeID) []raftyard.NodeID { return list }

// TestNodeJoins starts a node first, which waits, and lets it in then.
func TestNodeJoins(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "before")
	n := c.joiner(4)
	c.eventually("the node says what it waits for", func() bool {
		_, checks := n.Ready()
		return strings.Contains(checks[2].Detail, `PUT /v1/nodes/4 {"peer": "`+c.addrs[4]+`"`)
	})
	if _, err := n.PutNode(t.Context(), NodeSpec{ID: 4, Peer: c.addrs[4]}); !NotApplied(err) ||
		!errors.Is(err, ErrNotReady) {
		t.Errorf("PutNode at a node that is no member = %v, want ErrNotReady", err)
	}
	if _, ok := c.nodes[1].registry.Node(4); ok {
		t.Fatal("the node has let itself in")
	}
	c.put(4)
	c.awaitReady(4)
	rec, _ := c.nodes[4].registry.Node(4)
	if rec.Peer != c.addrs[4] || rec.Store != n.ownStore() || rec.Boot != 1 {
		t.Errorf("the node is registered as %+v", rec)
	}
	c.eventually("it is a learner of the system group", func() bool {
		return c.systemIs(1, nodeIDs(1, 2, 3), nodeIDs(4))
	})
	want := Members{Voters: nodeIDs(2, 3, 4)}
	if _, err := n.SetMembers(t.Context(), 1, want, true); err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	c.add(4, 1, "after")
	c.wantWords(4, 1, "before", "after")

	// A restart needs nothing else.
	c.close(4)
	c.joiner(4)
	c.awaitReady(4)
	c.wantWords(4, 1, "before", "after")
}

// TestFiveVoters lets two nodes in that have not been started. They become members when
// it is known which data directories they have.
func TestFiveVoters(t *testing.T) {
	c := newCluster(t, 3)
	c.addrs = map[raftyard.NodeID]string{4: freeAddr(t), 5: freeAddr(t)}
	c.put(4)
	c.put(5)
	c.joiner(4)
	c.awaitReady(4)
	if !c.systemIs(1, nodeIDs(1, 2, 3), nodeIDs(4)) {
		t.Errorf("an even number of voters, or a member that is nowhere: %+v", c.system(1).Members)
	}
	c.joiner(5)
	c.awaitReady(5)
	c.eventually("five vote", func() bool {
		return c.systemIs(5, nodeIDs(1, 2, 3, 4, 5), nil)
	})
	// Two of the founding nodes are not needed any more.
	c.close(1)
	c.close(2)
	c.create(1, 3, 4, 5)
	c.add(4, 1, "a")
	c.wantWords(5, 1, "a")
}

// freeAddr returns an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestWrongFoundingNodes: a node that lists itself among the founding ones founds a
// cluster that is none, and says so.
func TestWrongFoundingNodes(t *testing.T) {
	c := newCluster(t, 3)
	addr := freeAddr(t)
	cfg := c.config(4, nil)
	cfg.Listen, cfg.Advertise = addr, Peer{}
	cfg.Peers = append(slices.Clone(c.peers), Peer{ID: 4, Addr: addr})
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[4] = n
	c.addrs = map[raftyard.NodeID]string{4: addr}
	c.put(4)
	c.eventually("the node says what is wrong", func() bool {
		_, checks := n.Ready()
		return strings.Contains(checks[2].Detail, "founding nodes [1 2 3 4]")
	})
	c.close(4)
	cfg = c.config(4, nil)
	cfg.Listen = addr
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrInvalid) {
		t.Errorf("Open with the right list in the wrong directory = %v, want ErrInvalid", err)
	}
}

// TestAddressOfOperator: what the operator says counts until the node says otherwise.
func TestAddressOfOperator(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	spec := NodeSpec{ID: 2, Peer: freeAddr(t), Labels: map[string]string{"zone": "b"}}
	created, err := c.nodes[1].PutNode(t.Context(), spec)
	if err != nil || created {
		t.Fatalf("PutNode = %t, %v, want the node to be known", created, err)
	}
	c.eventually("node 3 knows", func() bool {
		rec, _ := c.nodes[3].registry.Node(2)
		return rec.Peer == spec.Peer && rec.Labels["zone"] == "b" && !rec.Store.IsZero()
	})
	c.close(2)
	c.open(2, nil)
	c.awaitReady(2)
	c.eventually("the node has said where it is", func() bool {
		rec, _ := c.nodes[2].registry.Node(2)
		return rec.Peer == c.peers[1].Addr && rec.Boot == 2 && rec.Labels["zone"] == "b"
	})
	for _, bad := range []NodeSpec{
		{ID: 0, Peer: "h:1"},
		{ID: raftyard.MaxNodeID + 1, Peer: "h:1"},
		{ID: 9},
		{ID: 9, Peer: "a b"},
		{ID: 9, Peer: "h:1", HTTP: "h:1"},
		{ID: 9, Peer: c.peers[0].Addr},
		{ID: 9, Peer: "h:1", HTTP: c.peers[0].Addr},
		{ID: 2, Peer: c.peers[2].Addr},
		{ID: 2, Peer: "h:1", HTTP: c.peers[2].Addr},
	} {
		if _, err := c.nodes[1].PutNode(t.Context(), bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("PutNode(%+v) = %v, want ErrInvalid", bad, err)
		}
	}
	// One that moves may be quicker than the one that has moved away from there.
	c.close(3)
	c.eventually("node 3 is away", func() bool { return !c.nodes[1].liveNodes()[3] })
	spec = NodeSpec{ID: 2, Peer: c.peers[2].Addr}
	if _, err := c.nodes[1].PutNode(t.Context(), spec); err != nil {
		t.Errorf("PutNode at the address of a node that is away: %v", err)
	}
}
