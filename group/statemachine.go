package group

import (
	"io"
	"log/slog"

	"github.com/raftyard/raftyard"
)

// CommandID is a random 128-bit id that a command is given where it enters the
// cluster. It finds a command again in logs and traces.
type CommandID [16]byte

// A Command is one committed command of a group's log.
type Command struct {
	// Index is the log index of the entry that carried the command, and Offset
	// the command's position in that entry. (Index, Offset) rises strictly from
	// one command to the next, on every replica alike.
	Index  uint64
	Offset int

	ID CommandID

	// Data is what was proposed. The state machine must not modify it, and must
	// copy what it keeps after Apply has returned.
	Data []byte
}

// A Result is what a state machine answers to one command. It travels to the
// proposer, also over the network, and must be a function of the state and the
// command alone.
type Result struct {
	// Index is the log index at which the command was applied. The replica
	// fills it in; a state machine leaves it zero.
	Index uint64

	// Data is the answer, in a form that the state machine and its users agree
	// on. A command that the state machine refuses says so here: refusing is a
	// result too.
	Data []byte
}

// A StateMachine is the state that a group replicates. Apply, Snapshot, Restore
// and Close are called one at a time; whatever the program reads through
// node.View may run beside Apply and Snapshot, and the implementation must allow
// that, but never beside Restore or Close.
//
// The package grouptest checks an implementation against this contract.
type StateMachine interface {
	// Apply applies committed commands in order and returns one result for
	// each. It must be deterministic: the same commands from the same state give
	// the same state and results on every replica. An error (or a panic) means
	// that this replica's state machine is broken; the replica is stopped and
	// shown with the reason, and the rest of the node goes on.
	Apply(batch []Command) ([]Result, error)

	// Snapshot returns a view of the state as it is now. The view stays as it
	// is while Apply goes on, until it is closed, and is written on another
	// goroutine. Snapshot itself must be quick.
	Snapshot() (Snapshot, error)

	// Restore replaces the whole state by what r holds, which is what some
	// replica's Snapshot has written, or returns an error and changes nothing. It
	// must read r to its end: only io.EOF there says that the whole snapshot has
	// arrived undamaged.
	Restore(r io.Reader) error

	// Close releases what the state machine holds. It does not delete the state.
	Close() error
}

// A Snapshot is a state machine's state at one point in time. WriteTo is called
// at most once, Close exactly once, from one goroutine each.
type Snapshot interface {
	io.WriterTo
	io.Closer
}

// Durable is implemented by a state machine that keeps its own state on disk.
// Restart begins after what it already has, and the log is cut only below it.
// One that is not Durable is rebuilt at every start, from the snapshot that the
// node keeps in a file and the log after it.
type Durable interface {
	// Applied returns the index of the last command that is durably applied, or
	// zero. It is called after the state machine is opened, and after Apply and
	// Restore; Apply may return before its effects are durable, but Applied must
	// never run ahead of what a power failure would leave.
	Applied() (index uint64, err error)
}

// Hasher is implemented by a state machine whose content can be compared
// between replicas: equal states have equal hashes on every replica, and unequal
// states almost certainly have not.
type Hasher interface {
	// Hash returns the hash of the present state. It is never called beside Apply.
	Hash() ([]byte, error)
}

// Querier is implemented by a state machine that answers encoded questions, so
// that a node without a replica of the group can forward a read to one that has.
type Querier interface {
	// Query answers a question without changing the state. It may run beside
	// Apply.
	Query(query []byte) ([]byte, error)
}

// Sizer is implemented by a state machine that knows how much it stores.
type Sizer interface {
	// Size returns the number of bytes of live data, roughly what a snapshot
	// takes. It may run beside Apply.
	Size() int64
}

// Destroyer is implemented by a state machine that keeps state outside
// [Env].Dir. Destroy deletes it, in steps that can be interrupted and begun
// again, and is called instead of Close when the replica is removed for good.
type Destroyer interface {
	Destroy() error
}

// A Factory opens the state machine of one replica: a new one, or one that has
// been there before.
type Factory func(env Env) (StateMachine, error)

// Env is what a [Factory] is told about the replica.
type Env struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Replica     raftyard.ReplicaID
	Node        raftyard.NodeID

	// Dir is a directory for this replica alone. It is not created before, and
	// is deleted when the replica is destroyed.
	Dir string

	Logger *slog.Logger
}
