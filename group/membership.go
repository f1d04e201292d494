package group

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A change is a membership change that this replica has been asked for.
type change struct {
	cc    *raftpb.ConfChangeV2
	token any

	// logged: it is in the log, at index in term.
	logged      bool
	index, term uint64
}

// ChangeMembers proposes that the group's descriptor becomes next, which
// [Descriptor.Apply] or [Descriptor.LeaveJoint] has made of the present one. An
// error means that the change was refused and will not happen. Otherwise exactly
// one outcome follows in [Output.Outcomes]: nil when the change is applied here.
// One change of a replica is under way at a time.
func (r *Replica) ChangeMembers(next Descriptor, token any) error {
	if err := r.mustLead(); err != nil {
		return err
	}
	if r.change != nil {
		return ErrChangeInProgress
	}
	d := r.state.Descriptor
	if err := d.checkNext(next); err != nil {
		return err
	}
	if err := d.rehearse(next); err != nil {
		return err
	}
	cc := d.confChange(next)
	cc.Context = encodeChange(d.Epoch, next)
	if n := int64(proto.Size(cc)); n > r.proposals.limits.MaxEntryBytes {
		return fmt.Errorf("%w: a membership change of %d bytes, want at most %d",
			ErrTooLarge, n, r.proposals.limits.MaxEntryBytes)
	}
	r.change = &change{cc: cc, token: token}
	return nil
}

// canChange reports whether a membership change may enter the log now. Until a leader
// has applied all that was in its log when it was elected, raft refuses every change,
// and logs an empty entry in its place.
func (r *Replica) canChange() bool {
	v := &r.view
	return r.change != nil && !r.change.logged && !r.proposals.refused && r.canPropose() &&
		v.ownTermCommitted() && v.settled >= v.ownIndex
}

// proposeChange gives raft the membership change that waits. Its entry is the last
// one of raft's log then.
func (r *Replica) proposeChange() bool {
	if !r.canChange() {
		return false
	}
	if err := r.rn.ProposeConfChange(r.change.cc); err != nil {
		r.proposals.refused = true // as in flush
		return false
	}
	return true
}

// noteChange looks at the entry that raft has made of the change. raft says nothing
// when it refuses one because another may be under way: it logs an empty entry.
func (r *Replica) noteChange(e *raftpb.Entry) {
	c := r.change
	if e.GetType() != raftpb.EntryConfChangeV2 {
		r.outcomes = append(r.outcomes, Outcome{Token: c.token, Err: ErrChangeInProgress})
		r.change = nil
		return
	}
	c.logged, c.index, c.term = true, e.GetIndex(), e.GetTerm()
}

// decideChange ends the change of this replica if a committed entry decides it.
// err is what applying the entry came to.
func (r *Replica) decideChange(e *raftpb.Entry, err error) {
	c := r.change
	if c == nil || !c.logged || c.index > e.GetIndex() {
		return
	}
	if c.index != e.GetIndex() || c.term != e.GetTerm() {
		err = ErrDropped
	}
	r.outcomes = append(r.outcomes, Outcome{Token: c.token, Err: err})
	r.change = nil
}

// passChange ends the change if a snapshot has passed it.
func (r *Replica) passChange(index uint64) {
	if c := r.change; c != nil && c.logged && c.index <= index {
		r.outcomes = append(r.outcomes, Outcome{Token: c.token, Err: ErrUnknown})
		r.change = nil
	}
}

// applyChange applies a committed membership change and returns why it changes
// nothing, if so. The answer is a function of the entry and the descriptor before
// it.
func (r *Replica) applyChange(e *raftpb.Entry) error {
	switch {
	case e.GetIndex() == r.state.Index:
		return nil // the state is this entry's: it came with a snapshot or from the disk
	case e.GetIndex() < r.state.Index:
		return ErrUnknown // the state knows what became of it
	}
	d := r.state.Descriptor
	next, err := d.validChange(e)
	if err != nil {
		return err
	}
	// The new state comes first: raft may ask for a snapshot for a new member.
	r.state = State{Descriptor: next, Index: e.GetIndex()}
	var got *raftpb.ConfState
	for _, cc := range steps(d.confChange(next)) {
		got = r.rn.ApplyConfChange(cc)
	}
	if err := next.ConfState().Equivalent(got); err != nil {
		r.fault(err, "raft's configuration after entry %d is not the descriptor's", e.GetIndex())
	}
	return nil
}

// validChange returns the descriptor to which a committed change leads.
func (d Descriptor) validChange(e *raftpb.Entry) (Descriptor, error) {
	logged, err := decodeConfChange(e)
	if err != nil {
		return Descriptor{}, fmt.Errorf("%w: %w", ErrInvalidChange, err)
	}
	next := logged.next
	if logged.expect != d.Epoch {
		return Descriptor{}, fmt.Errorf("%w: the change is for epoch %d, the group is at %d",
			ErrEpochMismatch, logged.expect, d.Epoch)
	}
	if err := d.checkNext(next); err != nil {
		return Descriptor{}, err
	}
	want := d.confChange(next)
	want.Context = logged.cc.GetContext()
	if !proto.Equal(logged.cc, want) {
		return Descriptor{}, fmt.Errorf("%w: raft's part is not the descriptor's", ErrInvalidChange)
	}
	if err := d.rehearse(next); err != nil {
		return Descriptor{}, err
	}
	return next, nil
}
