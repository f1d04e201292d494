package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
)

// AddLearner attaches a node to a group: the node shall hold a learner, which follows the
// group's log without a vote, serves stale reads, and linearizable ones with the leader's
// help. A node that is a member already, or is to become one, stays what it is. Any number
// of nodes may be attached at the same time.
//
// AddLearner returns when the node is a member and has applied what was committed when it
// became one. If ctx ends before, and it is decided, the error is [ErrNotReached]: the group
// goes on by itself.
func (n *Node) AddLearner(
	ctx context.Context, g raftyard.GroupID, id raftyard.NodeID,
) (GroupStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if err := n.registerMembers(ctx, []raftyard.NodeID{id}); err != nil {
		return GroupStatus{}, err
	}
	rec, err := n.changeLearners(ctx, g, func(rec *registry.Group) (bool, error) {
		if wants(rec, id) {
			return false, nil
		}
		rec.Learners = sortedIDs(append(slices.Clone(rec.Learners), id))
		return true, nil
	})
	if err != nil {
		return GroupStatus{}, err
	}
	if err = n.awaitLearner(ctx, &rec, id); err != nil {
		return GroupStatus{}, err
	}
	return n.Group(ctx, g)
}

// RemoveLearner detaches a node from a group. It returns when the node's learner is
// destroyed with all that it has stored, also if that was so before. If ctx ends first, for
// one because the node is down, and it is decided, the error is [ErrNotReached]. A node
// that is a voter, or is to be one, is refused with [ErrInvalid]; see [Node.SetMembers].
func (n *Node) RemoveLearner(
	ctx context.Context, g raftyard.GroupID, id raftyard.NodeID,
) (GroupStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, err := n.changeLearners(ctx, g, func(rec *registry.Group) (bool, error) {
		if err := n.mustNotVote(ctx, rec, id); err != nil {
			return false, err
		}
		i, found := slices.BinarySearch(rec.Learners, id)
		if found {
			rec.Learners = slices.Delete(slices.Clone(rec.Learners), i, i+1)
		}
		return found, nil
	})
	if err != nil {
		return GroupStatus{}, err
	}
	if err = n.awaitNoResidue(ctx, &rec, id); err != nil {
		return GroupStatus{}, err
	}
	return n.Group(ctx, g)
}

// wants reports whether a node is to be a member of a group.
func wants(rec *registry.Group, id raftyard.NodeID) bool {
	return slices.Contains(rec.Voters, id) || slices.Contains(rec.Learners, id)
}

// mustNotVote returns an error if a node has a vote in a group, or is to have one.
func (n *Node) mustNotVote(
	ctx context.Context, rec *registry.Group, id raftyard.NodeID,
) error {
	voter := slices.Contains(rec.Voters, id)
	if !voter {
		d, _, err := n.leaderDescriptor(ctx, *rec)
		if err != nil {
			return err
		}
		m, member := d.MemberOn(id)
		voter = member && m.Role != group.Learner
	}
	if voter {
		return fmt.Errorf("%w: node %d is a voter of group %d, not a learner",
			ErrInvalid, id, rec.ID)
	}
	return nil
}

// changeLearners has the registry want what change makes of a group's record. When
// somebody else has changed the group meanwhile, or nobody can say how an attempt ended, it
// begins again with what is wanted then: change must be one that can be repeated.
func (n *Node) changeLearners(
	ctx context.Context, g raftyard.GroupID, change func(*registry.Group) (bool, error),
) (rec registry.Group, err error) {
	if g == raftyard.SystemGroup {
		return rec, fmt.Errorf("%w: the system group has a learner on every node that is no "+
			"voter of it", ErrInvalid)
	}
	doubt := false // an earlier attempt may have had its effect, or have it yet
	defer func() {
		if err != nil && doubt {
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
	}()
	for {
		rec, err = n.freshRecord(ctx, g)
		if err != nil {
			return rec, err
		}
		changed, err := change(&rec)
		if err != nil || !changed {
			return rec, err
		}
		res, err := n.command(ctx, registry.EncodeWantMembers(registry.WantMembers{
			ID: g, Incarnation: rec.Incarnation, IfVersion: rec.Version,
			Voters: rec.Voters, Learners: rec.Learners,
		}))
		switch {
		case errors.Is(err, ErrUnknownOutcome):
			doubt = true
		case err == nil && res.Code == registry.Stale:
		case err != nil:
			return rec, err
		case res.Code == registry.OK:
			return res.Group, nil
		case res.Code == registry.NotFound:
			return rec, fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
		default:
			return rec, fmt.Errorf("%w: group %d: %s", ErrInvalid, g, res.Detail)
		}
		if !n.world.sleep(ctx, pollEvery) {
			return rec, fmt.Errorf("group %d: %w: others change it again and again",
				g, errors.Join(ErrChangeInProgress, err))
		}
	}
}

// awaitLearner waits until a node is a member of a group and has applied all that was
// committed when it became one.
func (n *Node) awaitLearner(
	ctx context.Context, rec *registry.Group, id raftyard.NodeID,
) error {
	var goal uint64
	return n.awaitGoal(ctx, rec, func(wanted *registry.Group) (bool, string) {
		if !wants(wanted, id) {
			return false, "it was decided, and since then it is not to be a member any more"
		}
		d, st, err := n.leaderDescriptor(ctx, *rec)
		m, member := d.MemberOn(id)
		if err != nil || !member {
			return false, ""
		}
		if goal == 0 {
			goal = st.Commit
		}
		short, cancel := n.world.withTimeout(ctx, askPatience)
		defer cancel()
		own, err := n.askReplica(short, id, rec.ID)
		return err == nil && own.Group.Incarnation == rec.Incarnation.String() &&
			own.Replica == m.ID && own.Applied >= goal, ""
	})
}

// awaitNoResidue waits until nothing is left of a group's replica on a node.
func (n *Node) awaitNoResidue(
	ctx context.Context, rec *registry.Group, id raftyard.NodeID,
) error {
	return n.awaitGoal(ctx, rec, func(wanted *registry.Group) (bool, string) {
		if wants(wanted, id) {
			return false, "it was decided, and since then it is to be a member again"
		}
		d, _, err := n.leaderDescriptor(ctx, *rec)
		if _, member := d.MemberOn(id); err != nil || member {
			return false, ""
		}
		if _, known := n.registry.Node(id); !known {
			return true, "" // it never was there
		}
		short, cancel := n.world.withTimeout(ctx, askPatience)
		defer cancel()
		left, err := n.residueOn(short, id, rec)
		return err == nil && !left, ""
	})
}

// awaitGoal waits until a goal is reached that was decided, or cannot be any more for the
// reason that is given.
func (n *Node) awaitGoal(
	ctx context.Context, rec *registry.Group,
	reached func(wanted *registry.Group) (ok bool, never string),
) error {
	why := "it is decided, but not reached within the deadline; the group goes on by itself"
	for wait := pollEvery; ; wait = min(wait*3/2, 20*pollEvery) {
		now, ok := n.registry.Group(rec.ID)
		if ok && (now.Deleted || now.Incarnation != rec.Incarnation) {
			return fmt.Errorf("group %d: %w: it was decided, and since then the group is to go",
				rec.ID, ErrNotReached)
		}
		if !ok || now.Version < rec.Version {
			now = *rec // this node's copy of the registry is behind
		}
		ok, never := reached(&now)
		switch {
		case ok:
			return nil
		case never != "":
			return fmt.Errorf("group %d: %w: %s", rec.ID, ErrNotReached, never)
		case !n.world.sleep(ctx, wait):
			return fmt.Errorf("group %d: %w: %s", rec.ID, ErrNotReached, why)
		}
	}
}

// residue is what a node tells of what is left of a group on it.
type residue struct {
	Left bool `json:"left"`
}

// residueOn asks a node whether anything is left of a group's replica on it.
func (n *Node) residueOn(
	ctx context.Context, id raftyard.NodeID, rec *registry.Group,
) (bool, error) {
	if id == n.cfg.ID {
		return n.residueOf(ctx, rec.ID, rec.Incarnation), nil
	}
	body := wire.AppendID(wire.AppendUvarint(nil, uint64(rec.ID)), rec.Incarnation)
	var left residue
	err := n.askJSON(ctx, id, askResidue, body, &left)
	return left.Left, err
}

// residueOf reports whether anything is left here of a group's replica. One that has not
// heard of its removal asks for it now.
func (n *Node) residueOf(
	ctx context.Context, g raftyard.GroupID, incarnation raftyard.Incarnation,
) bool {
	if r := n.replica(g); r != nil && r.incarnation == incarnation {
		if n.lifecycle.isFresh() && n.maybeStray(r) {
			n.askAboutStray(ctx, r)
		}
		return true
	}
	return n.purging(g) || n.leftovers(g) > 0 || n.store.Remains(g)
}

func (n *Node) serveResidue(ctx context.Context, b *wire.Reader) ([]byte, error) {
	g, incarnation := raftyard.GroupID(b.Uvarint()), raftyard.Incarnation(b.ID())
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(residue{Left: n.residueOf(ctx, g, incarnation)})
}
