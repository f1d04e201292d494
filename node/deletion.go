package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
)

// DeleteGroup deletes a group everywhere, also on nodes that are down now. Deleting a
// group again is a success.
//
// It is refused with [ErrNoQuorum], and nothing happens, while a majority of the group's
// voters are on nodes that cannot be reached: nobody could tell those to stop, and they
// might go on acknowledging writes among themselves. A group that never began, or only
// has no leader, can be deleted.
//
// When it returns nil, no write that begins afterwards is acknowledged by the group that
// is deleted: too few of its voters are left for that. If they are not known to have
// stopped within the deadline, the error is [ErrNotReached]: the deletion is decided all
// the same and goes on by itself. Deleting again waits again.
func (n *Node) DeleteGroup(ctx context.Context, g raftyard.GroupID) error {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, err := n.recordToDelete(ctx, g)
	if err != nil {
		return err
	}
	d := deletion{node: n, rec: rec}
	if err := d.checkReachable(ctx); err != nil && !mutant.On(mutant.DeleteUnfenced) {
		return err
	}
	return d.run(ctx)
}

// ForceDeleteGroup deletes a group that has lost its majority, which [Node.DeleteGroup]
// refuses. Its incarnation must be given, so that nothing else is deleted by mistake.
// Whoever of its members cannot be reached stops when it hears of the deletion; until then
// those among themselves may go on with the group. The error is [ErrNotReached] if that
// may be so: the deletion is decided. Deleting again is a success.
func (n *Node) ForceDeleteGroup(
	ctx context.Context, g raftyard.GroupID, confirm raftyard.Incarnation,
) error {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, err := n.recordToDelete(ctx, g)
	switch {
	case err != nil:
		return err
	case rec.Incarnation != confirm:
		return fmt.Errorf("%w: group %d is incarnation %v, not %v: nothing is deleted",
			ErrInvalid, g, rec.Incarnation, confirm)
	}
	d := deletion{node: n, rec: rec, force: true}
	return d.run(ctx)
}

// recordToDelete reads a group's record from the registry, linearizably, also that of a
// group that is deleted.
func (n *Node) recordToDelete(ctx context.Context, g raftyard.GroupID) (registry.Group, error) {
	var rec registry.Group
	if g == raftyard.SystemGroup {
		return rec, fmt.Errorf("%w: the system group cannot be deleted", ErrInvalid)
	}
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(reg *registry.Registry) error {
		var ok bool
		if rec, ok = reg.Group(g); !ok {
			return fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
		}
		return nil
	})
	return rec, err
}

// A deletion is that of one incarnation of a group.
type deletion struct {
	node *Node
	// rec is as it was before. If it was deleted then, it has no members.
	rec   registry.Group
	force bool
}

// nodes are those who may know of the group.
func (d *deletion) nodes() []raftyard.NodeID {
	if d.rec.Deleted {
		return d.node.registeredIDs()
	}
	return sortedSet(append(namedIn(&d.rec), d.node.cfg.ID))
}

// namedIn are the nodes that a group's record names: those that may have something of the
// group as far as the registry knows.
func namedIn(rec *registry.Group) []raftyard.NodeID {
	return sortedSet(slices.Concat(
		rec.Voters, rec.Learners, rec.Before, []raftyard.NodeID{rec.Seed}))
}

func (n *Node) registeredIDs() []raftyard.NodeID {
	var ids []raftyard.NodeID
	for _, rec := range n.registry.Nodes() {
		ids = append(ids, rec.ID)
	}
	return ids
}

// survey asks nodes for the group. version is as in a question.
func (d *deletion) survey(
	ctx context.Context, version uint64, nodes []raftyard.NodeID,
) survey {
	q := question{group: d.rec.ID, incarnation: d.rec.Incarnation, version: version}
	return d.node.survey(ctx, q, nodes)
}

// checkReachable returns an error if a majority of the group's voters cannot be told. It
// is patient for a moment: a connection may just be coming up.
func (d *deletion) checkReachable(parent context.Context) error {
	if d.rec.Deleted {
		return nil
	}
	ctx, cancel := d.node.world.withTimeout(parent, askPatience)
	defer cancel()
	for {
		away := d.unreachable(ctx)
		if len(away) == 0 {
			return nil
		}
		if !d.node.world.sleep(ctx, 10*pollEvery) {
			return fmt.Errorf("group %d: %w: its voters on %s cannot be told to stop, or have "+
				"lost what they had agreed to, and the group might go on without the others; "+
				"bring a majority back, or force the deletion",
				d.rec.ID, ErrNoQuorum, listNodes(away))
		}
	}
}

// unreachable returns voters with which the group could go on whatever the others are
// told, if there are so many.
func (d *deletion) unreachable(ctx context.Context) []raftyard.NodeID {
	s := d.survey(ctx, 0, d.nodes())
	if d.neverBegan(&s) {
		return nil
	}
	sets := s.voterSets()
	if len(sets) == 0 {
		return holdouts([][]MemberStatus{anyReplicaOn(d.rec.Voters)},
			func(m MemberStatus) bool { _, ok := s.answers[m.Node]; return ok })
	}
	away := holdouts(sets, s.canVouch)
	d.node.passOverRemoved(&s)
	for _, id := range away {
		if s.silent[id] != nil {
			return away
		}
	}
	if len(away) > 0 { // those who were lost count no more if nobody else can have the group
		s = d.survey(ctx, 0, d.node.registeredIDs())
		if d.node.passOverRemoved(&s); len(s.silent) == 0 {
			return nil
		}
	}
	return away
}

// anyReplicaOn makes a set of voters of nodes, of which no replica is known.
func anyReplicaOn(nodes []raftyard.NodeID) []MemberStatus {
	set := make([]MemberStatus, len(nodes))
	for i, id := range nodes {
		set[i].Node = id
	}
	return set
}

// neverBegan reports whether the one node on which the group could begin says, in the
// directory in which it was to, that it has not: for good only when the node knows that
// the group is deleted. If nobody knew the directory when the group was created, it is the
// first that the node had. Whoever has, or had, a replica knows better.
func (d *deletion) neverBegan(s *survey) bool {
	node, _ := d.node.registry.Node(d.rec.Seed)
	seed := cmp.Or(d.rec.SeedStore, node.First)
	st, answered := s.answers[d.rec.Seed]
	return answered && !s.hasBegun() && st.Whole && !seed.IsZero() && st.Store == seed.String()
}

// run has the registry decide, and waits for the voters to stop.
func (d *deletion) run(ctx context.Context) error {
	n, g := d.node, d.rec.ID
	res, err := n.command(ctx, registry.EncodeDeleteGroup(registry.DeleteGroup{
		ID: g, Incarnation: d.rec.Incarnation,
	}))
	switch {
	case err != nil:
		return err
	case res.Code == registry.NotFound:
		return nil // it was deleted, and is forgotten by now
	case res.Code == registry.OK, res.Code == registry.Stale:
		// Stale: it was deleted, and another one was created, just now.
	default:
		return fmt.Errorf("%w: group %d: %s", ErrInvalid, g, res.Detail)
	}
	if mutant.On(mutant.DeleteUnfenced) {
		return nil
	}
	for wait := pollEvery; ; wait = min(wait*2, 10*n.cfg.TickInterval) {
		left, s := d.left(ctx, res.Group.Version)
		if len(left) == 0 {
			return nil
		}
		if d.force && d.toldEverybody(&s) || !n.world.sleep(ctx, wait) {
			return fmt.Errorf("group %d: %w: it is deleted, but its replicas on %s are not "+
				"known to have stopped; they will, when they hear of it",
				g, ErrNotReached, listNodes(left))
		}
	}
}

// left returns nodes that might still go on with the group, if there are any, and what
// the nodes say that know of it, once they know of the deletion.
//
// There are none when too few voters are left, as far as those can tell who have stopped,
// or else, when they cannot tell enough, when nobody at all has a replica. Nodes that
// were removed from the cluster, and directories that were given up, count as dead then:
// whoever decided that has said so.
func (d *deletion) left(ctx context.Context, version uint64) ([]raftyard.NodeID, survey) {
	s := d.survey(ctx, version, d.nodes())
	sets := s.voterSets()
	left := holdouts(sets, s.vouches)
	switch {
	case d.neverBegan(&s), len(sets) > 0 && len(left) == 0:
		return nil, s
	case s.anyLive(): // they are about to stop
		if len(left) == 0 {
			left = s.running()
		}
		return left, s
	}
	// Who is registered later has read a registry that knows of the deletion.
	if err := d.node.awaitVersion(ctx, version); err != nil {
		return sortedSet(append(left, d.node.cfg.ID)), s
	}
	all := d.survey(ctx, version, d.node.registeredIDs())
	d.node.passOverRemoved(&all)
	rest := all.running()
	if len(rest) == 0 || len(left) == 0 {
		left = rest
	}
	return left, s
}

// toldEverybody reports whether all that can be reached have no replica any more.
func (d *deletion) toldEverybody(s *survey) bool {
	if s.anyLive() {
		return false
	}
	live := d.node.liveNodes()
	return !slices.ContainsFunc(slices.Collect(maps.Keys(s.silent)), func(id raftyard.NodeID) bool {
		return live[id]
	})
}

// voterSets returns the sets of voters each of which may decide for the group by a
// majority: of the newest members that are known, and of those that may have come
// after them, of which nobody can tell whether they have.
//
// That is enough if so many of each vouch for it that the others are no majority. Let D be
// the latest of these that were committed. A change to later members would have been
// logged by a majority of D, or of both its halves: a leader that logs one, or has one in
// its log, has applied D. One of those who vouch would have logged it, and have told.
func (s *survey) voterSets() (sets [][]MemberStatus) {
	for _, d := range s.memberships(s.newest()) {
		var after, before []MemberStatus
		joint := false
		for _, m := range d.Members {
			switch roleFromString(m.Role) {
			case group.Voter:
				after, before = append(after, m), append(before, m)
			case group.Incoming:
				after, joint = append(after, m), true
			case group.Outgoing, group.Demoting:
				before, joint = append(before, m), true
			case group.Learner:
			}
		}
		sets = append(sets, after)
		if joint {
			sets = append(sets, before)
		}
	}
	return sets
}

// holdouts returns the nodes of the first of the sets of which those that are not out are
// a majority; nil if there is none.
func holdouts(sets [][]MemberStatus, out func(MemberStatus) bool) []raftyard.NodeID {
	for _, set := range sets {
		var in []raftyard.NodeID
		for _, m := range set {
			if !out(m) {
				in = append(in, m.Node)
			}
		}
		if len(in) > len(set)/2 {
			return sortedSet(in)
		}
	}
	return nil
}

// listNodes names nodes in a sentence.
func listNodes(ids []raftyard.NodeID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	if len(ids) == 1 {
		return "node " + words[0]
	}
	return "nodes " + strings.Join(words, ", ")
}
