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
	if err := d.checkReachable(ctx); err != nil {
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
	ids := slices.Concat(d.rec.Voters, d.rec.Learners, []raftyard.NodeID{d.rec.Seed, d.node.cfg.ID})
	return sortedSet(ids)
}

func (n *Node) registeredIDs() []raftyard.NodeID {
	var ids []raftyard.NodeID
	for _, rec := range n.registry.Nodes() {
		ids = append(ids, rec.ID)
	}
	return ids
}

// survey asks those who may know of the group. version is as in a question.
func (d *deletion) survey(ctx context.Context, version uint64) survey {
	q := question{group: d.rec.ID, incarnation: d.rec.Incarnation, version: version}
	return d.node.survey(ctx, q, d.nodes())
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
		s := d.survey(ctx, 0)
		if d.neverBegan(&s) {
			return nil
		}
		sets := s.voterSets()
		if len(sets) == 0 {
			sets = [][]raftyard.NodeID{d.rec.Voters}
		}
		away := holdouts(sets, func(id raftyard.NodeID) bool { _, ok := s.answers[id]; return ok })
		if len(away) == 0 {
			return nil
		}
		if !d.node.world.sleep(ctx, 10*pollEvery) {
			return fmt.Errorf("group %d: %w: its voters on %s cannot be told to stop, and might "+
				"go on without the others; bring a majority back, or force the deletion",
				d.rec.ID, ErrNoQuorum, listNodes(away))
		}
	}
}

// neverBegan reports whether the one node on which the group could begin says that it has
// not. That is a proof only while the node has still the directory for which the group
// was meant; and for good only when the node knows that the group is deleted.
func (d *deletion) neverBegan(s *survey) bool {
	st, answered := s.answers[d.rec.Seed]
	now, seed := d.seedStores()
	return answered && st.Replica == 0 && !st.Other && !now.IsZero() && now == seed &&
		len(s.voterSets()) == 0
}

// seedStores returns the data directory that the seed has now, and the one in which the
// group begins: if nobody knew that when the group was created, the first of the node's.
func (d *deletion) seedStores() (now, seed raftyard.StoreID) {
	node, _ := d.node.registry.Node(d.rec.Seed)
	return node.Store, cmp.Or(d.rec.SeedStore, node.First)
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
	for wait := pollEvery; ; wait = min(wait*2, 10*n.cfg.TickInterval) {
		s := d.survey(ctx, res.Group.Version)
		left := d.holdouts(&s)
		if len(left) == 0 {
			return nil
		}
		if d.force && d.toldEverybody(&s) || !n.world.sleep(ctx, wait) {
			return fmt.Errorf("group %d: %w: it is deleted, but its voters on %s are not "+
				"known to have stopped; they will, when they hear of it",
				g, ErrNotReached, listNodes(left))
		}
	}
}

// holdouts returns voters that might still go on with the group, if there are any.
func (d *deletion) holdouts(s *survey) []raftyard.NodeID {
	if d.neverBegan(s) {
		return nil
	}
	sets := s.voterSets()
	switch {
	case len(sets) > 0:
	case d.rec.Deleted:
		// Nobody knows who the members were: it may have been anyone.
		for _, id := range d.nodes() {
			sets = append(sets, []raftyard.NodeID{id})
		}
	default:
		// Nobody who answers knows the group. It has begun with the seed alone.
		sets = [][]raftyard.NodeID{{d.rec.Seed}, d.rec.Voters}
	}
	return holdouts(sets, func(id raftyard.NodeID) bool { return d.stopped(s, id) })
}

// stopped reports whether a node has no replica of the group and will get none.
func (d *deletion) stopped(s *survey, id raftyard.NodeID) bool {
	if st, ok := s.answers[id]; ok {
		return !st.Live
	}
	// The directory in which the group began is lost, and nobody listens to it.
	now, seed := d.seedStores()
	return id == d.rec.Seed && !now.IsZero() && !seed.IsZero() && now != seed
}

// toldEverybody reports whether all that can be reached have no replica any more.
func (d *deletion) toldEverybody(s *survey) bool {
	for _, st := range s.answers {
		if st.Live {
			return false
		}
	}
	live := d.node.liveNodes()
	return !slices.ContainsFunc(slices.Collect(maps.Keys(s.silent)), func(id raftyard.NodeID) bool {
		return live[id]
	})
}

// voterSets returns the sets of nodes each of which may decide for the group by a
// majority: of the newest descriptor that is known, and of those that may have come
// after it, of which nobody can tell whether they have.
//
// That is enough. A later one would have been logged by a majority of the newest of
// these, and some of those who say that they are no more would know of it.
func (s *survey) voterSets() (sets [][]raftyard.NodeID) {
	for _, d := range s.descriptors(s.newest()) {
		var after, before []raftyard.NodeID
		for _, m := range d.Members {
			switch m.Role {
			case group.Voter:
				after, before = append(after, m.Node), append(before, m.Node)
			case group.Incoming:
				after = append(after, m.Node)
			case group.Outgoing, group.Demoting:
				before = append(before, m.Node)
			case group.Learner:
			}
		}
		sets = append(sets, after)
		if d.IsJoint() {
			sets = append(sets, before)
		}
	}
	return sets
}

// holdouts returns the nodes of the first of the sets of which those that are not out are
// a majority; nil if there is none.
func holdouts(sets [][]raftyard.NodeID, out func(raftyard.NodeID) bool) []raftyard.NodeID {
	for _, set := range sets {
		in := slices.DeleteFunc(slices.Clone(set), out)
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
