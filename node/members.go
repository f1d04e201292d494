package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// SetMembers states which nodes shall hold a replica of the group. The decision
// is durable when it returns without an error; the group's leader, whichever it
// is by then, gets there: learners first, then one joint change. With wait,
// SetMembers returns when the membership is reached, or ctx ends.
//
// What is refused has no effect at all: members that make no sense, or are on nodes that
// nobody knows ([ErrInvalid]); that are on nodes that go, or are short of disk space, or of
// whose voters no majority is alive ([ErrUnhealthy]); an epoch that the group is not at
// ([ErrEpochMismatch]); and another membership than the one that is being brought about
// ([ErrChangeInProgress]). Force is for voters that are not alive, or on nodes short of disk
// space, and for nothing else: the group's leader still makes no change that would leave it
// without a majority.
func (n *Node) SetMembers(
	ctx context.Context, g raftyard.GroupID, m Members, wait bool,
) (GroupStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, epoch, err := n.wantMembers(ctx, g, m)
	if err != nil {
		return GroupStatus{}, err
	}
	if wait && !n.awaitMembers(ctx, rec, epoch, reached) {
		why := "it is decided, but not reached within the deadline; the group goes on by itself"
		if n.superseded(&rec) {
			why = "it was decided, and since then the group is to have other members, or to go"
		}
		return GroupStatus{}, fmt.Errorf("group %d: %w: %s", g, ErrNotReached, why)
	}
	return n.Group(ctx, g)
}

// wantMembers has the registry decide, and returns what it has decided, and the epoch that
// the group was at before.
func (n *Node) wantMembers(
	ctx context.Context, g raftyard.GroupID, m Members,
) (rec registry.Group, epoch uint64, err error) {
	voters, learners := sortedIDs(m.Voters), sortedIDs(m.Learners)
	if err = registry.CheckMembers(voters, learners); err != nil {
		return rec, 0, fmt.Errorf("%w: group %d: %w", ErrInvalid, g, err)
	}
	if rec, err = n.freshRecord(ctx, g); err != nil {
		return rec, 0, err
	}
	d, st, err := n.leaderDescriptor(ctx, rec)
	if err != nil {
		return rec, 0, err
	}
	wanted := rec
	wanted.Voters, wanted.Learners = voters, learners
	if err = n.checkChange(ctx, &rec, &wanted, m, st); err != nil {
		return rec, 0, err
	}
	if err = n.registerMembers(ctx, voters, learners); err != nil {
		return rec, 0, err
	}
	rec, err = n.decideMembers(ctx, &wanted)
	return rec, d.Epoch, err
}

// checkChange returns why the members that m asks for cannot be wanted now.
func (n *Node) checkChange(
	ctx context.Context, before, wanted *registry.Group, m Members, leader RaftStatus,
) error {
	g, d := wanted.ID, descriptorFrom(leader)
	same := sameMembers(before, wanted)
	switch {
	case m.ExpectEpoch != 0 && d.Epoch != m.ExpectEpoch:
		return fmt.Errorf("group %d: %w: it is at epoch %d, not %d",
			g, ErrEpochMismatch, d.Epoch, m.ExpectEpoch)
	case same:
		return nil
	case !reached(d, *before) && !replaceable(d, m):
		return fmt.Errorf("group %d: %w: voters %v, learners %v are being brought in; "+
			"wait for that, take it back, or name the epoch that you know of (%d)",
			g, ErrChangeInProgress, before.Voters, before.Learners, d.Epoch)
	}
	if err := n.checkNodes(before, wanted, m.Force); err != nil || m.Force {
		return err
	}
	return n.checkHealth(ctx, wanted, leader)
}

// decideMembers has the registry want the members of a record, if it is still the one
// that it was made of.
func (n *Node) decideMembers(ctx context.Context, wanted *registry.Group) (registry.Group, error) {
	g := wanted.ID
	res, err := n.command(ctx, registry.EncodeWantMembers(registry.WantMembers{
		ID: g, Incarnation: wanted.Incarnation, IfVersion: wanted.Version,
		Voters: wanted.Voters, Learners: wanted.Learners,
	}))
	switch {
	case err != nil:
		return *wanted, err
	case res.Code == registry.OK:
		return res.Group, nil
	case res.Code == registry.Stale:
		return *wanted, fmt.Errorf("group %d: %w: somebody else has just changed it",
			g, ErrChangeInProgress)
	case res.Code == registry.NotFound:
		return *wanted, fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
	default:
		return *wanted, fmt.Errorf("%w: group %d: %s", ErrInvalid, g, res.Detail)
	}
}

// checkNodes returns an error if a member is wanted on a node that cannot have one. The
// registry would say the same, but of the disk, and has the last word.
func (n *Node) checkNodes(before, wanted *registry.Group, force bool) error {
	for _, id := range slices.Concat(wanted.Voters, wanted.Learners) {
		rec, known := n.registry.Node(id)
		var why string
		switch {
		case !known: // as when a group is created, or a learner added
			return fmt.Errorf("group %d: %w: node %d is not known", wanted.ID, ErrInvalid, id)
		case rec.State == registry.NodeRemoved:
			why = "was removed from the cluster"
		case rec.State == registry.NodeLeaving && !wants(before, id):
			why = "is leaving the cluster"
		case n.short(id) && !wants(before, id) && !force:
			why = "has too little disk space for another replica"
		default:
			continue
		}
		return fmt.Errorf("group %d: %w: node %d %s", wanted.ID, ErrUnhealthy, id, why)
	}
	return nil
}

// checkHealth returns an error if no majority of the wanted voters is alive: of those
// that are members already, by what the leader has heard of them; of the others, by who
// is connected to this node. The leader forgets at every election timeout of whom it has
// heard, so it is asked again before anything is held against anybody.
func (n *Node) checkHealth(
	ctx context.Context, wanted *registry.Group, leader RaftStatus,
) error {
	for tries := n.cfg.ElectionTicks; ; tries-- {
		dead := n.deadVoters(wanted, leader)
		if len(wanted.Voters)-len(dead) > len(wanted.Voters)/2 {
			return nil
		}
		if tries == 0 || !n.world.sleep(ctx, n.cfg.TickInterval) {
			return fmt.Errorf("group %d: %w: of the %d voters that are wanted, those on %s are "+
				"not alive; bring them up first, choose others, or force it",
				wanted.ID, ErrUnhealthy, len(wanted.Voters), listNodes(dead))
		}
		if _, st, err := n.leaderDescriptor(ctx, *wanted); err == nil {
			leader = st
		}
	}
}

// deadVoters returns the wanted voters that are not alive.
func (n *Node) deadVoters(wanted *registry.Group, leader RaftStatus) []raftyard.NodeID {
	heard := map[raftyard.NodeID]bool{leader.Node: true}
	for _, p := range leader.Progress {
		if p.Replica != leader.Replica {
			heard[p.Node] = p.RecentActive
		}
	}
	live := n.liveNodes()
	return slices.DeleteFunc(slices.Clone(wanted.Voters), func(id raftyard.NodeID) bool {
		if active, member := heard[id]; member {
			return active
		}
		return live[id]
	})
}

// replaceable reports whether a change that is under way may be replaced by m: it
// takes the change back, to the voters that there are, or it is made by somebody
// who knows how far the change has come.
func replaceable(d group.Descriptor, m Members) bool {
	if d.IsJoint() {
		return false
	}
	have := wantOf(d)
	slices.Sort(have.Voters)
	return m.ExpectEpoch == d.Epoch || slices.Equal(have.Voters, sortedIDs(m.Voters))
}

func sameMembers(a, b *registry.Group) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Learners, b.Learners)
}

func sortedIDs(ids []raftyard.NodeID) []raftyard.NodeID {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
