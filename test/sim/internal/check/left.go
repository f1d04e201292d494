package check

import (
	"strings"

	"github.com/raftyard/raftyard"
)

// A Thing is something on a disk that belongs to a replica.
type Thing struct {
	What  string // such as: a directory, by its name
	Group raftyard.GroupID

	// Incarnation and Replica are of whom it is, as far as it tells: the beginning of
	// the one in its text form, or nothing, and the other or zero.
	Incarnation string
	Replica     raftyard.ReplicaID
}

// isOf reports whether it may be of a replica.
func (t *Thing) isOf(s *replicaState) bool {
	return t.Group == s.group.key.id && (t.Replica == 0 || t.Replica == s.id) &&
		strings.HasPrefix(s.group.key.incarnation.String(), t.Incarnation)
}

// Inspected tells what is on the disk of a node that has closed, when it was at rest.
//
// Rule 16, [Tidy]: nothing is left of a replica that was removed.
func (c *Checker) Inspected(node raftyard.NodeID, things []Thing) {
	n := c.node(node)
	if n.asleep() {
		return
	}
	for i := range things {
		t := &things[i]
		c.tally.Left++
		if !n.has(t) {
			c.fail(Tidy, "on the disk of node %d is %s, and no replica that it is of", node, t.What)
		}
	}
}

// has reports whether one of the replicas that the node had last may own a thing.
func (n *nodeState) has(t *Thing) bool {
	for _, s := range n.shown {
		if !s.dead && t.isOf(s) {
			return true
		}
	}
	return false
}

// Lacking tells, before a node starts, whether it has no state machines in this start.
func (c *Checker) Lacking(node raftyard.NodeID, lacks bool) {
	n := c.node(node)
	n.lacks, n.had = lacks, n.had || !lacks
}

// asleep: state machines that the node had before may have left what only they can delete.
// A node whose disk has lost a part cannot tell that it never had any.
func (n *nodeState) asleep() bool { return n.lacks && (n.had || n.forgot) }

// purged: what belonged to a destroyed replica is deleted.
//
// Rule 16, [Tidy].
func (u *unsettled) purged(c *Checker) {
	for _, id := range sortedKeys(c.nodes) {
		n := c.nodes[id]
		if !n.up || n.asleep() {
			continue
		}
		for i := range n.stored {
			if t := &n.stored[i]; t.full {
				u.add(Tidy, "node %d has not deleted all that was of replica %d of group %d",
					id, t.id, t.key.id)
			}
		}
	}
}
