package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// pollEvery is how often a request looks whether what it waits for has come.
const pollEvery = 5 * time.Millisecond

// CreateGroup creates a group, from any node. It reports whether the group is
// new: creating it again with the same spec is a success, with another spec
// [ErrGroupExists]. When it returns without an error the decision is durable;
// it waits, until ctx ends, for the group to have a leader and all its members,
// but what is missing then comes by itself.
func (n *Node) CreateGroup(ctx context.Context, spec Spec) (created bool, err error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, created, err := n.decideGroup(ctx, spec)
	if err != nil {
		return false, err
	}
	n.awaitMembers(ctx, rec, 0, n.reachedByLive)
	return created, nil
}

// decideGroup has the registry decide that the group exists.
func (n *Node) decideGroup(
	ctx context.Context, spec Spec,
) (rec registry.Group, created bool, err error) {
	spec = spec.withDefaults()
	if err = n.cfg.validateSpec(spec); err != nil {
		return rec, false, err
	}
	if err = n.registerMembers(ctx, spec.Voters, spec.Learners); err != nil {
		return rec, false, err
	}
	seed, store := n.chooseSeed(spec)
	res, err := n.command(ctx, registry.EncodeCreateGroup(registry.CreateGroup{
		ID: spec.ID, Incarnation: raftyard.Incarnation(n.world.newID()), Kind: spec.Kind,
		Voters: spec.Voters, Learners: spec.Learners,
		SnapshotEntries: spec.SnapshotEntries, TrailingEntries: spec.TrailingEntries,
		Seed: seed, SeedStore: store,
	}))
	if err != nil {
		return rec, false, err
	}
	switch res.Code {
	case registry.Created, registry.ExistsSame:
		return res.Group, res.Code == registry.Created, nil
	case registry.Conflict:
		return rec, false, fmt.Errorf("group %d: %w: %s", spec.ID, ErrGroupExists, res.Detail)
	default:
		return rec, false, fmt.Errorf("%w: group %d: %s", ErrInvalid, spec.ID, res.Detail)
	}
}

// liveStores are the data directories of this node and of those that it is
// connected to.
func (n *Node) liveStores() map[raftyard.NodeID]registry.Store {
	stores := map[raftyard.NodeID]registry.Store{n.cfg.ID: n.ownStore()}
	peers := n.transport.Peers()
	for i := range peers {
		store := registry.Store(peers[i].Identity.Store)
		if peers[i].Up && !n.foreignStore(peers[i].Node, store) {
			stores[peers[i].Node] = store
		}
	}
	return stores
}

// liveNodes are this node and those that it is connected to.
func (n *Node) liveNodes() map[raftyard.NodeID]bool {
	live := map[raftyard.NodeID]bool{n.cfg.ID: true}
	peers := n.transport.Peers()
	for i := range peers {
		live[peers[i].Node] = peers[i].Up && !n.conditionOf(peers[i].Node).Stuck
	}
	return live
}

// liveOthers are the other nodes of those, by id.
func (n *Node) liveOthers() (others []raftyard.NodeID) {
	live := n.liveNodes()
	for _, id := range slices.Sorted(maps.Keys(live)) {
		if live[id] && id != n.cfg.ID {
			others = append(others, id)
		}
	}
	return others
}

// command has a command applied by the registry, and by this node's copy of it, if that
// is not long in coming: who asks this node next shall be told what was decided.
func (n *Node) command(ctx context.Context, cmd []byte) (registry.Result, error) {
	res, err := n.Propose(ctx, raftyard.SystemGroup, cmd)
	if err != nil {
		return registry.Result{}, fmt.Errorf("registry: %w", err)
	}
	out, err := registry.DecodeResult(res.Data)
	if err != nil {
		return registry.Result{}, fmt.Errorf("registry: %w: %w", ErrUnknownOutcome, err)
	}
	n.awaitOwnRegistry(ctx, res.Index)
	return out, nil
}

// awaitOwnRegistry waits until this node's copy of the registry has applied an index, for
// an election timeout at most. A copy that does not come is no reason to fail.
func (n *Node) awaitOwnRegistry(ctx context.Context, index uint64) {
	ctx, cancel := n.world.withTimeout(ctx, n.ticks(n.cfg.ElectionTicks))
	defer cancel()
	for {
		r := n.replica(raftyard.SystemGroup)
		if r == nil || !r.serving() || r.applied.Load() >= index || !n.world.sleep(ctx, pollEvery) {
			return
		}
	}
}

// awaitMembers waits until the group has a leader among its members, and is where
// reached says, at the given epoch or later: this node's replica may be behind, and be
// where the group was long ago. It gives up when ctx ends, or the registry wants
// something else of the group.
func (n *Node) awaitMembers(
	ctx context.Context, rec registry.Group, epoch uint64,
	reached func(group.Descriptor, registry.Group) bool,
) bool {
	wait := pollEvery
	for {
		d, led, err := n.descriptorOf(ctx, rec)
		if err == nil && led && d.Epoch >= epoch && reached(d, rec) {
			return true
		}
		if n.superseded(&rec) || !n.world.sleep(ctx, wait) {
			return false
		}
		wait = min(wait*3/2, 100*time.Millisecond)
	}
}

// anotherGroup is what comes of an answer about another incarnation of a group: it is the
// one of before, whose end its node has not heard of yet, or a later one.
func (n *Node) anotherGroup(rec *registry.Group) error {
	if n.superseded(rec) {
		return fmt.Errorf("group %d: %w: it has been deleted since", rec.ID, ErrGroupNotFound)
	}
	return fmt.Errorf("group %d: %w", rec.ID, ErrNoReplica)
}

// superseded reports whether a record has been replaced since by one that wants other
// members, or none at all; or is forgotten.
func (n *Node) superseded(rec *registry.Group) bool {
	now, ok := n.registry.Group(rec.ID)
	if !ok {
		return rec.Version > 0 && n.registry.Version() > rec.Version
	}
	return now.Version > rec.Version &&
		(now.Deleted || now.Incarnation != rec.Incarnation || !sameMembers(&now, rec))
}

// descriptorOf returns the newest descriptor that this node can find without
// bothering everybody: its own replica's, or the leader's.
func (n *Node) descriptorOf(
	ctx context.Context, rec registry.Group,
) (d group.Descriptor, led bool, err error) {
	if r := n.replica(rec.ID); r != nil && r.serving() && r.incarnation == rec.Incarnation {
		if v := r.view.Load(); v.initialized() {
			_, led = v.State.Descriptor.Member(v.Leader)
			return v.State.Descriptor, led, nil
		}
	}
	err = n.atLeader(ctx, rec.ID, func(to raftyard.NodeID) error {
		st, askErr := n.askReplica(ctx, to, rec.ID)
		if askErr != nil {
			return askErr
		}
		if st.Group.Incarnation != rec.Incarnation.String() {
			return n.anotherGroup(&rec)
		}
		d = descriptorFrom(st)
		_, led = d.Member(st.Leader)
		return nil
	})
	return d, led, err
}

// descriptorFrom takes the members back out of a status.
func descriptorFrom(st RaftStatus) group.Descriptor {
	d := group.Descriptor{Epoch: st.Epoch}
	for _, m := range st.Members {
		d.Members = append(d.Members, group.Member{
			ID: m.Replica, Node: m.Node, Role: roleFromString(m.Role),
		})
	}
	return d
}

func roleFromString(s string) group.Role {
	for _, r := range []group.Role{
		group.Voter, group.Learner, group.Incoming, group.Outgoing, group.Demoting,
	} {
		if r.String() == s {
			return r
		}
	}
	return 0
}

// reached reports whether a group has just the members that the registry wants.
func reached(d group.Descriptor, rec registry.Group) bool {
	if d.IsJoint() {
		return false
	}
	have := wantOf(d)
	slices.Sort(have.Voters)
	slices.Sort(have.Learners)
	return slices.Equal(have.Voters, rec.Voters) && slices.Equal(have.Learners, rec.Learners)
}

// reachedByLive is reached, except that a wanted node that is down may lack.
func (n *Node) reachedByLive(d group.Descriptor, rec registry.Group) bool {
	if reached(d, rec) {
		return true
	}
	live := n.liveNodes()
	down := func(id raftyard.NodeID) bool { return !live[id] }
	if !slices.ContainsFunc(rec.Voters, down) && !slices.ContainsFunc(rec.Learners, down) {
		return false
	}
	have := wantOf(d)
	rec.Voters = slices.DeleteFunc(slices.Clone(rec.Voters), down)
	rec.Learners = slices.DeleteFunc(slices.Clone(rec.Learners), down)
	have.Voters = slices.DeleteFunc(have.Voters, down)
	have.Learners = slices.DeleteFunc(have.Learners, down)
	slices.Sort(have.Voters)
	slices.Sort(have.Learners)
	return !d.IsJoint() && slices.Equal(have.Voters, rec.Voters) &&
		slices.Equal(have.Learners, rec.Learners)
}

// leaderDescriptor asks the group's leader itself.
func (n *Node) leaderDescriptor(
	ctx context.Context, rec registry.Group,
) (d group.Descriptor, st RaftStatus, err error) {
	err = n.atLeader(ctx, rec.ID, func(to raftyard.NodeID) error {
		var askErr error
		if st, askErr = n.askReplica(ctx, to, rec.ID); askErr != nil {
			return askErr
		}
		if st.Group.Incarnation != rec.Incarnation.String() {
			return n.anotherGroup(&rec)
		}
		if st.Role != group.Leader.String() {
			return &NotLeaderError{Group: rec.ID}
		}
		d = descriptorFrom(st)
		return nil
	})
	return d, st, err
}

// freshRecord reads a group's record from the registry, linearizably.
func (n *Node) freshRecord(ctx context.Context, g raftyard.GroupID) (registry.Group, error) {
	var rec registry.Group
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(reg *registry.Registry) error {
		var ok bool
		if rec, ok = reg.Group(g); !ok || rec.Deleted {
			return fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
		}
		return nil
	})
	return rec, err
}

// TakeSnapshot takes a snapshot of the group now: on this node if it has a
// replica, or else at the leader.
func (n *Node) TakeSnapshot(ctx context.Context, g raftyard.GroupID) (SnapshotInfo, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if _, err := n.serving(g); err == nil {
		return n.snapshotLocal(ctx, here(g))
	}
	var info SnapshotInfo
	err := n.atLeader(ctx, g, func(to raftyard.NodeID) error {
		at, err := n.address(g)
		if err != nil {
			return err
		}
		return n.askJSON(ctx, to, askSnapshot, at.append(nil), &info)
	})
	return info, err
}

func (n *Node) snapshotLocal(ctx context.Context, at address) (SnapshotInfo, error) {
	r, err := n.servingAt(at)
	if err != nil {
		return SnapshotInfo{}, err
	}
	got := make(chan snapshotResult, 1)
	r.worker.box.control(func() {
		r.worker.guard(r, "take a snapshot", func() {
			r.snap.waiters = append(r.snap.waiters, got)
			switch {
			case r.machine.logOnly.Load():
				r.worker.hurryOwn(r)
			case !r.snap.running:
				r.worker.takeSnapshot(r)
			}
		})
	})
	res, from := await(n.world, got, r.gone, ctx.Done())
	switch {
	case from == fromFirst:
		return SnapshotInfo{}, fmt.Errorf("group %d: %w", r.group, r.goneReason())
	case from == fromSecond:
		return SnapshotInfo{}, errors.Join(ErrUnknownOutcome, ctx.Err())
	case res.err != nil:
		return SnapshotInfo{}, fmt.Errorf("group %d: snapshot: %w", r.group, res.err)
	}
	return SnapshotInfo{
		Group: r.group, Node: n.cfg.ID, Index: res.at.applied, Term: res.at.term, Bytes: res.bytes,
	}, nil
}
