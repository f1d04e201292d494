package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// A node leaves in steps, each of which is decided in the registry or in a group, so that
// whoever leads the system group by then goes on from where it is:
//
//	drained ──▶ leaving: every group that wants a member there is to have another one
//	        ──▶ no group has a member there: the system group lets its own go
//	        ──▶ removed: nobody talks to it any more, for ever

const (
	// moveEvery is how often groups are moved away from leaving nodes, and moveBatch
	// bounds those of one node that are in one go: each is a snapshot for somebody.
	moveEvery = time.Second
	moveBatch = 64
	// maxMovePause bounds the pause after a look that took long.
	maxMovePause = 10 * time.Second
)

// departure plans how the groups of one leaving node go on without it.
type departure struct {
	id     raftyard.NodeID
	forced bool
	nodes  []registry.Node // by id
	live   map[raftyard.NodeID]bool
	short  map[raftyard.NodeID]bool // of disk space
	load   map[raftyard.NodeID]int  // how many replicas are wanted on each

	// lacks reports whether a node is known to have no state machine of a kind.
	lacks func(id raftyard.NodeID, kind string) bool
}

// without returns the members that a group shall have without the node, which is one
// that it wants; or why it must wait.
//
// A learner is dropped. In the place of a voter comes a node that is active and live, is
// not short of disk space and is no member yet: one that has the state machine, if there
// is one; of those one that has least in common, by its labels, with the other voters;
// and of those the one with the fewest replicas. If there is none the group waits: also if
// there is one with a learner, which somebody wants as that. If the node is forced to leave,
// it goes on with fewer voters, but never without any. The only voter of a group can be
// followed only while it is there.
func (p *departure) without(rec *registry.Group) (voters, learners []raftyard.NodeID, why string) {
	is := func(id raftyard.NodeID) bool { return id == p.id }
	voters = slices.DeleteFunc(slices.Clone(rec.Voters), is)
	learners = slices.DeleteFunc(slices.Clone(rec.Learners), is)
	if len(voters) == len(rec.Voters) {
		return voters, learners, ""
	}
	best, found := p.best(rec.Kind, voters, learners)
	switch {
	case len(voters) == 0 && !p.live[p.id]:
		return nil, nil, deadVoter
	case found:
		voters = append(voters, best)
		slices.Sort(voters)
	case p.forced && len(voters) > 0:
	case p.learnerToPromote(learners) != 0:
		return nil, nil, onlyLearners
	case len(voters) == 0:
		return nil, nil, onlyVoter
	default:
		return nil, nil, nobodyElse
	}
	return voters, learners, ""
}

// Why a group waits.
const (
	deadVoter    = "had its only voter there"
	onlyVoter    = "has its only voter there, and finds no other node"
	onlyLearners = "finds only nodes with a learner of it"
	nobodyElse   = "finds no other node"
)

// learnerToPromote returns a node with one of the learners that could take the place of the
// one that leaves, or zero.
func (p *departure) learnerToPromote(learners []raftyard.NodeID) raftyard.NodeID {
	usable := p.usable()
	for _, id := range learners {
		if slices.Contains(usable, id) {
			return id
		}
	}
	return 0
}

// best returns the node that is to take the place of the one that leaves.
func (p *departure) best(
	kind string, voters, learners []raftyard.NodeID,
) (raftyard.NodeID, bool) {
	usable := p.usable()
	var best *registry.Node
	for i := range p.nodes {
		n := &p.nodes[i]
		if !slices.Contains(usable, n.ID) || slices.Contains(voters, n.ID) ||
			slices.Contains(learners, n.ID) {
			continue
		}
		if best == nil || cmp.Or(
			boolCompare(p.lacks(n.ID, kind), p.lacks(best.ID, kind)),
			p.compare(n, best, voters),
		) < 0 {
			best = n
		}
	}
	if best == nil {
		return 0, false
	}
	return best.ID, true
}

// usable returns the nodes that can take the place of another.
func (p *departure) usable() (ids []raftyard.NodeID) {
	for i := range p.nodes {
		if n := &p.nodes[i]; n.State == registry.NodeActive && p.live[n.ID] && !p.short[n.ID] {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (p *departure) compare(a, b *registry.Node, voters []raftyard.NodeID) int {
	return cmp.Or(
		cmp.Compare(p.inCommon(a, voters), p.inCommon(b, voters)),
		cmp.Compare(p.load[a.ID], p.load[b.ID]),
		cmp.Compare(a.ID, b.ID),
	)
}

// inCommon counts the labels that a node shares with the nodes of some voters.
func (p *departure) inCommon(n *registry.Node, voters []raftyard.NodeID) (count int) {
	for i := range p.nodes {
		other := &p.nodes[i]
		if !slices.Contains(voters, other.ID) {
			continue
		}
		for k, v := range n.Labels {
			if o, ok := other.Labels[k]; ok && o == v {
				count++
			}
		}
	}
	return count
}

// newDeparture looks at the registry as this node has it.
func (n *Node) newDeparture(rec *registry.Node) *departure {
	boots := n.liveBoots()
	p := &departure{
		id: rec.ID, forced: rec.Forced, nodes: n.registry.Nodes(), live: n.liveNodes(),
		load: make(map[raftyard.NodeID]int), short: make(map[raftyard.NodeID]bool),
		lacks: func(id raftyard.NodeID, kind string) bool {
			if id == n.cfg.ID {
				return !n.hasKind(kind)
			}
			return n.kinds.lacks(id, boots[id], kind)
		},
	}
	for i := range p.nodes {
		p.short[p.nodes[i].ID] = n.short(p.nodes[i].ID)
	}
	for g := range n.registry.All() {
		for _, id := range slices.Concat(g.Voters, g.Learners) {
			p.load[id]++
		}
	}
	return p
}

// moveAway has groups that want a member on the node want another one, and reports
// whether there is none left.
func (n *Node) moveAway(ctx context.Context, rec *registry.Node) (left bool) {
	p := n.newDeparture(rec)
	if p.load[rec.ID] == 0 {
		return true
	}
	n.askForKindsOf(ctx, p.usable())
	moved := 0
	for g := range n.registry.All() {
		if moved == moveBatch || ctx.Err() != nil {
			break
		}
		if !wants(&g, rec.ID) {
			continue
		}
		voters, learners, why := p.without(&g)
		if why != "" {
			continue
		}
		moved++
		res, err := n.command(ctx, registry.EncodeWantMembers(registry.WantMembers{
			ID: g.ID, Incarnation: g.Incarnation, IfVersion: g.Version,
			Voters: voters, Learners: learners,
		}))
		switch {
		case err != nil:
			n.logger.Warn("move a group off a leaving node", groupAttr(g.ID), nodeAttr(rec.ID),
				errAttr(err))
			return false
		case res.Code != registry.OK:
			continue // somebody else has changed it; the next look comes
		}
		for _, id := range voters {
			if !slices.Contains(g.Voters, id) {
				p.load[id]++
			}
		}
		n.logger.Info("a group moves off a leaving node", groupAttr(g.ID), nodeAttr(rec.ID),
			slogIDs("voters", voters))
	}
	return false
}

// isVacated reports whether no group has a member on the node, of which none wants one
// any more: those who lead the groups say so, and the node itself, if it is there.
//
// A node with replicas destroys those that are no members any more, but only while it reads
// the registry. One that the system group has let go while it was away, and that comes back
// with replicas, keeps them for ever: it counts as one that is away still.
func (n *Node) isVacated(ctx context.Context, rec *registry.Node, reads bool) bool {
	list, reports := n.nodeStatuses(ctx, []registry.Node{*rec})
	st := &list[0]
	tells := st.Live && st.LastError == "" && reports[0].Replicas == 0
	if st.Live && !tells && reads {
		return false
	}
	with, err := n.groupsWith(ctx, rec, tells)
	return err == nil && len(with) == 0
}

// groupsWith returns the first groups that may have a member on a leaving node, by what
// their replicas say. A group that nobody leads cannot say that it has none, and counts
// if the node could matter to it: if it neither tells itself that it has nothing, nor is
// given up.
func (n *Node) groupsWith(
	ctx context.Context, rec *registry.Node, tells bool,
) (with []raftyard.GroupID, err error) {
	var after raftyard.GroupID
	for {
		recs := n.registry.Groups(after, maxPage)
		known := n.collectReports(ctx, recs)
		for i := range recs {
			if n.hasMember(&recs[i], known[recs[i].ID], rec, tells) {
				with = append(with, recs[i].ID)
			}
		}
		if ctx.Err() != nil {
			return with, context.Cause(ctx)
		}
		if len(recs) < maxPage || len(with) > maxNamedGroups {
			return with, nil
		}
		after = recs[len(recs)-1].ID
	}
}

// hasMember reports whether a group may have a member on the node, by what the registry and
// its replicas say.
func (n *Node) hasMember(
	rec *registry.Group, reps []replicaReport, node *registry.Node, tells bool,
) bool {
	reps = slices.DeleteFunc(slices.Clone(reps), func(r replicaReport) bool {
		return r.Incarnation != rec.Incarnation.String()
	})
	if rec.Names(node.ID) {
		return true // what it has may be there alone
	}
	s := n.summarize(rec, reps)
	if slices.ContainsFunc(s.Members, func(m MemberStatus) bool { return m.Node == node.ID }) {
		return true
	}
	led := slices.ContainsFunc(reps, func(r replicaReport) bool { return r.Leads })
	return !led && !tells && !node.Forced
}
