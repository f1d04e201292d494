package group

import (
	"errors"
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

	// Data is what was proposed. It may be empty: a proposal of nothing is a
	// command like any other, and whether it was nil is not kept. The state
	// machine must not modify Data, and must copy what it keeps of it after Apply
	// has returned.
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
	// result too. Nil is a good answer, and the same as an empty one. The state
	// machine must not modify Data once Apply has returned. An answer of 16 MiB
	// does not fit into a message: a proposer on another node is told that the
	// outcome is unknown.
	Data []byte
}

// A StateMachine is the state that a group replicates. Apply, Snapshot, Restore
// and Close are called one at a time, from whichever goroutine. Whatever the program
// reads through node.View, and [Querier] and [Sizer], may run beside Apply and
// Snapshot, several at a time, so what Apply changes needs a lock or atomics; they
// never run beside Restore or Close.
//
// What else a state machine can do it says by implementing [Durable], [Querier],
// [Hasher], [Sizer] or [Destroyer].
//
// The package grouptest checks an implementation against this contract.
type StateMachine interface {
	// Apply applies committed commands in order and returns one result for
	// each: results[i] is the answer to batch[i]. The batch is never empty and
	// holds all commands of each index in it; how indexes are put together
	// differs from replica to replica and must make no difference.
	//
	// Apply must be deterministic: the same commands from the same state give
	// the same state and results on every replica. It must not look at clocks,
	// dice, the order of a map or anything else outside of state and commands;
	// whoever proposes puts such things into the command. A command that makes
	// no sense is answered with a result that says so, not with an error.
	//
	// An error, a panic, or another number of results than of commands means that
	// this replica's state machine is broken. It stands still, in quarantine, and is
	// shown with the reason: its replica keeps the log and votes, the rest of the node
	// goes on, and whoever waits for one of these commands is told that its outcome is
	// unknown: it is committed, and other replicas may well apply it. When several
	// entries were applied at once the state machine is opened again and given them one
	// by one, so that it is known which it was. What breaks Apply on one replica for
	// the command's sake breaks it on all of them.
	Apply(batch []Command) ([]Result, error)

	// Snapshot returns a view of the state as it is now. The view stays as it
	// is while Apply goes on, until it is closed, and is written on another
	// goroutine. Snapshot itself must be quick: Apply waits for it. Several views
	// may be open at a time.
	Snapshot() (Snapshot, error)

	// Restore replaces the whole state by what r holds, which is what some
	// replica's Snapshot has written, or returns an error and changes nothing. It
	// must read r until that returns io.EOF, also when it knows that it has read
	// all: only io.EOF says that the whole snapshot has arrived undamaged. What a
	// decoder has understood before may still be cut off.
	Restore(r io.Reader) error

	// Close releases what the state machine holds. It does not delete the state.
	// Nothing is called after it.
	Close() error
}

// ErrFatal is wrapped by an error of a state machine that concerns more than its
// own replica: a store that many share cannot write any more. The node then vouches
// for nothing any more, as when its own log store fails.
var ErrFatal = errors.New("fatal for the node")

// A Snapshot is a state machine's state at one point in time. WriteTo is called
// at most once, Close exactly once, from one goroutine each.
type Snapshot interface {
	io.WriterTo
	io.Closer
}

// Checked is implemented by a state machine that looks after what it has stored, also when
// nobody reads it.
type Checked interface {
	// Damage returns why what is stored cannot be trusted any more, or nil. It is called about
	// once a second, beside everything else, and must be quick. The state machine then stands
	// still, until its replica has taken over the state of another member. An error that wraps
	// [ErrFatal] is the end of the node, as one of Apply is.
	Damage() error
}

// Durable is implemented by a state machine that keeps its own state on disk,
// together with the index that the state is at, in one atomic step. Restart begins
// after what it already has, and the log is cut only below it.
//
// One that is not Durable is rebuilt at every start, from the snapshot that the
// node keeps in a file and the log after it: Apply sees again what it has seen in
// an earlier life, so it must have no effects outside of the state.
type Durable interface {
	// Applied returns the index up to which all commands are durably applied, or
	// zero. After a Restore that is the index that the snapshot was taken at, so
	// the snapshot must carry it. Applied is called after the state machine is
	// opened, and after Apply and Restore, never beside them.
	//
	// Apply may return before its effects are durable, and Applied may be what
	// syncs them, but it must never run ahead of what a power failure would leave.
	// While it lags behind Apply the log is not cut.
	Applied() (index uint64, err error)
}

// Hasher is implemented by a state machine whose content can be compared
// between replicas, see node.Hash: equal states have equal hashes on every replica,
// and unequal states almost certainly have not.
type Hasher interface {
	// Hash returns the hash of the present state. It is never called beside Apply.
	Hash() ([]byte, error)
}

// Querier is implemented by a state machine that answers encoded questions, so
// that a node without a replica of the group can forward a read to one that has,
// see node.Query. Without it the program reads on nodes that have a replica, with
// node.View.
type Querier interface {
	// Query answers a question without changing the state. It may run beside
	// Apply and other queries. The answer must not be modified afterwards. An
	// error fails this read only.
	Query(query []byte) ([]byte, error)
}

// Sizer is implemented by a state machine that knows how much it stores.
type Sizer interface {
	// Size returns the number of bytes of live data, roughly what a snapshot
	// takes. It may run beside Apply.
	Size() int64
}

// Destroyer is implemented by a state machine that keeps state outside of
// [Env].Dir: in a database that it shares with others, for one.
type Destroyer interface {
	// Destroy deletes the state and releases what the state machine holds. It is
	// called instead of Close when the replica is removed for good. It may be
	// interrupted, or fail: then the state machine is opened again, after a pause or
	// the next start of the node, and Destroy is called again. If it fails several
	// times, a later replica of the group may be opened before.
	Destroy() error
}

// A Factory opens the state machine of one replica: a new one, or one that has
// been there before. It may be called for several replicas at a time, while the
// node opens and later on. After an error that replica is in quarantine, without a state
// machine, until somebody has it tried again or the node's next start; the rest of the
// node goes on.
//
// A state machine that has failed is closed, and may be opened again while the node
// runs. Close that takes longer than two seconds then, because a panic has left a lock
// locked, is not waited for; only the next start opens that one again.
//
// While the node runs, one that takes long holds up its own replica, one of the goroutines
// that run state machines, and the closing of the node.
//
// A replica that comes back under the same id is given the same Env as before, but
// for the Logger. Two replicas of one group on the same node, one after the other,
// have different Replica ids, and must not find each other's state.
type Factory func(env Env) (StateMachine, error)

// Env is what a [Factory] is told about the replica.
type Env struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Replica     raftyard.ReplicaID
	Node        raftyard.NodeID

	// Dir is a directory for this replica alone. It is not created before, and
	// is deleted when the replica is destroyed. The node keeps snapshots in it,
	// in files whose names begin with "snapshot-" and "incoming-".
	Dir string

	// Logger names the group in what it writes. It is never nil.
	Logger *slog.Logger
}
