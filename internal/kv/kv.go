// Package kv is the database under the log store: the little that package storage
// needs of one, so that a simulated database can take the place of Badger.
//
//	db, err := kv.OpenBadger(badgerdb.Options{Dir: dir})
//	err = db.Commit(func(w kv.Writer) error { return w.Set(key, value) })
//
// Its errors are those of package badgerdb, and those here.
package kv

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// What is said about a key or a transaction.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = badger.ErrKeyNotFound

	// ErrTooBig: a transaction is over the limits of the database. Nothing was written.
	ErrTooBig = badger.ErrTxnTooBig
)

// Opener opens the database in a directory, or makes it, as [badgerdb.Open] does.
type Opener func(badgerdb.Options) (DB, error)

// DB is an open database: keys in order, each with one value. Its methods may be
// called from several goroutines.
//
//nolint:interfacebloat // it is what a log store does with its database, in one place
type DB interface {
	// Commit makes what fn writes durable as one. A nil error means that it is on
	// disk, whole. An error of fn is returned as it is, and nothing is written; after
	// any other one, which wraps [badgerdb.ErrFailed], the outcome is unknown and no
	// later Commit succeeds.
	//
	// Commits are made one at a time, and each has a version one higher than the one
	// before. Keys and values must stay as they are until Commit has returned.
	Commit(fn func(Writer) error) error

	// Snapshot returns the database as of the newest commit. The caller discards it.
	Snapshot() Snapshot

	// MaxTxnBytes is how many bytes a transaction may hold: the sum of its keys and
	// values and of [badgerdb.EntryOverhead] for each pair. MaxTxnCount is how many
	// pairs, and MaxValueBytes how long a value may be.
	MaxTxnBytes() int64
	MaxTxnCount() int64
	MaxValueBytes() int64

	// TableBytes is how many bytes the database takes on disk beside its newest
	// writes. OpenSpace is how many must be free for it to be opened again, and
	// Reserve how many should be while it runs.
	TableBytes() int64
	OpenSpace() int64
	Reserve() int64

	// Close closes the database. All snapshots must have been discarded before.
	Close() error
}

// Writer takes the writes of one transaction.
type Writer interface {
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Snapshot is the database as it was after one commit. What it shows is kept until
// it is discarded. It is for one goroutine.
type Snapshot interface {
	// Get returns the value of a key in memory of its own, or [ErrNotFound]. An error that
	// wraps [badgerdb.ErrFailed] says nothing of what is stored: a write has failed. One that
	// wraps [badgerdb.ErrDamaged] says that this value is not what was written any more.
	Get(key []byte) ([]byte, error)

	// Scan calls fn with every pair, by key, until fn returns an error, which it
	// returns. Version is that of the commit which wrote the pair. Key and value may be
	// used until fn returns, and not be modified. A value that is not what was written any
	// more is given as nil: Get, which fn may call, says why.
	Scan(fn func(key, value []byte, version uint64) error) error

	// Discard releases the snapshot. More than one call does no harm.
	Discard()
}
