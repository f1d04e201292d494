package group

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// A Witness is what one replica remembers of what another has promised to it. It comes
// from messages that vouch for what was durable when they left, so it holds for ever: a
// replica that has less has lost something that it had acknowledged. Nobody but those to
// whom it has spoken can know, when its own disk shows no trace of the loss.
type Witness struct {
	// Term is the highest one in which the replica has spoken, and Voted the last one in
	// which it has given its vote to the witness. Zero: none.
	Term  uint64
	Voted uint64

	// Acked is the last entry that it has acknowledged to the witness while that led
	// AckTerm. A later leader may have cut it off.
	AckTerm uint64
	Acked   Mark

	// Committed is an entry that it has acknowledged and that is committed: nobody ever
	// cuts it off.
	Committed Mark
}

// A Mark names an entry. Zero: none. With an index and no term the entry's term is not
// known.
type Mark struct{ Index, Term uint64 }

// IsZero reports whether w says nothing.
func (w Witness) IsZero() bool { return w == Witness{} }

// Append appends w in the form in which it travels between nodes.
func (w Witness) Append(b []byte) []byte {
	for _, v := range w.fields() {
		b = wire.AppendUvarint(b, *v)
	}
	return b
}

// ReadWitness reads what [Witness.Append] has written. Errors are those of r.
func ReadWitness(r *wire.Reader) Witness {
	var w Witness
	for _, v := range w.fields() {
		*v = r.Uvarint()
	}
	return w
}

func (w *Witness) fields() [7]*uint64 {
	return [7]*uint64{
		&w.Term, &w.Voted, &w.AckTerm, &w.Acked.Index, &w.Acked.Term,
		&w.Committed.Index, &w.Committed.Term,
	}
}

// remember takes note of what a message of a member vouches for. Raft has taken it.
func (r *Replica) remember(m *raftpb.Message) {
	if !vouches(m) || !r.isMember(m.GetFrom()) {
		return
	}
	id := raftyard.ReplicaID(m.GetFrom())
	w := r.witnessOf(id)
	w.Term = max(w.Term, m.GetTerm())
	switch {
	case m.GetReject():
	case m.GetType() == raftpb.MsgVoteResp:
		w.Voted = max(w.Voted, m.GetTerm())
	case m.GetType() == raftpb.MsgAppResp:
		r.rememberAck(w, m)
	default:
	}
}

// vouches reports whether the term of a message was durable at its sender. A pre-vote
// speaks of the term that would come next, and so does the answer that grants it.
func vouches(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgPreVote, raftpb.MsgReadIndex:
		return false
	case raftpb.MsgPreVoteResp:
		return m.GetReject()
	default:
		return true
	}
}

// rememberAck takes note of an entry that is acknowledged to this leader.
func (r *Replica) rememberAck(w *Witness, m *raftpb.Message) {
	v := &r.view
	if m.GetIndex() == 0 || v.role != Leader || v.hard.term != m.GetTerm() {
		return // it acknowledges nothing, or nothing of ours
	}
	if w.AckTerm == m.GetTerm() && w.Acked.Index >= m.GetIndex() {
		return
	}
	w.AckTerm = m.GetTerm()
	w.Acked = Mark{m.GetIndex(), r.leaderTerm(m.GetIndex())}
	r.rememberCommit(w)
}

// rememberCommit takes note of how much of what is acknowledged to this leader is
// committed by now.
func (r *Replica) rememberCommit(w *Witness) {
	if index := min(w.Acked.Index, r.view.hard.commit); index > w.Committed.Index {
		w.Committed = Mark{index, r.leaderTerm(index)}
	}
}

// leaderTerm returns the term of an entry of this leader's log, or zero if it is not
// known. What was there before it led is durable, and is asked for; the rest is its own,
// and may not have been written yet.
func (r *Replica) leaderTerm(index uint64) uint64 {
	v := &r.view
	if v.ownIndex != 0 && index >= v.ownIndex {
		return v.hard.term
	}
	term, err := r.cfg.Storage.Term(index)
	if err != nil {
		return 0
	}
	return term
}

// A witness is what is remembered of one member.
type witness struct {
	of raftyard.ReplicaID
	Witness
}

// witnessOf returns what is remembered of a member, to be changed at once.
func (r *Replica) witnessOf(id raftyard.ReplicaID) *Witness {
	if w := r.findWitness(id); w != nil {
		return w
	}
	if len(r.witnesses) > 2*len(r.state.Descriptor.Members) { // some are members no more
		r.witnesses = slices.DeleteFunc(r.witnesses, func(w witness) bool {
			return !r.isMember(uint64(w.of))
		})
	}
	r.witnesses = append(r.witnesses, witness{of: id})
	return &r.witnesses[len(r.witnesses)-1].Witness
}

// findWitness returns what is remembered of a member, nil if that is nothing.
func (r *Replica) findWitness(id raftyard.ReplicaID) *Witness {
	for i := range r.witnesses {
		if w := &r.witnesses[i]; w.of == id {
			return &w.Witness
		}
	}
	return nil
}

// Witness returns what this replica remembers of a member since it was started; the zero
// value is nothing.
func (r *Replica) Witness(of raftyard.ReplicaID) Witness {
	w := r.findWitness(of)
	if w == nil {
		return Witness{}
	}
	if r.view.role == Leader && r.view.hard.term == w.AckTerm {
		r.rememberCommit(w)
	}
	return *w
}

// CheckWitness compares what another replica remembers of this one with what there is. An
// error wraps [ErrDamaged]: this replica has lost something. It may be called at any
// time; a log that was legitimately cut is no loss. What was lost and has come back since
// is not noticed.
func (r *Replica) CheckWitness(from raftyard.ReplicaID, w Witness) error {
	v := &r.view
	tells := func(format string, args ...any) error {
		return damaged("replica %d knows better what replica %d had promised: "+format,
			append([]any{from, r.cfg.Replica}, args...)...)
	}
	switch {
	case v.hard.term < max(w.Term, w.Voted, w.AckTerm):
		return tells("it has spoken in term %d, and its hard state is of term %d",
			max(w.Term, w.Voted, w.AckTerm), v.hard.term)
	case w.Voted == v.hard.term && w.Voted != 0 && v.hard.vote != uint64(from):
		return tells("it has voted for %d in term %d, and its hard state has a vote for %d",
			from, w.Voted, v.hard.vote)
	}
	if why := r.lacks(w.Committed); why != "" {
		return tells("it has acknowledged entry %d, which is committed in term %d, and %s",
			w.Committed.Index, w.Committed.Term, why)
	}
	if w.AckTerm != v.hard.term {
		return nil // a later leader may have replaced what is not committed
	}
	if why := r.lacks(w.Acked); why != "" {
		return tells("it has acknowledged entry %d of term %d in term %d, and %s",
			w.Acked.Index, w.Acked.Term, w.AckTerm, why)
	}
	return nil
}

// lacks returns how it is that an entry is not here that must be, or nothing, also if that
// cannot be told now: a log that cannot be read stops its replica when it is.
func (r *Replica) lacks(e Mark) string {
	if e.Index == 0 || e.Index < r.view.first {
		return "" // what was cut off was committed
	}
	term, err := r.cfg.Storage.Term(e.Index)
	switch {
	case errors.Is(err, raft.ErrUnavailable):
		return fmt.Sprintf("it is not in the log, which ends at %d", r.view.last)
	case err != nil:
		return "" // cut off, or not to be told
	case e.Term != 0 && term != e.Term:
		return fmt.Sprintf("the log has one of term %d there", term)
	default:
		return ""
	}
}
