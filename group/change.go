package group

import (
	"cmp"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/mutant"
)

// A Change is a wish: which members a group shall gain, lose or see in another
// role. [Descriptor.Apply] makes the next descriptor of it.
type Change struct {
	AddLearners []raftyard.NodeID    // nodes that get a new replica, in Stores
	Promote     []raftyard.ReplicaID // learners that become voters
	Demote      []raftyard.ReplicaID // voters that become learners
	Remove      []raftyard.ReplicaID // members that leave

	// Stores are the data directories of nodes, as far as they are known.
	Stores map[raftyard.NodeID]NodeStore
}

// Apply returns the descriptor that c makes of d, one epoch on. It is joint when
// more than one voter changes; [Descriptor.LeaveJoint] ends that. The error wraps
// [ErrInvalidChange]. A joint d takes no Change.
func (d Descriptor) Apply(c Change) (Descriptor, error) {
	if d.IsJoint() {
		return Descriptor{}, fmt.Errorf("%w: the group is joint and must leave that first",
			ErrInvalidChange)
	}
	next := d.Clone()
	next.Epoch++
	wanted, err := d.wantedRoles(c)
	if err != nil {
		return Descriptor{}, err
	}
	joint := countVoterChanges(d, wanted) > 1
	next.Members = next.Members[:0]
	for _, m := range d.Members {
		role, changed := wanted[m.ID]
		if changed {
			m.Role = changedRole(m.Role, role, joint)
		}
		if m.Role != absent {
			next.Members = append(next.Members, m)
		}
	}
	for _, node := range c.AddLearners {
		id := next.NextReplica
		if mutant.On(mutant.ReuseReplica) {
			if _, taken := next.Member(raftyard.ReplicaID(node)); !taken {
				id = raftyard.ReplicaID(node)
			}
		}
		next.Members = append(next.Members, Member{
			ID: id, Node: node, Role: Learner, Store: c.Stores[node].Current,
		})
		next.NextReplica = max(next.NextReplica, id) + 1
	}
	if err := d.checkNext(next); err != nil {
		return Descriptor{}, err
	}
	return next, nil
}

// absent is the role of who is not a member.
const absent Role = 0

// wantedRoles returns the roles that c wants its members to end up with.
func (d Descriptor) wantedRoles(c Change) (map[raftyard.ReplicaID]Role, error) {
	wanted := make(map[raftyard.ReplicaID]Role)
	set := func(ids []raftyard.ReplicaID, verb string, role Role, from ...Role) error {
		for _, id := range ids {
			m, ok := d.Member(id)
			if !ok || !slices.Contains(from, m.Role) {
				return fmt.Errorf("%w: cannot %s replica %d, which is %s",
					ErrInvalidChange, verb, id, describeRole(m.Role))
			}
			if _, twice := wanted[id]; twice {
				return fmt.Errorf("%w: replica %d is named twice", ErrInvalidChange, id)
			}
			wanted[id] = role
		}
		return nil
	}
	if err := set(c.Promote, "promote", Voter, Learner); err != nil {
		return nil, err
	}
	if err := set(c.Demote, "demote", Learner, Voter); err != nil {
		return nil, err
	}
	if err := set(c.Remove, "remove", absent, Voter, Learner); err != nil {
		return nil, err
	}
	return wanted, nil
}

func describeRole(r Role) string {
	if r == absent {
		return "not a member"
	}
	return "a " + r.String()
}

func countVoterChanges(d Descriptor, wanted map[raftyard.ReplicaID]Role) int {
	n := 0
	for id, role := range wanted {
		if m, _ := d.Member(id); (m.Role == Voter) != (role == Voter) {
			n++
		}
	}
	return n
}

// changedRole returns the role on the way from one role to another.
func changedRole(from, to Role, joint bool) Role {
	switch {
	case !joint:
		return to
	case from == Voter && to == Learner:
		return Demoting
	case from == Voter && to == absent:
		return Outgoing
	case to == Voter:
		return Incoming
	default:
		return to
	}
}

// LeaveJoint returns the descriptor after d's joint configuration, one epoch on.
// If d is not joint, the result differs from d in the epoch alone, and no replica
// accepts it.
func (d Descriptor) LeaveJoint() Descriptor {
	next := d.Clone()
	next.Epoch++
	next.Members = next.Members[:0]
	for _, m := range d.Members {
		switch m.Role {
		case Outgoing:
			continue
		case Incoming:
			m.Role = Voter
		case Demoting:
			m.Role = Learner
		default:
		}
		next.Members = append(next.Members, m)
	}
	return next
}

// checkNext reports whether next may follow d. It is a function of the two alone:
// every replica that applies the change comes to the same answer.
func (d Descriptor) checkNext(next Descriptor) error {
	if next.Epoch != d.Epoch+1 {
		return fmt.Errorf("%w: the change leads to epoch %d, the group is at %d",
			ErrEpochMismatch, next.Epoch, d.Epoch)
	}
	if err := next.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidChange, err)
	}
	if !d.sameGroup(next) {
		return fmt.Errorf("%w: group, incarnation, kind and options cannot change",
			ErrInvalidChange)
	}
	if d.IsJoint() {
		if !next.Equal(d.LeaveJoint()) {
			return fmt.Errorf("%w: the group is joint and can only leave that", ErrInvalidChange)
		}
		return nil
	}
	return d.checkMembers(next)
}

// checkMembers is the part of checkNext that looks at each member, for a d that is
// not joint.
func (d Descriptor) checkMembers(next Descriptor) error {
	if next.NextReplica < d.NextReplica {
		return fmt.Errorf("%w: next replica goes back from %d to %d",
			ErrInvalidChange, d.NextReplica, next.NextReplica)
	}
	joint := next.IsJoint()
	voters, changes := 0, 0
	for _, m := range next.Members {
		before, _ := d.Member(m.ID)
		if err := d.checkMember(m, joint); err != nil {
			return err
		}
		if before.Role != m.Role {
			changes++
		}
		if (before.Role == Voter) != m.Role.newVoter() {
			voters++
		}
	}
	for _, m := range d.Members {
		if _, stays := next.Member(m.ID); stays {
			continue
		}
		changes++
		if m.Role == Voter {
			voters++
		}
		if m.Role == Voter && joint {
			return fmt.Errorf("%w: voter %d must be outgoing first", ErrInvalidChange, m.ID)
		}
	}
	switch {
	case changes == 0:
		return fmt.Errorf("%w: no member changes", ErrInvalidChange)
	case voters > 1 && !joint:
		return fmt.Errorf("%w: %d voters change without a joint configuration",
			ErrInvalidChange, voters)
	}
	return nil
}

// checkMember checks what becomes of one member of the next descriptor.
func (d Descriptor) checkMember(m Member, joint bool) error {
	before, was := d.Member(m.ID)
	switch {
	case !was && m.ID < d.NextReplica && !mutant.On(mutant.ReuseReplica):
		return fmt.Errorf("%w: replica id %d was given out before", ErrInvalidChange, m.ID)
	case was && before.Node != m.Node:
		return fmt.Errorf("%w: replica %d moves from node %d to %d",
			ErrInvalidChange, m.ID, before.Node, m.Node)
	case was && before.Store != m.Store:
		return fmt.Errorf("%w: replica %d moves from directory %s to %s",
			ErrInvalidChange, m.ID, before.Store, m.Store)
	case before.Role != m.Role && !allowedRole(before.Role, m.Role, joint):
		return fmt.Errorf("%w: replica %d is %s and cannot become %s",
			ErrInvalidChange, m.ID, describeRole(before.Role), m.Role)
	default:
		return nil
	}
}

// allowedRole reports whether a change may turn one role into another; joint says
// whether the change leads into a joint configuration.
func allowedRole(from, to Role, joint bool) bool {
	switch to {
	case Learner:
		return from == absent || from == Voter && !joint
	case Voter:
		return !joint && from != Voter
	case Incoming:
		return from == absent || from == Learner
	case Outgoing, Demoting:
		return from == Voter
	default:
		return false
	}
}

// confChange returns the change from d to next in raft's form. next must have
// passed checkNext.
func (d Descriptor) confChange(next Descriptor) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionAuto.Enum()}
	if d.IsJoint() {
		return cc // no changes: leave
	}
	if next.IsJoint() {
		cc.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	}
	add := func(id raftyard.ReplicaID, typ raftpb.ConfChangeType) {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{
			Type: typ.Enum(), NodeId: new(uint64(id)),
		})
	}
	for _, m := range next.Members {
		before, _ := d.Member(m.ID)
		if before.Role == m.Role {
			continue
		}
		switch m.Role {
		case Voter, Incoming:
			add(m.ID, raftpb.ConfChangeAddNode)
		case Learner, Demoting:
			add(m.ID, raftpb.ConfChangeAddLearnerNode)
		default:
			add(m.ID, raftpb.ConfChangeRemoveNode)
		}
	}
	for _, m := range d.Members {
		if _, stays := next.Member(m.ID); !stays {
			add(m.ID, raftpb.ConfChangeRemoveNode)
		}
	}
	slices.SortStableFunc(cc.Changes, func(a, b *raftpb.ConfChangeSingle) int {
		return cmp.Compare(a.GetNodeId(), b.GetNodeId())
	})
	return cc
}

// steps splits cc into the pieces that raft applies one after the other. raft
// makes every change of several members joint and leaves it by itself; a change
// of at most one voter needs neither, so its members are changed one by one, which
// comes to the same configuration.
func steps(cc *raftpb.ConfChangeV2) []*raftpb.ConfChangeV2 {
	if cc.GetTransition() != raftpb.ConfChangeTransitionAuto || len(cc.GetChanges()) <= 1 {
		return []*raftpb.ConfChangeV2{cc}
	}
	parts := make([]*raftpb.ConfChangeV2, len(cc.GetChanges()))
	for i, single := range cc.GetChanges() {
		parts[i] = &raftpb.ConfChangeV2{
			Transition: raftpb.ConfChangeTransitionAuto.Enum(),
			Changes:    []*raftpb.ConfChangeSingle{single},
		}
	}
	return parts
}

// rehearse plays the change from d to next on a copy of raft's configuration and
// compares the end, so that raft itself, which panics on a change that it does not
// like, only ever sees one that it has taken before.
func (d Descriptor) rehearse(next Descriptor) error {
	changer := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: 1}
	cfg, progress, err := confchange.Restore(changer, d.ConfState())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidChange, err)
	}
	for _, cc := range steps(d.confChange(next)) {
		changer.Tracker.Config, changer.Tracker.Progress = cfg, progress
		switch autoLeave, joint := cc.EnterJoint(); {
		case cc.LeaveJoint():
			cfg, progress, err = changer.LeaveJoint()
		case joint:
			cfg, progress, err = changer.EnterJoint(autoLeave, cc.GetChanges()...)
		default:
			cfg, progress, err = changer.Simple(cc.GetChanges()...)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidChange, err)
		}
	}
	changer.Tracker.Config = cfg
	if err := next.ConfState().Equivalent(changer.Tracker.ConfState()); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidChange, err)
	}
	return nil
}
