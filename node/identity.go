package node

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// A data directory that was wiped, or put in the place of another, has forgotten
// the votes and entries that its node has vouched for. The registry knows which
// directory a node has, and nobody listens to a node that comes with another.

// ownStore is the id of this node's data directory.
func (n *Node) ownStore() registry.Store { return registry.Store(n.store.Identity().Store) }

// foreignStore reports whether a node is known with another data directory.
func (n *Node) foreignStore(id raftyard.NodeID, store registry.Store) bool {
	rec, ok := n.registry.Node(id)
	return ok && !mutant.On(mutant.WipedVotes) && !rec.Store.IsZero() && rec.Store != store
}

// accept returns why nothing is taken from a peer, or nil.
func (n *Node) accept(from transport.Identity) error {
	if !n.isOpen() {
		return errStarting
	}
	if !n.foreignStore(from.Node, registry.Store(from.Store)) {
		return nil
	}
	err := fmt.Errorf("%w: node %d comes with data directory %v, but is known with another: "+
		"its directory was wiped or replaced", ErrInvalid, from.Node, from.Store)
	if n.foreignLog.due(n.world.now()) {
		n.logger.Error("a node is not listened to", nodeAttr(from.Node), errAttr(err))
	}
	return err
}
