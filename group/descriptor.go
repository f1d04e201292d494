package group

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// A Role is what a member does in its group.
//
// A group that changes more than one voter passes through a joint configuration,
// in which every decision takes a majority of the old voters and a majority of
// the new ones:
//
//	                  enter joint                leave joint
//	absent, Learner ───────────────▶ Incoming ───────────────▶ Voter
//	Voter           ───────────────▶ Outgoing ───────────────▶ absent
//	Voter           ───────────────▶ Demoting ───────────────▶ Learner
//
// A group is joint if and only if it has a member in one of the middle roles.
type Role uint8

// The roles. Zero is none of them.
const (
	// Voter has a vote, in both halves of a joint configuration.
	Voter Role = iota + 1
	// Learner receives the log and has no vote.
	Learner
	// Incoming is a voter of the new half only.
	Incoming
	// Outgoing is a voter of the old half only, and leaves with it.
	Outgoing
	// Demoting is a voter of the old half only, and becomes a learner.
	Demoting
)

// String returns the role in lower case.
func (r Role) String() string {
	switch r {
	case Voter:
		return "voter"
	case Learner:
		return "learner"
	case Incoming:
		return "incoming"
	case Outgoing:
		return "outgoing"
	case Demoting:
		return "demoting"
	default:
		return fmt.Sprintf("role(%d)", uint8(r))
	}
}

func (r Role) known() bool { return r >= Voter && r <= Demoting }

// newVoter reports whether r votes in the new, or only, half.
func (r Role) newVoter() bool { return r == Voter || r == Incoming }

// oldVoter reports whether r votes in the old half of a joint configuration.
func (r Role) oldVoter() bool { return r == Voter || r == Outgoing || r == Demoting }

// A Member is one replica of a group.
type Member struct {
	ID   raftyard.ReplicaID
	Node raftyard.NodeID
	Role Role

	// Store is the data directory that the replica was given to. It is a member there
	// and nowhere else: another directory, under the same node id, has forgotten what
	// the replica has promised. Zero: not known; see [NodeStore]. It never changes.
	Store raftyard.StoreID
}

// A Descriptor says what a group is and who its members are. It is replicated:
// every membership change carries the descriptor that holds after it.
type Descriptor struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation

	// Kind names the state machine. It never changes.
	Kind string

	// Epoch counts the membership changes; a new group is at epoch 1.
	Epoch uint64

	// NextReplica is greater than every replica id that was ever given out.
	NextReplica raftyard.ReplicaID

	// Members are in ascending order of ID, at most one on a node.
	Members []Member

	// SnapshotEntries is after how many applied entries a replica takes a
	// snapshot, TrailingEntries how many entries before it stay in the log.
	SnapshotEntries uint64
	TrailingEntries uint64
}

// maxKind bounds the length of a kind's name.
const maxKind = 255

// IsZero reports whether d describes no group.
func (d Descriptor) IsZero() bool {
	return d.Group == 0 && d.Incarnation.IsZero() && d.Kind == "" && d.Epoch == 0 &&
		d.NextReplica == 0 && len(d.Members) == 0 &&
		d.SnapshotEntries == 0 && d.TrailingEntries == 0
}

// Clone returns a copy that shares nothing with d.
func (d Descriptor) Clone() Descriptor {
	d.Members = slices.Clone(d.Members)
	return d
}

// Equal reports whether d and o say the same.
func (d Descriptor) Equal(o Descriptor) bool {
	return d.sameGroup(o) && d.Epoch == o.Epoch && d.NextReplica == o.NextReplica &&
		slices.Equal(d.Members, o.Members)
}

// sameGroup reports whether what no membership change may touch is equal.
func (d Descriptor) sameGroup(o Descriptor) bool {
	return d.Group == o.Group && d.Incarnation == o.Incarnation && d.Kind == o.Kind &&
		d.SnapshotEntries == o.SnapshotEntries && d.TrailingEntries == o.TrailingEntries
}

// Member returns the member with the id.
func (d Descriptor) Member(id raftyard.ReplicaID) (Member, bool) {
	for i := range d.Members { // they are few, and it is asked several times for each message
		switch m := &d.Members[i]; {
		case m.ID == id:
			return *m, true
		case m.ID > id: // they are sorted
			return Member{}, false
		}
	}
	return Member{}, false
}

// MemberOn returns the member on the node.
func (d Descriptor) MemberOn(node raftyard.NodeID) (Member, bool) {
	for _, m := range d.Members {
		if m.Node == node {
			return m, true
		}
	}
	return Member{}, false
}

// IsJoint reports whether the group is between an old and a new set of voters.
func (d Descriptor) IsJoint() bool {
	return slices.ContainsFunc(d.Members, func(m Member) bool {
		return m.Role != Voter && m.Role != Learner
	})
}

// Voters returns the members that vote in the new, or only, half, by ID.
func (d Descriptor) Voters() []Member {
	var voters []Member
	for _, m := range d.Members {
		if m.Role.newVoter() {
			voters = append(voters, m)
		}
	}
	return voters
}

// ConfState returns the configuration in the form that raft keeps.
func (d Descriptor) ConfState() *raftpb.ConfState {
	cs := &raftpb.ConfState{AutoLeave: new(false)}
	joint := d.IsJoint()
	for _, m := range d.Members {
		id := uint64(m.ID)
		if m.Role.newVoter() {
			cs.Voters = append(cs.Voters, id)
		}
		if joint && m.Role.oldVoter() {
			cs.VotersOutgoing = append(cs.VotersOutgoing, id)
		}
		switch m.Role {
		case Learner:
			cs.Learners = append(cs.Learners, id)
		case Demoting:
			cs.LearnersNext = append(cs.LearnersNext, id)
		default:
		}
	}
	return cs
}

// Validate reports every rule that d breaks, wrapped in [ErrInvalid].
func (d Descriptor) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			text := fmt.Sprintf(format, args...)
			errs = append(errs, fmt.Errorf("%w descriptor: %s", ErrInvalid, text))
		}
	}
	check(!d.Incarnation.IsZero(), "incarnation must not be zero")
	check(d.Kind != "" && len(d.Kind) <= maxKind,
		"kind has %d bytes, want 1 to %d", len(d.Kind), maxKind)
	check(d.Epoch != 0, "epoch must not be zero")

	nodes := make(map[raftyard.NodeID]bool, len(d.Members))
	newVoters, oldVoters := 0, 0
	var before raftyard.ReplicaID
	for _, m := range d.Members {
		check(m.ID != 0 && !raft.IsLocalMsgTarget(uint64(m.ID)), "replica id %d is reserved", m.ID)
		check(m.ID > before || m.ID == 0,
			"replica %d comes after %d, want ascending order", m.ID, before)
		check(m.ID < d.NextReplica, "replica %d is not below next replica %d", m.ID, d.NextReplica)
		check(m.Node != 0, "replica %d: node must not be zero", m.ID)
		check(!nodes[m.Node], "node %d has more than one replica", m.Node)
		check(m.Role.known(), "replica %d: unknown %s", m.ID, m.Role)
		nodes[m.Node] = true
		before = m.ID
		if m.Role.newVoter() {
			newVoters++
		}
		if m.Role.oldVoter() {
			oldVoters++
		}
	}
	check(newVoters > 0, "there must be a voter")
	check(oldVoters > 0 || !d.IsJoint(), "the old half has no voter")
	return errors.Join(errs...)
}
