package badgerdb

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Commit runs fn with a transaction, and makes what it writes durable as one: one write to the
// journal and one sync. When fn returns an error nothing is written, and Commit returns that
// error as it is. When the write or the sync fails, Commit returns an error that
// wraps [ErrFailed], and so does every Commit after it.
//
// Without enough disk space Commit waits for it, before it calls fn, and ends with
// [ErrNoSpace] when the database is closed meanwhile; nothing is written then.
//
// Commits are made one at a time; fn must not call Commit, nor use its transaction after it
// has returned. To put more into a
// transaction than [DB.MaxTxnBytes] and [DB.MaxTxnCount] allow is
// [badger.ErrTxnTooBig] from the transaction, before anything is written.
//
// Who reads afterwards sees it, and waits for that if he must: Badger gets it beside the sync.
func (db *DB) Commit(fn func(*Txn) error) error {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	if err := db.usable(); err != nil {
		return err
	}
	if err := db.room.admit(); err != nil {
		return err
	}
	t := db.mover.take()
	t.version, t.mark = db.NextTs(), db.journal.mark
	// Without writes a transaction must not use up a number: that would be a hole. Nor is it
	// known before whether there are any, so a full file of the journal ends after this one.
	t.buf = append(t.buf, db.journal.page...)
	if err := fn(t); err != nil || len(t.pairs) == 0 {
		db.mover.give(t)
		return err
	}
	t.finish()
	version := t.version
	if err := db.write(t); err != nil {
		db.failed = fmt.Errorf("badgerdb: commit %d: %w: %w", version, ErrFailed, err)
		return db.failed
	}
	return nil
}

// usable returns why nothing can be written, or nil. The caller holds commitMu.
func (db *DB) usable() error {
	if db.failed == nil {
		db.failed = db.broken.err()
	}
	if db.failed == nil {
		db.failed = db.mover.failed()
	}
	return db.failed
}

// write makes a transaction durable, and has Badger get it. Badger may have it before it is
// durable, but nobody sees it there, and the memtable becomes a table only when a later commit
// has begun the next one, or at the end.
func (db *DB) write(t *Txn) error {
	db.pace.begin(time.Now())
	defer func() { db.pace.end(time.Now()) }()
	version := t.version
	if err := db.journal.write(t); err != nil {
		return err
	}
	db.values.note(t)
	if err := db.mover.push(t); err != nil { // the mover has it from here on
		return err
	}
	if err := db.journal.durable(db.journal.file); err != nil {
		db.doubtful = t
		return err
	}
	db.durable.Store(version)
	if err := db.journal.prepare(version); err != nil {
		return err
	}
	if db.profile == State {
		// Whoever has committed here reads at once; and a failure is his, too.
		return db.mover.wait(version)
	}
	return db.broken.err()
}

// settle returns when Badger has everything that is durable, or will not get it.
func (db *DB) settle() error { return db.mover.wait(db.durable.Load()) }

// reached returns when Badger has every commit that has returned. In the profile State those
// have waited for it, so whoever reads waits for nobody.
func (db *DB) reached() error {
	if db.profile == State {
		return db.mover.failed()
	}
	return db.settle()
}

// NextTs returns the timestamp that the next commit will have.
//
//nolint:staticcheck // Badger writes Ts
func (db *DB) NextTs() uint64 { return db.durable.Load() + 1 }

// MaxTxnBytes returns how many bytes a transaction may hold: the sum of its keys
// and values and of [EntryOverhead] for each pair.
func (db *DB) MaxTxnBytes() int64 { return db.maxTxnBytes }

// MaxTxnCount returns how many pairs a transaction may hold.
func (db *DB) MaxTxnCount() int64 { return db.maxTxnCount }

// MaxValueBytes returns how long a value may be. A longer one would go to
// Badger's value log, whose sync errors are not reported; do not set one.
func (db *DB) MaxValueBytes() int64 { return db.maxValue }

// Reserve returns how many bytes of free space the database should have while it
// runs: for its logs and the journal, with what it keeps for values, and for compactions that have
// fallen behind as far as Badger lets them.
func (db *DB) Reserve() int64 {
	o := db.Opts()
	return logSpace(o.MemTableSize) + db.keeps()*walSize(o.MemTableSize) +
		2*int64(o.NumLevelZeroTablesStall)*o.MemTableSize
}

// logSpace is what logs and the journal take at most, unless a reader keeps old logs or all
// transactions are of a few bytes. There are numMemtables+2 memtables with a log each, and the next
// log. The journal has what is in them in as many files and one, and there are spare ones.
func logSpace(memTable int64) int64 {
	const logs, files = numMemtables + 2 + 1, numMemtables + 2 + 1 + maxSpares
	return (logs + files) * walSize(memTable)
}

// keeps returns how many files the journal may have for the values in them, beside those that
// count.
func (db *DB) keeps() int64 {
	if db.minValue > int(db.maxValue) {
		return 0
	}
	return maxWaiting + valueSlack
}

// OpenSpace returns how many bytes of free disk space the database would need to
// be opened again, as it is now. With less than this a node that stops cannot come
// back.
func (db *DB) OpenSpace() int64 { return db.openSpace(db.tableBytes()) }

func (db *DB) openSpace(tables int64) int64 {
	o := db.Opts()
	logs := numMemtables + 1
	if db.keeps() > 0 {
		logs += maxWaiting
	}
	return openSpace(logs, tables, o.MemTableSize, o)
}

// View runs fn with a read-only transaction at the newest commit.
func (db *DB) View(fn func(*badger.Txn) error) error {
	s := db.Snapshot()
	defer s.Discard()
	if s.err != nil {
		return s.err
	}
	return fn(s.Txn)
}

// A Snapshot is a read-only transaction: the database as it was at one commit.
// What it shows is kept until it is discarded, and takes up space so long.
type Snapshot struct {
	*badger.Txn

	once      sync.Once
	readers   *readers
	values    *values
	elsewhere valueReader
	err       error
}

// Snapshot returns the database as of the newest commit that has returned. The caller discards it,
// after it has closed its iterators.
func (db *DB) Snapshot() *Snapshot {
	err := db.reached()
	ts := db.readers.enter(&db.durable, &db.committed)
	return &Snapshot{
		Txn: db.NewTransactionAt(ts, false), readers: &db.readers,
		values: db.values, elsewhere: valueReader{files: db.values.reader}, err: err,
	}
}

// Err returns why the snapshot may be older than the newest commit, or nil: Badger could not
// be given what is durable, which wraps [ErrFailed]. Nothing is committed any more then.
func (s *Snapshot) Err() error { return s.err }

// Discard releases the snapshot. More than one call does no harm.
func (s *Snapshot) Discard() {
	s.once.Do(func() {
		s.Txn.Discard()
		s.readers.leave(s.ReadTs())
	})
}
