package sim

import (
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
)

// dispensable reports whether the disk of a node can be lost for ever: the node must be
// known to all, and be the only one that has none, and no group may need it.
//
// A voter whose disk is lost is one that has crashed for ever. Nothing unsafe comes of that:
// any two majorities that decide have a voter in common that stays, or the later one is never
// complete. So what a group needs is that a majority stays of each set of voters that may
// have to decide for it, now or when whatever changes are under way go on.
func (w *World) dispensable(id raftyard.NodeID) bool {
	h := w.host(id)
	if !h.in || h.unready() || w.joining > 0 || w.leaver != nil {
		return false
	}
	noted := w.notedStart(id)
	for _, o := range w.members() {
		if o.lost || o != h && noted[o.id] == 0 {
			return false
		}
	}
	if e := w.electorate(raftyard.SystemGroup, w.system()); !e.spares(id) {
		return false
	}
	return !slices.ContainsFunc(w.groups, func(g *groupInfo) bool {
		if g.gone && !g.beginning() {
			return false
		}
		e := w.electorateOf(g)
		return g.beginning() || g.seed == id && w.unfounded(g) || !e.spares(id)
	})
}

// beginning reports whether nobody knows yet which incarnation of the group there is, and
// where it begins.
func (g *groupInfo) beginning() bool {
	return !g.created && !g.gone || g.contests > 0 || g.id == contested && g.dying
}

// unfounded reports whether no node has a replica of a group yet: without the disk of
// its seed it never begins.
func (w *World) unfounded(g *groupInfo) bool {
	return !w.seen(func(r *world.Replica) bool {
		return r.Group == g.id && r.Incarnation == g.incarnation
	})
}

// system returns the incarnation of the system group, if there is one.
func (w *World) system() (in raftyard.Incarnation) {
	w.seen(func(r *world.Replica) bool {
		in = r.Incarnation
		return r.Group == raftyard.SystemGroup
	})
	return in
}

// An electorate is who may decide for a group.
type electorate struct {
	// descriptors are those with which some replica goes on, or may go on when what is in
	// its log is committed.
	descriptors []group.Descriptor

	// wishes are what the group's voters may have to be: what somebody has asked for since
	// the group last was as it should be.
	wishes [][]raftyard.NodeID

	kept []keptReplica

	// partial: there is a log that cannot be looked at. What is in it was asked for by
	// somebody.
	partial bool
}

// A keptReplica is one that is on the disk of its node, whether that is up or not.
type keptReplica struct {
	id   raftyard.ReplicaID
	node raftyard.NodeID

	// stateless: it has only a log, from first on, and no state for what was before.
	stateless   bool
	first, last uint64
}

// electorate finds out who may decide for an incarnation of a group.
func (w *World) electorate(g raftyard.GroupID, in raftyard.Incarnation) (e electorate) {
	for _, h := range w.hosts {
		if h.lost {
			continue
		}
		for i := range h.seen.Replicas {
			r := &h.seen.Replicas[i]
			if r.Group != g || r.Incarnation != in {
				continue
			}
			e.add(h, r)
		}
	}
	return e
}

// add adds a replica that is on a node, and the members that it knows of.
func (e *electorate) add(h *host, r *world.Replica) {
	if r.Fault == nil {
		e.kept = append(e.kept, keptReplica{
			id: r.ID, node: h.id, stateless: r.LogOnly && !r.Asleep, first: r.First, last: r.Last,
		})
	}
	if r.State.IsZero() {
		return
	}
	e.descriptors = append(e.descriptors, r.State.Descriptor)
	if h.state != running || r.Log == nil {
		e.partial = true
		return
	}
	ahead, err := group.Ahead(r.Log, r.State, 0)
	_, last := r.Log.Bounds()
	e.partial = e.partial || err != nil || last < r.Last
	e.descriptors = append(e.descriptors, ahead...)
}

// electorateOf finds out who may decide for a group that there is, also when its members
// are those that somebody has asked for.
func (w *World) electorateOf(g *groupInfo) electorate {
	e := w.electorate(g.id, g.incarnation)
	if !g.moving() && !e.partial && !e.changing(g) {
		g.tried = nil
	}
	e.wishes = append(slices.Clone(g.tried), g.wish.Voters)
	return e
}

// changing reports whether the group has other voters than it was last asked to have.
func (e *electorate) changing(g *groupInfo) bool {
	return slices.ContainsFunc(e.descriptors, func(d group.Descriptor) bool {
		return d.IsJoint() || !g.wished(d.Voters())
	})
}

// spares reports whether a majority of all who may have to decide stays without a node, and
// with it a state from which all can go on.
func (e *electorate) spares(id raftyard.NodeID) bool {
	stays := func(m group.Member) bool {
		return m.Node != id && slices.ContainsFunc(e.kept, func(r keptReplica) bool {
			return r.id == m.ID && r.node == m.Node
		})
	}
	for _, d := range e.descriptors {
		for _, set := range electors(d, id) {
			if !mostOf(set, stays) {
				return false
			}
		}
	}
	for _, wish := range e.wishes {
		if !mostOf(wish, func(n raftyard.NodeID) bool { return n != id }) {
			return false
		}
	}
	return e.connected(id)
}

// electors returns the sets of voters of whom majorities decide under a descriptor, and the
// one that comes next if the node is a learner in it that is about to be promoted.
func electors(d group.Descriptor, id raftyard.NodeID) [][]group.Member {
	var after, before []group.Member
	for _, m := range d.Members {
		switch m.Role {
		case group.Voter:
			after, before = append(after, m), append(before, m)
		case group.Incoming:
			after = append(after, m)
		case group.Outgoing, group.Demoting:
			before = append(before, m)
		case group.Learner:
		}
	}
	sets := [][]group.Member{after, before}
	if m, ok := d.MemberOn(id); ok && m.Role == group.Learner {
		sets = append(sets, append(slices.Clone(after), m))
	}
	return sets
}

// mostOf reports whether something is true of a majority.
func mostOf[T any](set []T, is func(T) bool) bool {
	yes := 0
	for _, v := range set {
		if is(v) {
			yes++
		}
	}
	return yes > len(set)/2
}

// connected reports whether the logs of those without a state can be reached from a state
// that stays without a node.
func (e *electorate) connected(id raftyard.NodeID) bool {
	for _, r := range e.kept {
		if !r.stateless || r.first <= 1 || r.node == id {
			continue
		}
		if !slices.ContainsFunc(e.kept, func(s keptReplica) bool {
			return !s.stateless && s.node != id && s.last+1 >= r.first
		}) {
			return false
		}
	}
	return true
}

// asks notes that other members may be wanted from now on.
func (g *groupInfo) asks(m node.Members) {
	if !slices.ContainsFunc(g.tried, func(voters []raftyard.NodeID) bool {
		return slices.Equal(voters, g.wish.Voters)
	}) {
		g.tried = append(g.tried, g.wish.Voters)
	}
	g.wish, g.unsure = m, true
	g.asked++
}

// amid reports whether a group is on its way to other voters in which a node has a part.
func (w *World) amid(id raftyard.NodeID) bool {
	return slices.ContainsFunc(w.groups, func(g *groupInfo) bool {
		if g.gone {
			return false
		}
		e := w.electorate(g.id, g.incarnation)
		return e.changing(g) && slices.ContainsFunc(e.descriptors, func(d group.Descriptor) bool {
			m, ok := d.MemberOn(id)
			return ok && m.Role != group.Learner
		})
	})
}
