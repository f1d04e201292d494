package node

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// A group of which nobody has a replica may be about to begin, or may be on nodes that are
// down. It is nowhere for good when its seed cannot begin it: in the directory that the seed
// had it may have begun, and been lost with it. Another seed must not begin it then, since
// nobody knows whether it would be the second one; somebody has to give the group up.

// seedLost reports whether a group of which nobody has told can never begin. Those who may
// have it all live, so that they would have told.
func (n *Node) seedLost(rec *registry.Group) bool {
	if rec.ID == raftyard.SystemGroup || !n.lifecycle.isFresh() {
		return false
	}
	live := n.liveNodes()
	if slices.ContainsFunc(namedIn(rec), func(id raftyard.NodeID) bool { return !live[id] }) {
		return false
	}
	dir := n.directory(rec.Seed)
	begins := cmp.Or(rec.SeedStore, dir.First)
	return !begins.IsZero() && !dir.Current.IsZero() && begins != dir.Current
}

// whyNowhere says, for people, why nobody has a replica of a group.
func (n *Node) whyNowhere(rec *registry.Group) string {
	switch {
	case rec.ID == raftyard.SystemGroup:
		return ""
	case n.seedLost(rec):
		return fmt.Sprintf("it can never begin: it was to begin on node %d, in a data directory "+
			"that is lost, or that nobody had seen before the node came late; delete the group, "+
			"and create it again", rec.Seed)
	case !n.liveNodes()[rec.Seed]:
		return fmt.Sprintf("nobody that answers has a replica; the group was to begin on node %d, "+
			"which is not live", rec.Seed)
	default:
		return ""
	}
}
