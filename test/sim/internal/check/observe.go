package check

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// An Examined is what is seen of a node between two steps.
type Examined struct {
	// Replicas are those that the node runs or shows, by group.
	Replicas []Replica
	// Stored is what its log store knows, tombstones included.
	Stored []storage.Replica
}

// A Replica is one replica of an examined node.
type Replica struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	ID          raftyard.ReplicaID
	Node        raftyard.NodeID

	// Serving is false for a replica that is stopped or damaged; Fault says why.
	Serving bool
	Fault   error

	Role   group.RaftRole
	Term   uint64
	Vote   raftyard.ReplicaID
	Lead   raftyard.ReplicaID
	Commit uint64
	First  uint64
	Last   uint64
	// Applied is how far the state machine is.
	Applied uint64
	State   group.State

	// Log is what is durable of the log; nil when it cannot be had.
	Log *storage.Log
}

// An Identity names one replica. Two lives of it have the same.
type Identity struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Replica     raftyard.ReplicaID
	Node        raftyard.NodeID
}

// Durable is what would be left of a node's logs after a power failure now.
type Durable interface {
	// Held returns what is durable of the group's replica, and false if nothing is.
	Held(g raftyard.GroupID) (Held, bool)
}

// Held is what is durable of one replica.
type Held struct {
	Incarnation raftyard.Incarnation
	ID          raftyard.ReplicaID
	Log         Log

	// Unsynced is set when the disk has less than Log says: a commit has returned
	// that is not durable.
	Unsynced bool
}

// Log is the part of [storage.Log] that is looked at.
type Log interface {
	HardState() *raftpb.HardState
	Bounds() (first, last uint64)
	Term(index uint64) (uint64, error)
}

var _ Log = (*storage.Log)(nil)

// Loss says what a node has lost in a crash, beyond what it had not synced.
type Loss uint8

// The losses.
const (
	// LostNothing: everything that was durable is still there.
	LostNothing Loss = iota
	// LostSome: the disk has lied, or was damaged. Each replica must either have
	// all that it promised, or be shown as stopped.
	LostSome
	// LostAll: the directory was wiped. No replica comes back under its id.
	LostAll
)

// A Write is a write of which a client was told that it is done.
type Write struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	// Index is where it was applied; see [group.Result].
	Index uint64
	// Data is the command, and Result the answer.
	Data   []byte
	Result []byte
}

// A Wish says where a group shall be.
type Wish struct {
	Incarnation raftyard.Incarnation
	Voters      []raftyard.NodeID
	Learners    []raftyard.NodeID
	Deleted     bool
}

// A Violation is a rule that does not hold.
type Violation struct {
	Rule Rule
	Text string
}

// Error implements error.
func (v Violation) Error() string { return v.Rule.String() + ": " + v.Text }
