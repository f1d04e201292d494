package check

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/storage"
)

// Examined is what is seen of a node between two of its steps.
type Examined = world.Examined

// Replica is one replica of it.
type Replica = world.Replica

// An Identity names one replica. Two lives of it have the same.
type Identity struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Replica     raftyard.ReplicaID
	Node        raftyard.NodeID
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
	// LostUnseen: the disk has lied, and shows no trace of it. The others know, and tell it
	// before it can do any harm.
	LostUnseen
	// LostAll: the directory was wiped. No replica comes back under its id.
	LostAll
)

// A Write is a write of which a client was told that it is done.
type Write struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	// Index is where it was applied, as its group.Result says.
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

	// Nodes, if there are any, take the place of Voters and Learners: each shall have a
	// member in whichever role.
	Nodes []raftyard.NodeID
}

// A Violation is a rule that does not hold.
//
//nolint:errname // it is more than an error
type Violation struct {
	Rule Rule
	Text string
}

// Error implements error.
func (v Violation) Error() string { return v.Rule.String() + ": " + v.Text }

func violationf(rule Rule, format string, args ...any) Violation {
	return Violation{Rule: rule, Text: fmt.Sprintf(format, args...)}
}
