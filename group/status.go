package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/raftyard/raftyard"
)

type progress = tracker.Progress

// Status is a replica at one moment, as of its last step.
type Status struct {
	Group   raftyard.GroupID
	Replica raftyard.ReplicaID
	State   State

	Position

	// Transferee is the replica to which leadership is being handed, or zero.
	Transferee raftyard.ReplicaID

	Queued      int   // proposals that are not in the log yet
	QueuedBytes int64 // of those
	Inflight    int   // proposals in the log that are not decided
	Reads       int   // reads that wait for their index

	Uninitialised bool
	Removed       bool

	// Progress is what a leader knows of each member, itself included. Nil on
	// other replicas.
	Progress map[raftyard.ReplicaID]Progress
}

// Position is where a replica stands, as of its last step.
type Position struct {
	Role   RaftRole
	Term   uint64
	Vote   raftyard.ReplicaID
	Leader raftyard.ReplicaID // zero: unknown

	// First and Last bound the log. Applied is the last index that was handed out;
	// the state machine may be behind it.
	First   uint64
	Last    uint64
	Commit  uint64
	Applied uint64
}

// Position returns where the replica stands. It is cheap.
func (r *Replica) Position() Position {
	v := &r.view
	return Position{
		Role: v.role, Term: v.hard.term, Vote: raftyard.ReplicaID(v.hard.vote), Leader: v.leader,
		First: v.first, Last: v.last, Commit: v.hard.commit, Applied: v.applied,
	}
}

// QueuedBytes returns the bytes of the proposals that wait to become part of an entry, as
// Limits.MaxQueuedBytes counts them. It is cheap.
func (r *Replica) QueuedBytes() int64 { return r.proposals.bytes }

// Leads reports whether raft leads here at this moment. [Position] tells it as of the latest
// step; while that waits to be durable, and no other begins, the replica may have been deposed.
func (r *Replica) Leads() bool { return r.rn.BasicStatus().RaftState == raft.StateLeader }

// Progress is what a leader knows of one member.
type Progress struct {
	// Match is the last index that the member has acknowledged, Next the one that
	// it is sent next.
	Match uint64
	Next  uint64
	// State is probe, replicate or snapshot.
	State string
	// RecentActive: it has answered within the last election timeout or two.
	RecentActive bool
	Paused       bool
	Inflight     int // messages
	Learner      bool
	// PendingSnapshot is the index of a snapshot on its way, or zero.
	PendingSnapshot uint64
	// NeedsState: the log of the leader does not reach back to what it lacks, so that it can
	// acknowledge nothing before it has taken over a state.
	NeedsState bool
	// Declined: it was offered the leadership lately and has not taken it. Raft does not
	// know; whoever makes the offers says so to [Plan].
	Declined bool
	// Damaged: its own node says that it has lost something, so that it must be replaced.
	// Raft does not know that either.
	Damaged bool
}

// Status returns the replica's status. It allocates: it is for people and for
// decisions that are made now and then.
func (r *Replica) Status() Status {
	v := &r.view
	s := Status{
		Group: r.cfg.Group, Replica: r.cfg.Replica, State: r.state, Position: r.Position(),
		Queued: len(r.proposals.queue), QueuedBytes: r.proposals.bytes,
		Reads:         r.reads.count(),
		Uninitialised: r.state.IsZero(), Removed: r.removed,
	}
	for _, b := range r.proposals.inflight {
		s.Inflight += len(b.tokens)
	}
	if r.closed || v.role != Leader {
		return s
	}
	rs := r.rn.Status()
	first, err := r.cfg.Storage.FirstIndex()
	s.Transferee = raftyard.ReplicaID(rs.LeadTransferee)
	s.Progress = make(map[raftyard.ReplicaID]Progress, len(rs.Progress))
	for id, p := range rs.Progress {
		s.Progress[raftyard.ReplicaID(id)] = Progress{
			Match: p.Match, Next: p.Next, State: stateName(p.State),
			RecentActive: p.RecentActive, Paused: p.IsPaused(), Inflight: p.Inflights.Count(),
			Learner: p.IsLearner, PendingSnapshot: p.PendingSnapshot,
			NeedsState: err == nil && p.Match+1 < first,
		}
	}
	return s
}

func stateName(s tracker.StateType) string {
	switch s {
	case tracker.StateReplicate:
		return "replicate"
	case tracker.StateSnapshot:
		return "snapshot"
	default:
		return "probe"
	}
}
