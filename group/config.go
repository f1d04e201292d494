package group

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"

	"github.com/raftyard/raftyard"
)

// Config says which replica [New] starts, and how. Everything durable in it was
// read from one consistent state of the disk.
type Config struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Node        raftyard.NodeID
	Replica     raftyard.ReplicaID

	// Store is the data directory that the replica is in. Zero: nobody minds. Otherwise
	// the replica takes no state that gives it to another directory.
	Store raftyard.StoreID

	// Storage is the replica's log. It must hold what a Save carried when Advance
	// is called. An error that it returns, other than those of raft's contract,
	// is a panic of the method that needed it.
	Storage raft.Storage

	// State is the newest state that a Save carried. Zero: the replica is
	// uninitialised. It then neither ticks nor campaigns nor serves, until the
	// leader's snapshot is installed.
	State State

	// Applied is the index up to which the state machine is durable, zero if it
	// has nothing. Entries after it are handed out again. It may be ahead of the
	// commit index on disk, because that is not written for its own sake. A state
	// machine that has nothing is as far as the log's snapshot if that is empty;
	// the replica's Status tells where it begins.
	Applied uint64

	// Commit is an index up to which the log is known to be committed, beside what is on
	// disk; see [Replica.Committed]. Zero: nothing more is known.
	Commit uint64

	// SkipAt is the greatest one that a Save of this replica has had: the last index at
	// which the log may have another entry skipped.
	SkipAt uint64

	// Skips are those that an Apply has had as Skipped, as long as their At is in the log.
	Skips []Skip

	// Boot tells this start of the replica from its earlier ones, so that the
	// answer to a read of an earlier life is not taken for one of this. Zero: a
	// random number.
	Boot uint64

	// ElectionTicks is after how many ticks without a leader an election starts,
	// HeartbeatTicks how many ticks lie between heartbeats. Defaults: 10 and 1.
	ElectionTicks  int
	HeartbeatTicks int

	// Limits bounds memory and message sizes. Zero fields have defaults.
	Limits Limits

	// Logger receives what raft has to say, under debug except for what is worth
	// a warning. Default: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.ElectionTicks = cmp.Or(c.ElectionTicks, 10)
	c.HeartbeatTicks = cmp.Or(c.HeartbeatTicks, 1)
	c.Limits = c.Limits.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports every setting that [New] would refuse. It does not look into
// the storage.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			text := fmt.Sprintf(format, args...)
			errs = append(errs, fmt.Errorf("%w config: %s", ErrInvalid, text))
		}
	}
	check(!c.Incarnation.IsZero(), "Incarnation must not be zero")
	check(c.Node != 0, "Node must not be zero")
	check(c.Replica != 0 && !raft.IsLocalMsgTarget(uint64(c.Replica)),
		"Replica %d is reserved", c.Replica)
	check(c.Storage != nil, "Storage must not be nil")
	check(c.HeartbeatTicks > 0, "HeartbeatTicks is %d, want at least 1", c.HeartbeatTicks)
	check(c.ElectionTicks > c.HeartbeatTicks,
		"ElectionTicks is %d, want more than HeartbeatTicks, %d", c.ElectionTicks, c.HeartbeatTicks)
	return errors.Join(append(errs, c.Limits.Validate())...)
}

// Limits bounds what a replica holds in memory and sends at once. Sizes are in
// bytes. A zero field means its default.
type Limits struct {
	// MaxEntryBytes bounds one log entry, so one command with its overhead, one
	// batch, and one membership change. Default: 1 MiB.
	MaxEntryBytes int64

	// MaxBatchCommands bounds the commands of one entry. Default: 4096,
	// as many as may wait.
	MaxBatchCommands int

	// MaxInflightBatches is how many entries of proposals may be in the log
	// without being committed. One is best on a fast network, where it makes
	// larger batches; more help when a round trip is long. Default: 1.
	MaxInflightBatches int

	// MaxQueuedProposals and MaxQueuedBytes bound the proposals that wait to
	// become part of an entry. Defaults: 4096 and 16 MiB.
	MaxQueuedProposals int
	MaxQueuedBytes     int64

	// MaxReads bounds the reads that wait for their index. Default: 4096.
	MaxReads int

	// MaxSizePerMsg bounds the entries of one message to a follower. Default:
	// 1 MiB.
	MaxSizePerMsg int64

	// MaxInflightMsgs and MaxInflightBytes bound what is on its way to one
	// follower. Defaults: 64 and 8 MiB.
	MaxInflightMsgs  int
	MaxInflightBytes int64

	// MaxUncommittedBytes bounds the tail of a leader's log that is not committed.
	// Default: 16 MiB.
	MaxUncommittedBytes int64

	// MaxCommittedSizePerReady bounds the entries of one Apply. Default: 4 MiB.
	MaxCommittedSizePerReady int64
}

const mib = 1 << 20

func (l Limits) withDefaults() Limits {
	l.MaxEntryBytes = cmp.Or(l.MaxEntryBytes, 1*mib)
	l.MaxBatchCommands = cmp.Or(l.MaxBatchCommands, 4096)
	l.MaxInflightBatches = cmp.Or(l.MaxInflightBatches, 1)
	l.MaxQueuedProposals = cmp.Or(l.MaxQueuedProposals, 4096)
	l.MaxQueuedBytes = cmp.Or(l.MaxQueuedBytes, 16*mib)
	l.MaxReads = cmp.Or(l.MaxReads, 4096)
	l.MaxSizePerMsg = cmp.Or(l.MaxSizePerMsg, 1*mib)
	l.MaxInflightMsgs = cmp.Or(l.MaxInflightMsgs, 64)
	l.MaxInflightBytes = cmp.Or(l.MaxInflightBytes, 8*mib)
	l.MaxUncommittedBytes = cmp.Or(l.MaxUncommittedBytes, 16*mib)
	l.MaxCommittedSizePerReady = cmp.Or(l.MaxCommittedSizePerReady, 4*mib)
	return l
}

// minEntryBytes leaves room for a membership change of dozens of members.
const minEntryBytes = 1024

// Validate reports every limit that is out of range or contradicts another.
func (l Limits) Validate() error {
	l = l.withDefaults()
	var errs []error
	atLeast := func(name string, got, want int64, why string) {
		if got < want {
			errs = append(errs, fmt.Errorf("%w limits: %s is %d, want at least %d%s",
				ErrInvalid, name, got, want, why))
		}
	}
	atLeast("MaxEntryBytes", l.MaxEntryBytes, minEntryBytes, "")
	atLeast("MaxBatchCommands", int64(l.MaxBatchCommands), 1, "")
	atLeast("MaxInflightBatches", int64(l.MaxInflightBatches), 1, "")
	atLeast("MaxQueuedProposals", int64(l.MaxQueuedProposals), 1, "")
	atLeast("MaxQueuedBytes", l.MaxQueuedBytes, l.MaxEntryBytes, " (MaxEntryBytes)")
	atLeast("MaxReads", int64(l.MaxReads), 1, "")
	atLeast("MaxSizePerMsg", l.MaxSizePerMsg, l.MaxEntryBytes, " (MaxEntryBytes)")
	atLeast("MaxInflightMsgs", int64(l.MaxInflightMsgs), 1, "")
	atLeast("MaxInflightBytes", l.MaxInflightBytes, l.MaxSizePerMsg, " (MaxSizePerMsg)")
	atLeast("MaxUncommittedBytes", l.MaxUncommittedBytes,
		l.MaxEntryBytes*int64(l.MaxInflightBatches), " (MaxEntryBytes x MaxInflightBatches)")
	atLeast("MaxCommittedSizePerReady", l.MaxCommittedSizePerReady, l.MaxEntryBytes,
		" (MaxEntryBytes)")
	return errors.Join(errs...)
}
