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
// directory a node has, and nobody has to do with a node that comes with another, until
// the registry says that it is the node's from now on: see newcomers.go. What was
// promised in the one before is then nobody's any more: see directories.go. An older
// copy of a directory has forgotten as well: it comes with an earlier start than the
// others have noted, and a copy that was started beside it with the same start, but as
// another process.

// ownStore is the id of this node's data directory.
func (n *Node) ownStore() raftyard.StoreID { return raftyard.StoreID(n.store.Identity().Store) }

// admit returns why no connection with a peer is wanted, or nil. One that is wanted is
// to be noted.
func (n *Node) admit(peer transport.Identity) *transport.RefusalError {
	from := knownOf(peer)
	rec, known := n.registry.Node(from.Node)
	dir := n.directory(from.Node)
	switch {
	case mutant.On(mutant.WipedVotes):
		return nil
	case rec.State == registry.NodeRemoved:
		return refused(transport.RefusedRemoved,
			"node %d was removed from the cluster, and its id is not used again", from.Node)
	case !known && dir.Current.IsZero():
		return n.admitStranger(from.Node)
	case dir.Current.IsZero() || dir.Current == from.Store:
		n.newcomers.heard(from.Node, n.world.now)
		return n.admitStart(from, &rec)
	case n.founding.waits.Load() && rec.Store.IsZero():
		return nil // it may know this node. That is all that is taken from it: it is not noted.
	default:
		return n.refuseNewcomer(from, dir.Current, known)
	}
}

// admitStart compares a start of the directory that a node is known with, or of the first
// one with which it comes, with the latest that is known.
func (n *Node) admitStart(from knownStore, rec *registry.Node) *transport.RefusalError {
	last := n.noted.of(from.Node)
	if last.is(from) {
		return nil
	}
	if last.Store != from.Store {
		last = knownStore{}
	}
	boot := last.Boot
	if rec.Store == from.Store {
		boot = max(boot, rec.Boot)
	}
	switch {
	case from.Boot < boot:
		return refused(transport.RefusedStale, "node %d has been seen at start %d of its data "+
			"directory, and comes with start %d: an older copy was put in its place",
			from.Node, boot, from.Boot)
	case from.Boot == last.Boot && !last.Process.IsZero() && from.Process != last.Process:
		return refused(transport.RefusedClone, "node %d has been seen at start %d of its data "+
			"directory as another process: one of the two runs on a copy", from.Node, from.Boot)
	}
	n.noted.meet(from)
	n.lifecycle.poke()
	return nil
}

// accept returns why nothing is taken from a peer, or nil.
func (n *Node) accept(peer transport.Identity) error {
	if !n.isOpen() {
		return errStarting
	}
	if ref := n.admit(peer); ref != nil {
		kind := ErrInvalid
		if ref.Code == transport.RefusedRemoved {
			kind = ErrNodeRemoved // what it has passed on for somebody is not to blame
		}
		return fmt.Errorf("%w: %s", kind, ref.Text)
	}
	from := knownOf(peer)
	noted := n.noted.of(from.Node)
	if noted.is(from) || mutant.On(mutant.WipedVotes) {
		return nil
	}
	_, known := n.registry.Node(from.Node)
	r := n.replica(raftyard.SystemGroup)
	if !known && noted.Store.IsZero() || r == nil || !r.serving() {
		return nil // whoever is unknown is not noted, and nobody before there is a place for it
	}
	// What this node does about a message must not outlive its knowing of the start
	// that has sent it.
	return fmt.Errorf("%w: start %d of node %d is not noted", errStarting, from.Boot, from.Node)
}

func refused(code transport.RefusalCode, format string, args ...any) *transport.RefusalError {
	return &transport.RefusalError{Code: code, Text: fmt.Sprintf(format, args...)}
}
