package node

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// A data directory that was wiped, or put in the place of another, has forgotten
// the votes and entries that its node has vouched for. The registry knows which
// directory a node has, and nobody has to do with a node that comes with another, until
// the registry says that it is the node's from now on: see newcomers.go. What was
// promised in the one before is then nobody's any more: see directories.go. An older
// copy of a directory has forgotten as well: it does not show the start that the others
// have noted, however often it is started itself.

// ownStore is the id of this node's data directory.
func (n *Node) ownStore() raftyard.StoreID { return raftyard.StoreID(n.store.Identity().Store) }

// ownStart is the latest start of this node's directory of which it knows that it was
// registered, or zero. The others know that one, or one that is later.
func (n *Node) ownStart() lineage.Start {
	st, ok := n.store.Replica(raftyard.SystemGroup)
	if !ok || st.Damage != nil {
		return lineage.Start{}
	}
	m, err := decodeMeta(st.Meta)
	if err != nil {
		return lineage.Start{} // what is wrong is told when the replica is opened
	}
	if own := m.notes().of(n.cfg.ID); own.Store == n.ownStore() {
		return own.start()
	}
	return lineage.Start{}
}

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
		return refused(transport.RefusedRemoved, "node %d was removed from the cluster, and its "+
			"id is not used again: stop it, and join another one under a new id", from.Node)
	case !known && dir.Current.IsZero():
		return n.admitStranger(from.Node)
	case dir.Current.IsZero() || dir.Current == from.Store:
		n.newcomers.heard(from.Node, n.world.now)
		return n.admitStart(peer, &rec)
	case n.founding.waits.Load() && rec.Store.IsZero():
		return nil // it may know this node. That is all that is taken from it: it is not noted.
	default:
		return n.refuseNewcomer(from, &dir, known)
	}
}

// admitStart compares a start of the directory that a node is known with, or of the first
// one with which it comes, with the latest that is known: it must show that. One that is
// noted must show the one that is registered, which this node may have heard of since.
func (n *Node) admitStart(
	peer transport.Identity, rec *registry.Node,
) *transport.RefusalError {
	from := comer{knownStore: knownOf(peer)}
	last := n.noted.of(from.Node)
	registered := knownStore{Store: rec.Store, Boot: rec.Boot, Process: rec.Process}
	isNoted := last.is(from.knownStore)
	if isNoted && (rec.Store != from.Store || registered.is(from.knownStore)) {
		return nil
	}
	var err error
	if from.shows, err = lineage.Decode(peer.Lineage, from.start()); err != nil {
		return refused(transport.RefusedMalformed, "node %d: %v", from.Node, err)
	}
	for _, known := range []knownStore{last, registered} {
		if known.Store != from.Store || from.shows.Follows(known.start()) {
			continue
		}
		if isNoted {
			n.noted.disown(&disowned{was: last, registered: registered})
			n.lifecycle.poke()
		}
		return from.refuse(known.Boot)
	}
	if !isNoted {
		n.noted.meet(from)
		n.lifecycle.poke()
	}
	return nil
}

// refuse says why a start is not let in that does not show the one that is known. Whether
// there is a second process cannot be told: a copy that was put back makes starts of the same
// numbers. Those that are connected are compared before.
func (c *comer) refuse(known uint64) *transport.RefusalError {
	or := ""
	if c.Boot > known && c.shows.Full() {
		or = fmt.Sprintf(", or it was started more than %d times with none of them registered",
			lineage.MaxStarts)
	}
	return refused(transport.RefusedStale, "node %d has been seen at start %d of data directory "+
		"%s, and comes with start %d, which does not come after that one: the directory is an "+
		"older copy, or the node has run on a copy of it since%s; stop it, and start it in the "+
		"directory in which it ran last or, if that is lost, in an empty one: it is taken in "+
		"again by itself", c.Node, known, c.Store, c.Boot, or)
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
