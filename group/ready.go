package group

import (
	"cmp"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/mutant"
)

// HasReady reports whether [Replica.Ready] has anything to hand out. It is false
// between Ready and [Replica.Advance].
func (r *Replica) HasReady() bool {
	if r.ready || r.closed {
		return false
	}
	return len(r.outcomes) > 0 || r.canFlush() || r.canChange() || r.canRead() || r.canAnswer() ||
		r.rn.HasReady()
}

// Ready takes the next step and returns the work of it. When that is done, Advance
// must be called before the next one; until then Ready returns an empty Output.
func (r *Replica) Ready() Output {
	if !r.HasReady() {
		return Output{}
	}
	r.stepReads()
	changed := r.proposeChange()
	batches := r.flush()
	rd := r.rn.Ready()
	r.ready = true

	before, vote, commit := r.state.Index, r.view.saved, r.view.hard.commit
	r.noteProposed(rd.Entries, changed, batches)
	var out Output
	out.Leader = r.observe(rd)
	if !raft.IsEmptySnap(rd.Snapshot) {
		out.Install = r.install(rd.Snapshot)
	}
	skipAt := r.noteSkips(rd.Entries) // those behind a snapshot stay
	out.Apply = r.collect(rd.CommittedEntries)
	out.Save = r.save(rd, r.state.Index != before, skipAt)
	out.Removed = r.checkRemoved()
	if r.cfg.ElectionTicks >= saysMore*r.cfg.HeartbeatTicks {
		rd.Messages = r.speaks.leaveOut(rd.Messages)
	}
	rd.Messages = r.acked.dropRepeated(rd.Messages, r.view.hard.commit > commit)
	out.route(rd.Messages, !r.view.hard.sameVote(vote))
	r.view.noteReadMark(rd.Messages)
	out.Reads = r.reads.finish(nil, rd.ReadStates)
	out.Outcomes, r.outcomes = r.outcomes, nil
	// A proposal that raft has refused is worth another try when the tail of the
	// log is shorter.
	r.proposals.refused = r.proposals.refused && out.Apply == nil && out.Leader == nil
	return out
}

// Advance tells that the work of the last Output is done; see [Output].
func (r *Replica) Advance() {
	if !r.ready || r.closed {
		return
	}
	r.ready = false
	r.view.settled = r.view.applied
	r.rn.Advance(raft.Ready{})
	r.takeOver()
}

// noteProposed learns where raft has put what was proposed at the beginning of the
// step: nothing comes after it in the log. The batches are the last ones in flight.
func (r *Replica) noteProposed(entries []*raftpb.Entry, changed bool, batches int) {
	n := batches
	if changed {
		n++
	}
	if n > len(entries) {
		r.fault(nil, "raft took %d proposals and made %d entries", n, len(entries))
	}
	entries = entries[len(entries)-n:]
	if changed {
		r.noteChange(entries[0])
		entries = entries[1:]
	}
	fresh := r.proposals.inflight[len(r.proposals.inflight)-batches:]
	for i, e := range entries {
		fresh[i].index, fresh[i].term = e.GetIndex(), e.GetTerm()
	}
}

// observe brings the view up to date and returns what changed for the outside.
func (r *Replica) observe(rd raft.Ready) *LeaderChange {
	v := &r.view
	was := LeaderChange{Leader: v.leader, Role: v.role, Term: v.hard.term}
	if rd.SoftState != nil {
		v.leader, v.role = raftyard.ReplicaID(rd.Lead), roleOf(rd.RaftState)
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		v.hard = hardStateOf(rd.HardState)
	}
	if n := len(rd.Entries); n > 0 {
		v.last = rd.Entries[n-1].GetIndex()
	} else if !raft.IsEmptySnap(rd.Snapshot) {
		v.last = rd.Snapshot.GetMetadata().GetIndex()
	}
	v.safeLast = v.last
	now := LeaderChange{Leader: v.leader, Role: v.role, Term: v.hard.term}
	if now.Role != Leader || now.Term != was.Term || was.Role != Leader {
		v.ownIndex, v.readMark, v.transferring = 0, 0, false
		r.speaks.end()
	}
	if now.Role == Leader && v.ownIndex == 0 {
		for _, e := range rd.Entries {
			if e.GetTerm() == now.Term {
				v.ownIndex = e.GetIndex()
				break
			}
		}
	}
	if now == was {
		return nil
	}
	if now.Role != Leader {
		r.failQueued(r.notLeader())
		r.reads.held = nil
	}
	r.reads.restart()
	change := now // now is on the stack, mostly it is not new
	return &change
}

func roleOf(s raft.StateType) RaftRole {
	switch s {
	case raft.StateLeader:
		return Leader
	case raft.StateCandidate:
		return Candidate
	case raft.StatePreCandidate:
		return PreCandidate
	default:
		return Follower
	}
}

// install takes over the state of a snapshot that raft has accepted.
func (r *Replica) install(snap *raftpb.Snapshot) *Install {
	m, err := checkSnapshot(snap)
	if err != nil {
		r.fault(err, "raft accepted a snapshot that Step did not")
	}
	index := snap.GetMetadata().GetIndex()
	r.state = m.State
	r.view.applied = index
	r.view.first = index + 1
	r.skips = skips{}
	r.proposals.pass(index, &r.outcomes)
	r.passChange(index)
	return &Install{
		Index: index, Term: snap.GetMetadata().GetTerm(), Snapshot: snap, Manifest: m,
	}
}

// collect turns committed entries into an Apply.
func (r *Replica) collect(entries []*raftpb.Entry) *Apply {
	if len(entries) == 0 {
		return nil
	}
	first, last := entries[0], entries[len(entries)-1]
	if first.GetIndex() != r.view.applied+1 {
		r.fault(nil, "entry %d follows entry %d", first.GetIndex(), r.view.applied)
	}
	a := &Apply{First: first.GetIndex(), Last: last.GetIndex(), LastTerm: last.GetTerm()}
	for _, e := range entries {
		a.Bytes += len(e.GetData())
		tokens := r.proposals.decide(e, &r.outcomes)
		var err error
		if e.GetType() == raftpb.EntryNormal {
			r.collectNormal(a, e, tokens)
		} else {
			err = r.applyChange(e)
		}
		r.decideChange(e, err)
	}
	r.view.applied = a.Last
	a.State = r.state
	return a
}

// addTokens adds the tokens of n more commands, the last ones so far; they are nil if the
// commands are not ours.
func (a *Apply) addTokens(tokens []any, n int) {
	if len(tokens) != n {
		if a.Tokens == nil {
			return // nobody waits for any of them so far
		}
		tokens = make([]any, n)
	}
	if others := len(a.Commands) - n - len(a.Tokens); others > 0 {
		a.Tokens = make([]any, others, others+n)
	}
	if a.Tokens == nil {
		a.Tokens = tokens
		return
	}
	a.Tokens = append(a.Tokens, tokens...)
}

// save returns what must be written, or nil. A commit index alone is not: it rides
// along with the next write, and is known again from the leader or the applied
// index after a restart.
func (r *Replica) save(rd raft.Ready, newState bool, skipAt uint64) *Save {
	v := &r.view
	snapshot := !raft.IsEmptySnap(rd.Snapshot)
	if len(rd.Entries) == 0 && !snapshot && !newState && v.hard.sameVote(v.saved) {
		return nil
	}
	s := &Save{Entries: rd.Entries, SkipAt: skipAt}
	if v.hard != v.saved {
		s.HardState = v.hard.proto()
		if mutant.On(mutant.ForgetVote) {
			s.HardState.Vote = new(uint64(0))
		}
		v.saved = v.hard
	}
	if snapshot {
		s.Snapshot, s.Reset = rd.Snapshot, true
	}
	if newState && !mutant.On(mutant.ForgetMembers) || snapshot {
		state := r.state
		s.State = &state
	}
	return s
}

// checkRemoved reports whether this step has removed the replica.
func (r *Replica) checkRemoved() bool {
	if r.removed || r.state.IsZero() || r.isMember(uint64(r.cfg.Replica)) {
		return false
	}
	r.removed = true
	r.failQueued(ErrRemoved)
	r.outcomes = r.reads.drop(r.outcomes, ErrRemoved)
	return true
}

// step gives raft a message that was checked before.
func (r *Replica) step(m *raftpb.Message) {
	if err := r.rn.Step(m); err != nil {
		r.fault(err, "raft refused a %s", m.GetType())
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
