package node

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// claims are messages for replicas that are not here, and may have to be made. A message
// alone makes none, and destroys none that is here under an earlier id: the id in it may be
// wrong, or of long ago. Its sender must say, when it is asked, that it has applied a
// membership in which the group has given this id to this node.
//
// There is at most one claim for a group. One that does not stand is dropped; its sender
// comes again.
type claims struct {
	node *Node
	wake chan struct{}

	mu   sync.Mutex
	open map[raftyard.GroupID]*claim // those that are being asked about, too
}

type claim struct {
	creation

	from raftyard.NodeID

	done chan struct{} // closed when it has been looked into
	// falls: its sender has answered, and says nothing of the kind. Otherwise the replica is
	// made as soon as it can be, or the sender could not be asked. Written before done is
	// closed.
	falls bool
}

// isFor reports whether it is what an envelope claims.
func (cl *claim) isFor(env *transport.Envelope) bool {
	return cl.from == env.From.Node && cl.incarnation == env.Incarnation &&
		cl.id == env.To.Replica
}

const (
	// maxClaims bounds the claims that are open at the same time. More are dropped; the
	// messages come again.
	maxClaims = 4096
	// claimsAtOnce is about how many claims others are asked at the same time.
	claimsAtOnce = 64
)

func newClaims(n *Node) *claims {
	return &claims{
		node: n, wake: make(chan struct{}, 1), open: make(map[raftyard.GroupID]*claim),
	}
}

// add takes a claim up and returns the one that there is for the group then, nil if there was
// no room. It never waits.
func (c *claims) add(env *transport.Envelope) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl, known := c.open[env.Group]; known {
		return cl
	}
	if len(c.open) >= maxClaims {
		c.node.metrics.messagesDropped.Add(1)
		return nil
	}
	cl := &claim{creation: creation{
		group: env.Group, incarnation: env.Incarnation, id: env.To.Replica,
	}, from: env.From.Node, done: make(chan struct{})}
	c.open[env.Group] = cl
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return cl
}

// run looks into claims until the node stops.
func (c *claims) run() {
	n := c.node
	for {
		if _, from := await(n.world, c.wake, n.running.Done(), nil); from != fromValues {
			return
		}
		c.lookAll(n.running)
	}
}

// lookAll looks into all claims that are open.
func (c *claims) lookAll(ctx context.Context) {
	each(c.node.world, "ask about a claim", claimsAtOnce, c.all(), func(cl *claim) {
		c.look(ctx, cl)
	})
}

func (c *claims) all() []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*claim, 0, len(c.open))
	for _, g := range slices.Sorted(maps.Keys(c.open)) {
		list = append(list, c.open[g])
	}
	return list
}

// look asks the sender, and hands the claim on if it stands.
func (c *claims) look(ctx context.Context, cl *claim) {
	ctx, cancel := c.node.world.withTimeout(ctx, askPatience)
	defer cancel()
	q := question{group: cl.group, incarnation: cl.incarnation}
	st, err := c.node.askHolding(ctx, cl.from, q)
	stands := err == nil && st.gives(cl.id, c.node.cfg.ID, c.node.ownStore())
	cl.falls = err == nil && !stands
	c.mu.Lock()
	delete(c.open, cl.group)
	c.mu.Unlock()
	if stands {
		cl.vouched = st
		c.node.lifecycle.create(cl.creation)
	} else {
		c.node.metrics.messagesRefused.Add(1)
	}
	close(cl.done)
}

// gives reports whether the replica that answers has applied a membership in which the
// group has given a replica id to a node, and to no other directory of it.
func (st *holding) gives(id raftyard.ReplicaID, to raftyard.NodeID, own raftyard.StoreID) bool {
	return slices.ContainsFunc(st.Members, func(m MemberStatus) bool {
		return m.Replica == id && m.Node == to && (m.Store == "" || m.Store == own.String())
	})
}

// proves reports whether the answer shows that a replica that is at an epoch is removed.
func (st *holding) proves(id raftyard.ReplicaID, at uint64) (epoch uint64, proven bool) {
	member := slices.ContainsFunc(st.Members, func(m MemberStatus) bool {
		return m.Replica == id
	})
	if st.Epoch > at && len(st.Members) > 0 && id < st.Next && !member {
		return st.Epoch, true
	}
	return 0, false
}
