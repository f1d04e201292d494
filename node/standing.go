package node

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// A node may run and take no part in the cluster: nobody has let it in yet, it was
// removed, its directory is an older copy, or it is configured for another cluster. It
// serves nobody then, and says why instead of waiting for a majority that cannot come.

// outsideError says why a node takes no part in its cluster.
type outsideError struct {
	kind error
	text string
}

func (e *outsideError) Error() string { return e.text }
func (e *outsideError) Unwrap() error { return e.kind }

func isOutside(err error) bool {
	_, ok := errors.AsType[*outsideError](err)
	return ok
}

// takeOutside notes why this node takes no part, if err says so. What passes need not be
// noted, such as that it is not let in yet: it is so as long as nothing else is known.
func (n *Node) takeOutside(err error) {
	e, ok := errors.AsType[*outsideError](err)
	if ok && !errors.Is(e, ErrNotReady) && n.outside.Swap(e) == nil {
		n.noteChange()
	}
}

// Outside returns why this node takes no part in its cluster, or nil: it does, or nothing
// else is known. While it is not nil nothing of the cluster can be asked of it. An error
// that is [ErrNotReady] passes, by itself or by what is done on other nodes, such as letting
// this one in: it makes sense to ask again. Any other one stays for as long as the process
// runs, and others have to be asked. With [ErrNodeRemoved] the node was removed for ever;
// with [ErrInvalid] its directory is an older copy or was replaced for good, or directory or
// configuration are another cluster's. It may be called from any goroutine.
func (n *Node) Outside() error { return n.standing() }

// unread is the error of what needs the registry, while it has not been read.
func (n *Node) unread() error {
	if err := n.standing(); err != nil {
		return err
	}
	return fmt.Errorf("%w: it has not read the registry yet", ErrNotReady)
}

// standing returns why this node takes no part in the cluster, or nil: it does, or that
// is not known.
func (n *Node) standing() error {
	if n.lifecycle.isFresh() {
		if e := n.shunned.Load(); e != nil {
			return e
		}
		return nil
	}
	if e := n.outside.Load(); e != nil {
		return e
	}
	if e := n.refusedByPeers(); e != nil {
		return e
	}
	switch {
	case n.belongs():
		return nil
	case n.letIn.Load():
		return &outsideError{kind: ErrNotReady, text: fmt.Sprintf(
			"node %d is let into cluster %q, and waits for the node that leads the system group "+
				"to reach it at %s", n.cfg.ID, n.cfg.Cluster, n.cfg.self().Addr)}
	default:
		return n.notYetMember()
	}
}

// refusedByPeers returns what the others have against a connection with this node, if
// none of them takes one.
func (n *Node) refusedByPeers() *outsideError { return n.judgeRefusals(n.transport.Peers()) }

// judgeRefusals is refusedByPeers. That this node was removed is final, and one who says so
// is enough: others may be removed as well, and not know. Of other refusals one that is
// final says more than one that passes, whoever comes first.
func (n *Node) judgeRefusals(peers []transport.PeerStatus) *outsideError {
	var passing, final *outsideError
	up := false
	for i := range peers {
		up = up || peers[i].Up
		ref, ok := errors.AsType[*transport.RefusalError](peers[i].LastError)
		switch {
		case !ok:
		case ref.Code == transport.RefusedRemoved:
			return n.wasRemoved()
		case meaningOf(ref) == refusalPasses:
			passing = cmp.Or(passing, n.refusedWith(ErrNotReady, peers[i].Node, ref))
		case ref.Code == transport.RefusedUnknown && !n.belongs():
			passing = cmp.Or(passing, n.notYetMember())
		case meaningOf(ref) == refusalIsFinal:
			final = cmp.Or(final, n.refusedWith(ErrInvalid, peers[i].Node, ref))
		}
	}
	if up {
		return nil
	}
	return cmp.Or(final, passing)
}

func (n *Node) refusedWith(
	kind error, by raftyard.NodeID, ref *transport.RefusalError,
) *outsideError {
	return &outsideError{kind: kind, text: fmt.Sprintf("the others do not talk to this node, "+
		"which runs in %s; node %d says: %s", n.cfg.Dir, by, ref.Text)}
}

// refusalMeaning is what a refusal says of this node's part in the cluster.
type refusalMeaning int

const (
	refusalSaysNothing refusalMeaning = iota
	refusalPasses                     // by itself, or by what is done elsewhere
	refusalIsFinal                    // for this process in this directory
)

func meaningOf(ref *transport.RefusalError) refusalMeaning {
	switch ref.Code {
	case transport.RefusedClone:
		// The connections of the process that was there before are given up when they have
		// been silent for some seconds; a machine that lost its power is back sooner.
		return refusalPasses
	case transport.RefusedReplaced:
		return refusalPasses // the directory gets the other one's place
	case transport.RefusedStale, transport.RefusedRemoved, transport.RefusedSpent:
		return refusalIsFinal // starts that were seen, and what is spent, are remembered
	case transport.RefusedUnknown:
		// For a node that is let in by somebody, and has not been yet, see judgeRefusals. One
		// that belongs to its cluster by itself belongs to another one of the same name.
		return refusalIsFinal
	case transport.RefusedCluster, transport.RefusedWrongNode, transport.RefusedSelf:
		return refusalSaysNothing // somebody else is at that address
	case transport.RefusedVersion, transport.RefusedMalformed, transport.RefusedFull:
		return refusalSaysNothing // but that the two ends cannot talk now
	default:
		return refusalSaysNothing // a later release's
	}
}

// noticeRefusal sees whether the others still talk to a node that is in step with the
// cluster. When they say that it was removed this node's part in it ends. Its replica of the
// system group cannot tell: nobody sends it its own removal. Otherwise it serves nobody for
// as long as none of them talks to it; as a rule a later process has taken its place.
func (n *Node) noticeRefusal() {
	e := n.refusedByPeers()
	if e != nil && errors.Is(e, ErrNodeRemoved) {
		n.takeOutside(e)
		n.lifecycle.lost()
	}
	was := n.shunned.Swap(e)
	if (was == nil) == (e == nil) {
		return
	}
	n.noteChange()
	if e != nil {
		n.logger.Warn("this node takes no part in the cluster any more", errAttr(e))
	} else {
		n.logger.Info("this node takes part in the cluster again")
	}
}

func (n *Node) notYetMember() *outsideError {
	return &outsideError{kind: ErrNotReady, text: fmt.Sprintf(
		"node %d is not a member of cluster %q yet: PUT /v1/nodes/%d {\"peer\": %q, \"http\": %q} "+
			"on any node that is; this node then joins by itself",
		n.cfg.ID, n.cfg.Cluster, n.cfg.ID, n.cfg.self().Addr, n.cfg.self().HTTP)}
}

func (n *Node) wasRemoved() *outsideError {
	return &outsideError{kind: ErrNodeRemoved, text: fmt.Sprintf(
		"node %d was removed from cluster %q, and its id cannot be used again: stop it, and ask "+
			"another node", n.cfg.ID, n.cfg.Cluster)}
}

// isOlderCopy reports whether the directory does not know of its start that is registered.
func (n *Node) isOlderCopy(rec *registry.Node) bool {
	return rec.Store == n.ownStore() && !n.store.Identity().Starts.Follows(rec.Start())
}

// olderCopy says that the directory does not know of a start that the cluster has seen.
func (n *Node) olderCopy(boot uint64) *outsideError {
	return &outsideError{kind: ErrInvalid, text: fmt.Sprintf(
		"the data directory %s is an older copy, or the node has run on a copy of it since: the "+
			"cluster has seen start %d of it, and this is start %d, which does not come after "+
			"that one; what the node has acknowledged meanwhile is not in it, so that it must not "+
			"be used: stop the node, and start it in the directory in which it ran last or, if "+
			"that is lost, in an empty one: it is taken in again by itself",
		n.cfg.Dir, boot, n.store.Identity().Boot)}
}

// otherDirectory says that the node is known with another directory.
func (n *Node) otherDirectory(rec *registry.Node) *outsideError {
	kind, why := ErrNotReady, "it gets that one's place by itself when no group needs that one "+
		"any more; node list on any other node says what it waits for"
	if rec.First == n.ownStore() {
		kind, why = ErrInvalid, spentDirectory
	}
	return &outsideError{kind: kind, text: fmt.Sprintf(
		"node %d is known with data directory %s, and %s is %s: %s",
		n.cfg.ID, rec.Store, n.cfg.Dir, n.ownStore(), why)}
}

// checkStanding is called with the registry as it is now.
func (n *Node) checkStanding(reg *registry.Registry) error {
	rec, _ := reg.Node(n.cfg.ID)
	var e *outsideError
	switch {
	case rec.State == registry.NodeRemoved:
		e = n.wasRemoved()
	case n.isOlderCopy(&rec):
		e = n.olderCopy(rec.Boot)
	default:
		return nil
	}
	n.takeOutside(e)
	return e
}

// refusedBy makes an error of what the registry has against what this node has said of
// itself.
func (n *Node) refusedBy(res registry.Result) error {
	switch {
	case res.Code == registry.NotFound:
		return n.notYetMember()
	case res.Node.State == registry.NodeRemoved:
		return n.wasRemoved()
	case n.isOlderCopy(&res.Node):
		return n.olderCopy(res.Node.Boot)
	case !res.Node.Store.IsZero() && res.Node.Store != n.ownStore():
		return n.otherDirectory(&res.Node)
	}
	return fmt.Errorf("%w: %s", ErrInvalid, res.Detail)
}

// otherFounding hears from a node whose system group is another than this node's could
// be, though the clusters have one name: one of the two is configured with another list
// of founding nodes.
func (n *Node) otherFounding(from raftyard.NodeID) {
	if n.foreignLog.due(n.world.now()) {
		n.logger.Error("a node of the same cluster was founded with another list of nodes",
			nodeAttr(from), slogIDs("founding_nodes_here", n.foundingIDs()))
	}
	if n.lifecycle.isFresh() {
		return // this node is in step with the cluster: it is the other one
	}
	n.takeOutside(&outsideError{kind: ErrInvalid, text: fmt.Sprintf(
		"this node is configured with the founding nodes %d, and node %d with others: the list "+
			"must be the one that the cluster was founded with, and further nodes join through "+
			"the API; stop the one with the wrong list, give it the right one, and move away the "+
			"data directory that was begun with the wrong one (here %s)",
		n.foundingIDs(), from, n.cfg.Dir)})
}
