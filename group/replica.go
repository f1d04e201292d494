package group

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// A Replica is one member of one group. It is not safe for concurrent use: one
// goroutine at a time owns it. See the package comment for how it is driven.
type Replica struct {
	cfg settings
	rn  *raft.RawNode
	log *logView

	// state is the group's state as of the last entry that was handed out.
	state State
	// ready is set between Ready and Advance.
	ready bool
	// removed and closed end the replica's life as a member, and altogether.
	removed bool
	closed  bool

	view      view
	proposals proposals
	reads     reads
	change    *change
	skips     skips

	// outcomes wait for the next Output.
	outcomes []Outcome

	// speaks are the members that this leader need not send a heartbeat.
	speaks conversations

	// acked is what this replica has acknowledged last.
	acked acknowledgement

	// witnesses are what members have promised to this one. They are few, and looked at
	// with each message.
	witnesses []witness

	// takeover is the leader's wish to be followed by this replica, as long as that
	// waits until raft has nothing to hand out; nil: there is none.
	takeover *raftpb.Message
}

// A view is what the replica knows of raft, as of the last step. raft may have
// moved on since, through messages and ticks; what acts on the view therefore
// either does not mind or is refused by raft.
type view struct {
	leader raftyard.ReplicaID
	role   RaftRole

	// hard is raft's hard state, saved the part of it that is in some Save.
	hard  hardState
	saved hardState

	// first and last bound the log, with what is in a Save that is outstanding.
	// applied is the last index that was handed out.
	first   uint64
	last    uint64
	applied uint64

	// settled is what was handed out by steps that are done: it is committed, and
	// the storage has it, or has cut it off.
	settled uint64

	// safeLast is never more than the end of raft's log: messages since the last
	// step may have cut it.
	safeLast uint64

	// ownIndex is the first entry of this leader's own term, zero if none is
	// known: nothing of an earlier term is certainly committed before it is.
	ownIndex uint64

	// readMark is the highest position of its queue of reads for which this leader
	// has asked in a heartbeat; raft trusts what the answers say about it.
	readMark uint64

	// transferring: leadership may be on its way to another replica, and raft
	// takes no proposals.
	transferring bool
}

type hardState struct {
	term, vote, commit uint64
}

func hardStateOf(hs *raftpb.HardState) hardState {
	return hardState{term: hs.GetTerm(), vote: hs.GetVote(), commit: hs.GetCommit()}
}

// sameVote reports whether h and o differ in no more than the commit index.
func (h hardState) sameVote(o hardState) bool { return h.term == o.term && h.vote == o.vote }

func (h hardState) proto() *raftpb.HardState {
	p := &struct { // one piece of memory
		hs raftpb.HardState
		hardState
	}{hardState: h}
	p.hs.Term, p.hs.Vote, p.hs.Commit = &p.term, &p.vote, &p.commit
	return &p.hs
}

// ownTermCommitted reports whether this leader knows what is committed.
func (v *view) ownTermCommitted() bool {
	return v.role == Leader && v.ownIndex != 0 && v.hard.commit >= v.ownIndex
}

// usable returns why the replica cannot take part in its group, or nil.
func (r *Replica) usable() error {
	switch {
	case r.closed:
		return ErrStopped
	case r.removed:
		return ErrRemoved
	case r.state.IsZero():
		return ErrUninitialised
	default:
		return nil
	}
}

// mustLead returns nil if this replica leads the group as far as it knows.
func (r *Replica) mustLead() error {
	if err := r.usable(); err != nil {
		return err
	}
	if r.view.role != Leader {
		return r.notLeader()
	}
	return nil
}

func (r *Replica) notLeader() error {
	leader := r.view.leader
	if leader == r.cfg.Replica {
		leader = 0
	}
	return &NotLeaderError{Group: r.cfg.Group, Leader: leader}
}

// fault stops the replica by a panic that its driver recovers.
func (r *Replica) fault(err error, format string, args ...any) {
	panic(&FaultError{
		Group: r.cfg.Group, Replica: r.cfg.Replica, Reason: fmt.Sprintf(format, args...), Err: err,
	})
}

// State returns the group's state as of the last entry that was handed out.
func (r *Replica) State() State { return r.state }

// Tick moves the replica's clock by one tick.
func (r *Replica) Tick() {
	if r.usable() != nil {
		return
	}
	r.reads.tick(r.cfg.ElectionTicks)
	r.rn.Tick()
}

// Campaign starts an election at once, unless the replica leads already or has no
// vote.
func (r *Replica) Campaign() error {
	if err := r.usable(); err != nil {
		return err
	}
	return r.rn.Campaign()
}

// ForgetLeader makes a follower forget its leader, so that it neither refuses its
// vote for an election timeout nor waits that long before it campaigns. It is for
// a driver that knows better than the clock that the leader is gone.
func (r *Replica) ForgetLeader() error {
	if err := r.usable(); err != nil {
		return err
	}
	return r.rn.ForgetLeader()
}

// TransferLeader begins to hand leadership to another voter, which must have been
// heard of lately. Proposals wait meanwhile. If nothing comes of it within an
// election timeout, this replica goes on leading; LeaderChange and Status tell.
func (r *Replica) TransferLeader(to raftyard.ReplicaID) error {
	if err := r.mustLead(); err != nil {
		return err
	}
	if to == r.cfg.Replica {
		return nil
	}
	m, ok := r.state.Descriptor.Member(to)
	if !ok || !m.Role.newVoter() {
		return fmt.Errorf("%w: replica %d is %s", ErrTransfer, to, describeRole(m.Role))
	}
	active := false
	r.rn.WithProgress(func(id uint64, _ raft.ProgressType, p progress) {
		if id == uint64(to) {
			active = p.RecentActive
		}
	})
	if !active {
		return fmt.Errorf("%w: replica %d has not been heard of lately", ErrTransfer, to)
	}
	r.rn.TransferLeader(uint64(to))
	r.view.transferring = true
	return nil
}

// ReportUnreachable tells that messages to the replica were probably lost.
func (r *Replica) ReportUnreachable(id raftyard.ReplicaID) {
	if !r.closed && id != r.cfg.Replica {
		r.rn.ReportUnreachable(uint64(id))
	}
}

// ReportSnapshot tells what became of a MsgSnap to the replica. It must be called
// exactly once for each: until then the replica gets nothing else.
func (r *Replica) ReportSnapshot(id raftyard.ReplicaID, ok bool) {
	if r.closed || id == r.cfg.Replica {
		return
	}
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	r.rn.ReportSnapshot(uint64(id), status)
}

// Committed returns an index up to which the log that is durable is committed. It is for
// who starts the replica again without a restart of the program.
func (r *Replica) Committed() uint64 {
	if r.ready {
		return r.view.settled // the rest may not be what is on disk
	}
	return r.view.hard.commit
}

// Compacted notes that the log now begins after index.
func (r *Replica) Compacted(index uint64) {
	r.view.first = max(r.view.first, index+1)
	r.skips.compact(index)
}

// Close ends the replica and returns the outcome of everything that still waits:
// [ErrUnknown] for what is in the log, [ErrStopped] for the rest. Nothing happens
// in the replica afterwards. A driver also calls it after a panic.
func (r *Replica) Close() []Outcome {
	if r.closed {
		return nil
	}
	r.closed = true
	r.failQueued(ErrStopped)
	r.proposals.abandon(&r.outcomes)
	if c := r.change; c != nil {
		r.outcomes = append(r.outcomes, Outcome{Token: c.token, Err: ErrUnknown})
		r.change = nil
	}
	r.outcomes = r.reads.drop(r.outcomes, ErrStopped)
	out := r.outcomes
	r.outcomes = nil
	return out
}
