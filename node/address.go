package node

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// A request may arrive long after it was sent: from the buffers of a machine that stood
// still, or of a connection that its sender has given up. By then the group may be
// deleted, and its id another one's. So what has an effect in a group, or shows its state,
// names the incarnation, as a message of raft does, and is refused by any other.

// address says for which group a request is.
type address struct {
	group raftyard.GroupID

	// incarnation is the only one that may serve it. Zero: the one that is here, for what
	// does not come from another node.
	incarnation raftyard.Incarnation
}

// here is the address of a request that comes from this process.
func here(g raftyard.GroupID) address { return address{group: g} }

// address returns that of a group for a request to another node, with the incarnation that
// this node knows. If that is an old one the request is refused, and had no effect.
func (n *Node) address(g raftyard.GroupID) (address, error) {
	at := address{group: g}
	if g == raftyard.SystemGroup {
		at.incarnation = n.systemIncarnation()
		return at, nil
	}
	rec, ok := n.registry.Group(g)
	r := n.replica(g)
	switch {
	case ok && !rec.Deleted:
		at.incarnation = rec.Incarnation
	case r != nil: // the registry is not read yet, or the replica is about to go
		at.incarnation = r.incarnation
	default:
		return at, fmt.Errorf("group %d: %w: it is not known which one is meant", g, ErrNoReplica)
	}
	return at, nil
}

func (at address) append(b []byte) []byte {
	return wire.AppendID(wire.AppendUvarint(b, uint64(at.group)), at.incarnation)
}

// readAddress reads what append has written. Without an incarnation it fails.
func readAddress(r *wire.Reader) address {
	at := address{group: raftyard.GroupID(r.Uvarint()), incarnation: r.ID()}
	if r.Err() == nil && at.incarnation.IsZero() {
		r.Fail("no incarnation")
	}
	return at
}

// address is that of the replica's group, for others that have a replica of it.
func (r *replica) address() address {
	return address{group: r.group, incarnation: r.incarnation}
}

// servingAt is [Node.serving] for an address. Of the system group there is one incarnation
// for ever, and who is configured with another one has to be told by whom it speaks to.
func (n *Node) servingAt(at address) (*replica, error) {
	r, err := n.serving(at.group)
	if err != nil {
		return nil, err
	}
	if !at.incarnation.IsZero() && r.incarnation != at.incarnation &&
		at.group != raftyard.SystemGroup {
		return nil, anotherIncarnation(at.group)
	}
	return r, nil
}

func anotherIncarnation(g raftyard.GroupID) error {
	return fmt.Errorf("group %d: %w: it is another incarnation", g, ErrNoReplica)
}
