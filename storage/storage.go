// Package storage keeps the raft logs of every group on this node in one
// shared Badger store.
//
// A [Batch] may span groups. It is one transaction and costs one sync:
//
//	b := store.NewBatch()
//	b.Update(7, storage.Update{HardState: hs, Entries: entries})
//	b.Update(8, storage.Update{CompactTo: 5000})
//	err := b.Commit() // durable for every group in b, or for none
//
// A group's [Log] is its raft.Storage:
//
//	node, err := raft.NewRawNode(&raft.Config{Storage: store.Log(7), ...})
//
// # Promises
//
//   - A nil error of Commit means that the batch is on disk, whole. After a kill
//     or a power failure at any moment the store opens, with everything that was
//     committed and at most one batch more.
//   - What of one [Update] is durable is all of it: entries, hard state,
//     snapshot, meta and the cut of the log are never apart.
//   - Nothing that was committed disappears in silence. Every record carries a
//     checksum over its key and content; the log must be without gaps and reach
//     the commit index; and the newest batch is noted in a file beside Badger. A
//     replica for which one of these does not hold has a [Replica.Damage], no Log,
//     and never a shortened one. The other groups go on.
//   - After an error of a write or sync the Store refuses further work with
//     [ErrFailed]: a failed sync leaves the disk in an unknown state, and only a
//     restart can learn what was kept.
//
// # Files
//
// The store owns these names in the data directory: LOCK, IDENTITY, sequence, inventory and
// log, where a database of package internal/badgerdb is, with names of its own. Their formats
// are described in docs/formats/storage.md and pinned by the golden files in testdata.
package storage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// Each error here is one reaction of the caller.
var (
	// ErrFailed: a write or sync failed, now or earlier. What is on disk is
	// unknown. Stop the process; the next start finds out.
	ErrFailed = errors.New("storage: write failed")

	// ErrClosed: the Store is closed.
	ErrClosed = errors.New("storage: closed")

	// ErrDamaged: what was durable is not what it should be. The text says what
	// and where. The store, or the replica that has it, must not be used.
	ErrDamaged = errors.New("storage: damaged")

	// ErrTooLarge: a batch, an update or a part of one is over a limit, which the
	// text names; see [Store.Limits]. Nothing was written.
	ErrTooLarge = errors.New("storage: too large")

	// ErrInvalid: the batch does not fit to what is stored, e.g. entries that
	// would leave a gap. That is a fault of the caller. Nothing was written.
	ErrInvalid = errors.New("storage: invalid update")

	// ErrNotFound: the group has no live replica here. Nothing was written.
	ErrNotFound = errors.New("storage: no live replica")

	// ErrExists: the group has a live replica here. Nothing was written.
	ErrExists = errors.New("storage: replica exists")

	// ErrDestroyed: a replica with this id, or a newer one, was destroyed here.
	// Nothing was written.
	ErrDestroyed = errors.New("storage: replica was destroyed")

	// ErrRemains: a tombstone cannot be forgotten yet, because what it stands for
	// is not deleted. Nothing was written.
	ErrRemains = errors.New("storage: something is left of the destroyed replica")

	// ErrLocked: another process uses the data directory.
	ErrLocked = errors.New("storage: data directory is in use")

	// ErrWrongNode: the data directory belongs to another node.
	ErrWrongNode = errors.New("storage: data directory belongs to another node")

	// ErrWrongCluster: the data directory belongs to another cluster.
	ErrWrongCluster = errors.New("storage: data directory belongs to another cluster")

	// ErrFormat: the data directory was written by a newer version.
	ErrFormat = errors.New("storage: data directory has a newer format")

	// ErrIncomplete: a part of the data directory is missing.
	ErrIncomplete = errors.New("storage: data directory is incomplete")

	// ErrNoSpace: too little free disk space to open the store, or to write when waiting
	// for it is over, see [Store.StopWaiting]. Nothing was written.
	ErrNoSpace = badgerdb.ErrNoSpace
)

// Options say which store to open. The zero value of every field but Dir,
// Cluster and Node means "use the default".
type Options struct {
	// Dir is the node's data directory. It is created when missing.
	Dir string

	// Cluster and Node must be those that the directory was made with.
	Cluster uuid.UUID
	Node    raftyard.NodeID

	// CacheBytes bounds the memory for recent entries of all groups together.
	// Default: 64 MiB.
	CacheBytes int64

	// MemTableSize is the size of Badger's memtables in bytes; several may be
	// in memory at once. They are up to a quarter larger, by another part of it on each node,
	// so that not all nodes write their tables at once. A batch is limited to 15 % of
	// MemTableSize. Default: 16 MiB, see [badgerdb.DefaultMemTableSize] for what that trades.
	MemTableSize int64

	// ScrubRate is how many bytes of tables on disk are read a second, in the background, to
	// find damage before anybody needs what is in them, see [Store.TakeRotten]. An hour after
	// all were read it begins anew. Default: zero, which is never.
	ScrubRate int64

	// Logger gets what the store and Badger report. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.CacheBytes = cmp.Or(o.CacheBytes, 64<<20)
	o.MemTableSize = cmp.Or(o.MemTableSize, badgerdb.DefaultMemTableSize)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every problem in o. [Open] calls it.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("storage: options: "+format, args...))
		}
	}
	check(o.Dir != "", "Dir must not be empty")
	check(o.Cluster != uuid.Nil, "Cluster must not be zero")
	check(o.Node != 0, "Node must not be zero")
	check(o.CacheBytes > 0, "CacheBytes is %d, want a positive size", o.CacheBytes)
	check(o.ScrubRate >= 0, "ScrubRate is %d, want none or a positive rate", o.ScrubRate)
	check(o.MemTableSize >= badgerdb.MinMemTableSize && o.MemTableSize <= badgerdb.MaxMemTableSize,
		"MemTableSize is %d, want %d to %d",
		o.MemTableSize, badgerdb.MinMemTableSize, badgerdb.MaxMemTableSize)
	return errors.Join(errs...)
}
