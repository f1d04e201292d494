package group

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// An Output is the work of one step of a replica. The driver does it in the order
// of the fields and then calls [Replica.Advance]:
//
//	Messages ─▶ Install ─▶ Save, durable ─▶ After, Apply ─▶ Advance
//
// Nothing in it may be modified. Messages and After may be lost. The Apply only
// has to be queued before Advance, behind the earlier ones; the driver bounds that
// queue by leaving Ready uncalled. Reads and Outcomes may be told at once.
//
// While the driver works, other inputs may go into the replica; their output
// comes with the next step.
type Output struct {
	// Messages may be sent at once. They vouch for nothing that is in Save.
	Messages []*raftpb.Message

	// Install is a snapshot to install in the state machine before the Save. The
	// Output has no Apply then.
	Install *Install

	// Save must be durable, whole, before everything that follows. Nil: nothing
	// has to be written. A commit index alone is never a reason to write.
	Save *Save

	// After is sent when Save is durable.
	After []*raftpb.Message

	// Apply goes to the state machine when Save is durable.
	Apply *Apply

	// Reads may be answered when the state machine has applied their index.
	Reads []ReadReady

	// Outcomes are those of proposals, membership changes and reads. A proposal
	// that is applied has its outcome in Apply instead.
	Outcomes []Outcome

	// Leader tells of another leader, role or term.
	Leader *LeaderChange

	// Removed: a membership change in this step has removed this replica. It does
	// nothing any more but hand out what it still owes to others.
	Removed bool
}

// An Install is a snapshot that replaces the state machine's state.
type Install struct {
	Index    uint64
	Term     uint64
	Snapshot *raftpb.Snapshot
	Manifest Manifest
}

// A Save is what a replica must not forget. It is written in one durable step.
type Save struct {
	// HardState is nil when it has not changed.
	HardState *raftpb.HardState

	// Entries are appended at Entries[0].Index; what the log has from there on
	// goes.
	Entries []*raftpb.Entry

	// Snapshot, with Reset, replaces the whole log: it is empty after Snapshot's
	// index, before Entries are appended. Both come with an Install only.
	Snapshot *raftpb.Snapshot
	Reset    bool

	// State is the group's new state, or nil when it has not changed.
	State *State

	// SkipAt is the last index in Entries at which another entry is skipped, or zero. The
	// greatest one must be durable no later than the entries; see [Config].SkipAt.
	SkipAt uint64
}

// An Apply is a run of committed entries.
type Apply struct {
	// First and Last are the indexes of the run; LastTerm is the term of the entry
	// at Last. Entries without commands count.
	First    uint64
	Last     uint64
	LastTerm uint64

	// Commands of the run, and for each the token with which this replica proposed
	// it, or nil. Tokens is nil if it has proposed none of them.
	Commands []Command
	Tokens   []any

	// Skipped are the entries of the run that are skipped. It must be durable that they
	// are, before the state machine goes past them; see [Config].Skips.
	Skipped []Skip
	// Decided are the entries of the run that have others skipped. A state machine that
	// has applied one of those is not what the group has decided.
	Decided []Skip
	// Stop, if it is not nil, is an entry of the run at which the state machine has to
	// stop. There are no commands from there on.
	Stop *Stop

	// State is the group's state as of Last, except that after a restart it may
	// be ahead: State.Index is greater than Last then.
	State State

	// Bytes is the size of the run's entries.
	Bytes int
}

// A ReadReady is a read that may be answered from any state at or after Index.
type ReadReady struct {
	Token any
	Index uint64
}

// An Outcome ends a proposal, a membership change or a read. Err is nil if a
// membership change was applied.
type Outcome struct {
	Token any
	Err   error
}

// A LeaderChange says who leads the group now, and what this replica is.
type LeaderChange struct {
	Leader raftyard.ReplicaID // zero: unknown
	Role   RaftRole
	Term   uint64
}

// A RaftRole is what a replica is to raft in its term.
type RaftRole uint8

// The roles. A learner is a follower to raft.
const (
	Follower RaftRole = iota
	PreCandidate
	Candidate
	Leader
)

// String returns the role in lower case.
func (r RaftRole) String() string {
	switch r {
	case PreCandidate:
		return "pre_candidate"
	case Candidate:
		return "candidate"
	case Leader:
		return "leader"
	default:
		return "follower"
	}
}
