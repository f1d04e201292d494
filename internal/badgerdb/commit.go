package badgerdb

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Commit runs fn with a writable transaction that reads what is committed, and
// makes its writes durable as one: one record in the write-ahead log and one
// sync. When fn returns an error nothing is written, and Commit returns that
// error as it is. When the write or the sync fails, Commit returns an error that
// wraps [ErrFailed], and so does every Commit after it.
//
// Without enough disk space Commit waits for it, before it calls fn, and ends with
// [ErrNoSpace] when the database is closed meanwhile; nothing is written then.
//
// Commits are made one at a time; fn must not call Commit. Keys and values that
// fn sets must stay as they are until Commit has returned. To put more into a
// transaction than [DB.MaxTxnBytes] and [DB.MaxTxnCount] allow is
// [badger.ErrTxnTooBig] from the transaction, before anything is written. After an error
// that wraps [ErrFailed] they must stay as they are for ever: Badger may still have them.
func (db *DB) Commit(fn func(*badger.Txn) error) error {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	if db.failed == nil {
		db.failed = db.broken.err()
	}
	if db.failed != nil {
		return db.failed
	}
	if err := db.room.admit(); err != nil {
		return err
	}
	last := db.committed.Load()
	txn := db.NewTransactionAt(last, true)
	defer txn.Discard()
	if err := fn(txn); err != nil {
		return err
	}
	// Commit at no timestamp succeeds for a transaction without writes and for no
	// other. Such a one must not use up a timestamp: that would be a hole.
	if txn.Commit() == nil {
		return nil
	}
	if err := db.write(txn, last+1); err != nil {
		db.failed = fmt.Errorf("badgerdb: commit %d: %w: %w", last+1, ErrFailed, err)
		return db.failed
	}
	db.committed.Store(last + 1)
	// Always below the newest commit, so that whatever compaction drops, the newest
	// version in the files stays that of the newest commit: recovery and checkTables
	// count on it. At once, because a compaction that keeps what is hidden brings it,
	// with the deletion, to where nothing looks at it again.
	db.SetDiscardTs(db.readers.oldest(last))
	return nil
}

// write writes a transaction and makes it durable. It is in Badger's memtable before that, but
// nobody sees it there, and the memtable becomes a table only when a later commit has begun the
// next one, or at the end.
func (db *DB) write(txn *badger.Txn, ts uint64) error {
	db.pace.begin(time.Now())
	defer func() { db.pace.end(time.Now()) }()
	if err := db.broken.commit(txn, ts); err != nil {
		return err
	}
	if err := db.wal.afterCommit(); err != nil {
		return err
	}
	return db.broken.err()
}

// NextTs returns the timestamp that the next commit will have.
//
//nolint:staticcheck // Badger writes Ts
func (db *DB) NextTs() uint64 { return db.committed.Load() + 1 }

// MaxTxnBytes returns how many bytes a transaction may hold: the sum of its keys
// and values and of [EntryOverhead] for each pair.
func (db *DB) MaxTxnBytes() int64 { return db.maxTxnBytes }

// MaxTxnCount returns how many pairs a transaction may hold.
func (db *DB) MaxTxnCount() int64 { return db.maxTxnCount }

// MaxValueBytes returns how long a value may be. A longer one would go to
// Badger's value log, whose sync errors are not reported; do not set one.
func (db *DB) MaxValueBytes() int64 { return db.maxValue }

// Reserve returns how many bytes of free space the database should have while it
// runs: for all memtables and their logs, and for compactions that have fallen
// behind as far as Badger lets them.
func (db *DB) Reserve() int64 {
	o := db.Opts()
	return int64(numMemtables+2)*o.MemTableSize*115/100 +
		2*int64(o.NumLevelZeroTablesStall)*o.MemTableSize
}

// OpenSpace returns how many bytes of free disk space the database would need to
// be opened again, as it is now. With less than this a node that stops cannot come
// back.
func (db *DB) OpenSpace() int64 { return db.openSpace(db.tableBytes()) }

func (db *DB) openSpace(tables int64) int64 {
	o := db.Opts()
	return openSpace(numMemtables+1, tables, o.MemTableSize, o)
}

// View runs fn with a read-only transaction at the newest commit.
func (db *DB) View(fn func(*badger.Txn) error) error {
	s := db.Snapshot()
	defer s.Discard()
	return fn(s.Txn)
}

// A Snapshot is a read-only transaction: the database as it was at one commit.
// What it shows is kept until it is discarded, and takes up space so long.
type Snapshot struct {
	*badger.Txn

	once    sync.Once
	readers *readers
}

// Snapshot returns the database as of the newest commit. The caller discards it,
// after it has closed its iterators.
func (db *DB) Snapshot() *Snapshot {
	ts := db.readers.enter(&db.committed)
	return &Snapshot{Txn: db.NewTransactionAt(ts, false), readers: &db.readers}
}

// Discard releases the snapshot. More than one call does no harm.
func (s *Snapshot) Discard() {
	s.once.Do(func() {
		s.Txn.Discard()
		s.readers.leave(s.ReadTs())
	})
}
