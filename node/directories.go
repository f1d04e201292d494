package node

import (
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
)

// A member of a group is given to a data directory, see [group.Member]. The one of
// another directory than its node has now is lost: it is nowhere, and whoever speaks in
// its name has forgotten what it has promised. So a replica takes nothing from a member
// in another directory than it was given to, sends nothing to a lost one, and does
// nothing when it is lost itself. That is compared when members or directories change,
// and looked up for each message.

// directories are those of all nodes that are known with one. They never change.
type directories map[raftyard.NodeID]group.NodeStore

// directory returns what is known of a node's directories: by the registry, or by what
// was noted, if the registry does not know, or is behind it after a start.
func (n *Node) directory(id raftyard.NodeID) group.NodeStore {
	ns := n.noted.load()
	noted := ns.of(id)
	rec, _ := n.registry.Node(id)
	if !rec.Store.IsZero() && (noted.Store.IsZero() || n.registry.Version() >= ns.at) {
		return group.NodeStore{Current: rec.Store, First: rec.First}
	}
	return group.NodeStore{Current: noted.Store, First: noted.First}
}

// foreignStore reports whether a node is known with another data directory.
func (n *Node) foreignStore(id raftyard.NodeID, store raftyard.StoreID) bool {
	known := n.directory(id).Current
	return !known.IsZero() && known != store && !mutant.On(mutant.WipedVotes)
}

// refreshDirectories looks up the directories of all nodes, and reports whether this
// node's own have changed.
func (n *Node) refreshDirectories() (own bool) {
	next := make(directories)
	take := func(id raftyard.NodeID) {
		if dir := n.directory(id); !dir.Current.IsZero() {
			next[id] = dir
		}
	}
	for _, rec := range n.registry.Nodes() {
		take(rec.ID)
	}
	for _, k := range n.noted.load().list {
		take(k.Node)
	}
	before := n.known()
	if !maps.Equal(before, next) {
		n.directories.Store(&next)
	}
	return before[n.cfg.ID] != next[n.cfg.ID]
}

// known are the directories as of the last round.
func (n *Node) known() directories {
	if d := n.directories.Load(); d != nil {
		return *d
	}
	return directories{}
}

// placed is what a replica has looked up of the directories of its members.
type placed struct {
	by   *directories // of which it was looked up
	lost []raftyard.ReplicaID
	self bool // this replica is lost
}

// place looks up where the members of the replica are. The worker calls it.
func (r *replica) place() (given []raftyard.StoreID) {
	n, d := r.worker.node, r.meta.State.Descriptor
	r.placed = placed{by: n.directories.Load()}
	if mutant.On(mutant.WipedVotes) || mutant.On(mutant.LostMemberVotes) {
		return nil
	}
	known := n.known()
	given = make([]raftyard.StoreID, len(d.Members))
	for i, m := range d.Members {
		dir := known[m.Node]
		given[i] = dir.Of(m)
		if dir.Lost(m) {
			r.placed.lost = append(r.placed.lost, m.ID)
		}
		if m.ID == r.id && !given[i].IsZero() && given[i] != n.ownStore() {
			r.placed.self = true
		}
	}
	return given
}

// movedDirectories reports whether directories have changed since the replica looked.
func (r *replica) movedDirectories() bool {
	return r.placed.by != r.worker.node.directories.Load()
}

// isLost reports whether nothing is to be sent to a member, or by this one.
func (r *replica) isLost(to raftyard.ReplicaID) bool {
	return r.placed.self || len(r.placed.lost) > 0 && slices.Contains(r.placed.lost, to)
}

// isFrom reports whether a message of a replica may come out of a directory. Nothing is
// known of senders that are no members as far as this replica knows.
func (v *view) isFrom(from raftyard.ReplicaID, store raftyard.StoreID) bool {
	if v.lost {
		return false
	}
	for i := range v.given {
		if v.State.Descriptor.Members[i].ID == from {
			return v.given[i] == store || v.given[i].IsZero()
		}
	}
	return true
}
