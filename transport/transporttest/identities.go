package transporttest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// refused sends from a node to another, which is the acceptor or is believed to
// be, until it learns that its connection is refused, and checks the reason at
// both ends, and that nothing has come through.
func (n *node) refused(
	t *testing.T, to raftyard.NodeID, acceptor *node, code transport.RefusalCode,
) {
	t.Helper()
	n.learnsRefusal(t, to, code)
	eventually(t, "the acceptor counts it", func() bool {
		return acceptor.Stats().HandshakesRefused[code.String()] > 0
	})
	if got := len(acceptor.got()); got != 0 {
		t.Errorf("the acceptor has got %d envelopes", got)
	}
}

// learnsRefusal sends to a node until it learns that its connection is refused.
func (n *node) learnsRefusal(t *testing.T, to raftyard.NodeID, code transport.RefusalCode) {
	t.Helper()
	refusal := func() *transport.RefusalError {
		peers := n.Peers()
		for i := range peers {
			ref, ok := errors.AsType[*transport.RefusalError](peers[i].LastError)
			if ok && peers[i].Node == to {
				return ref
			}
		}
		return nil
	}
	eventually(t, "the dialler learns that it is refused", func() bool {
		n.Send([]transport.Envelope{message(raftpb.MsgApp, n.id, to, 1)})
		ref := refusal()
		if ref != nil && ref.Code != code {
			t.Fatalf("the dialler is refused for %v, want %v", ref, code)
		}
		return ref != nil
	})
	_, err := n.Request(t.Context(), to, 1, nil)
	if !errors.Is(err, transport.ErrUnreachable) {
		t.Errorf("Request = %v, want ErrUnreachable", err)
	}
}

func testWrongCluster(t *testing.T, c *cluster) {
	a := c.add(1)
	b := c.add(2, func(cfg *transport.Config) { cfg.Cluster = uuid.UUID{1} })
	a.refused(t, 2, b, transport.RefusedCluster)
	b.refused(t, 1, a, transport.RefusedCluster)
}

func testWrongNode(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	c.enter(3, b.Addr().String())
	a.refused(t, 3, b, transport.RefusedWrongNode)
}

func testItself(t *testing.T, c *cluster) {
	a := c.add(1)
	c.enter(2, a.Addr().String())
	a.refused(t, 2, a, transport.RefusedSelf)
}

func testClone(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	// It is connected only by what it has been dialled for.
	if _, err := b.Request(t.Context(), 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	clone := c.addUnlisted(1, func(cfg *transport.Config) { cfg.Store = uuid.UUID{9} })
	clone.refused(t, 2, b, transport.RefusedClone)
	// Nor is it taken for the original when the address leads to it.
	c.enter(1, clone.Addr().String())
	eventually(t, "the original is connected to still", func() bool {
		_, err := a.Request(t.Context(), 2, 1, nil)
		return err == nil
	})
	// One that runs under the node's own id is refused as well.
	c.enter(2, a.Addr().String())
	clone.refused(t, 2, a, transport.RefusedClone)
}

func testCopyOfTheSameStart(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	if _, err := a.Request(t.Context(), 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	c.addUnlisted(1).refused(t, 2, b, transport.RefusedClone)
}

func testOlderStart(t *testing.T, c *cluster) {
	b := c.add(2)
	boot := func(n uint64) func(*transport.Config) {
		return func(cfg *transport.Config) { cfg.Boot = n }
	}
	a := c.addUnlisted(1, boot(5))
	if _, err := a.Request(t.Context(), 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	a.stop()
	c.addUnlisted(1, boot(4)).refused(t, 2, b, transport.RefusedStale)
}

// testAdmit checks that either side of a handshake asks whether the other is wanted.
func testAdmit(t *testing.T, c *cluster) {
	b := c.add(2, func(cfg *transport.Config) {
		cfg.Admit = func(peer transport.Identity) *transport.RefusalError {
			if peer.Boot < 7 {
				return &transport.RefusalError{Code: transport.RefusedStale, Text: "noted at 7"}
			}
			return nil
		}
	})
	boot := func(n uint64) func(*transport.Config) {
		return func(cfg *transport.Config) { cfg.Boot = n }
	}
	old := c.addUnlisted(1, boot(6))
	old.refused(t, 2, b, transport.RefusedStale)
	c.enter(1, old.Addr().String())
	_, err := b.Request(t.Context(), 1, 1, nil)
	ref, ok := errors.AsType[*transport.RefusalError](err)
	if !ok || ref.Code != transport.RefusedStale {
		t.Fatalf("a dialler that is asked got %v", err)
	}
	old.stop()
	if _, err := c.addUnlisted(1, boot(7)).Request(t.Context(), 2, 1, nil); err != nil {
		t.Fatal(err)
	}
}

// testRestart checks that a node comes back at once when it was started anew, and that
// the process before it stays out.
func testRestart(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	connectRaft(t, a, b)
	connectRaft(t, b, a)
	boot := func(n uint64) func(*transport.Config) {
		return func(cfg *transport.Config) { cfg.Boot = n }
	}
	a.stop()
	later := c.addUnlisted(1, boot(2))
	connectRaft(t, later, b)
	c.addUnlisted(1, boot(1)).learnsRefusal(t, 2, transport.RefusedStale)
}

// testCopyOfARunningDirectory starts a copy of a directory whose node runs. It is a
// later start of the same directory, as the node itself would be after a restart, and
// yet must not take the node's place.
func testCopyOfARunningDirectory(t *testing.T, c *cluster) {
	var mu sync.Mutex
	asked := make(map[uint64]bool)
	a := c.add(1)
	b := c.add(2, func(cfg *transport.Config) {
		cfg.Admit = func(peer transport.Identity) *transport.RefusalError {
			mu.Lock()
			defer mu.Unlock()
			asked[peer.Boot] = true
			return nil
		}
	})
	connectRaft(t, a, b)
	connectRaft(t, b, a)
	before := a.Peers()[0].Connects
	copied := c.addUnlisted(1, func(cfg *transport.Config) { cfg.Boot = 2 })
	copied.learnsRefusal(t, 2, transport.RefusedClone)
	c.enter(1, copied.Addr().String())
	eventually(t, "the node is heard as before", func() bool {
		_, err := a.Request(t.Context(), 2, 1, nil)
		return err == nil
	})
	if got := a.Peers()[0]; !got.Up || got.Connects != before {
		t.Errorf("the node was thrown out: %+v", got)
	}
	mu.Lock()
	if asked[2] {
		t.Error("the program was asked about a process that is in nobody's place")
	}
	mu.Unlock()
	a.stop()
	connectRaft(t, copied, b)
}

// testNoLongerAdmitted has a node learn that a peer that is connected is not wanted.
func testNoLongerAdmitted(t *testing.T, c *cluster) {
	var unwanted atomic.Bool
	a := c.add(1)
	b := c.add(2, func(cfg *transport.Config) {
		cfg.Admit = func(transport.Identity) *transport.RefusalError {
			if unwanted.Load() {
				return &transport.RefusalError{Code: transport.RefusedReplaced, Text: "learned"}
			}
			return nil
		}
	})
	connectRaft(t, a, b)
	connectRaft(t, b, a)
	for _, n := range []*node{a, b} {
		if _, err := n.Request(t.Context(), 3-n.id, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	unwanted.Store(true)
	for _, n := range []*node{a, b} {
		eventually(t, "the connection is closed and refused", func() bool {
			st := n.Peers()[0]
			ref, ok := errors.AsType[*transport.RefusalError](st.LastError)
			_, err := n.Request(t.Context(), st.Node, 1, nil)
			return !st.Up && ok && ref.Code == transport.RefusedReplaced && err != nil
		})
	}
	unwanted.Store(false)
	connectRaft(t, a, b)
}
