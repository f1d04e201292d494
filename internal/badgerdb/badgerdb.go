// Package badgerdb opens and drives a Badger database in the one way in which
// raftyard trusts it with data.
//
// Badger alone is not enough: its defaults do not sync, its replay silently cuts
// a damaged write-ahead log, a missing MANIFEST opens as an empty database, and
// some damage ends the process in a goroutine that nobody can recover.
// [Open] therefore looks at every file before Badger does, and refuses with an
// error that names the file; what it accepts, Badger opens without losing
// anything that was committed.
//
// The database runs in managed mode. Commits are made one at a time, each with
// the timestamp after the one before it, so that the numbers in the journal
// have no holes, which is what lets Open tell damage from a torn tail:
//
//	err := db.Commit(func(txn *badgerdb.Txn) error { return txn.Set(key, value) })
//
// A nil error means that the transaction is on disk, whole. After an error of a
// write or sync nothing more is written until the next Open: a failed sync
// leaves the disk in a state that only a restart can learn.
//
// # Files
//
// What is durable is in a journal of our own until Badger has made tables of it, see [journal].
// Beside the names that Badger has in the directory these are the package's: NNNNN.jnl, a file of
// the journal; NNNNN.free and NNNNN-new.free, those that will be; RESERVE, space for when there
// is no other; and DAMAGED, which says that a table was lost. The log that Badger begins next,
// NNNNN.mem, is made beforehand, and after a crash the journal takes the place of such logs.
// docs/formats/storage.md has the format of the journal and the rules for reading it.
package badgerdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/skl"
)

// Each error here is one reaction of the caller.
var (
	// ErrFailed: an earlier or this commit could not be written or synced. What
	// of it is on disk is unknown; stop the process.
	ErrFailed = errors.New("database write failed")

	// ErrDamaged: the files are not what a database that was killed or lost
	// power would leave. The text says which file and what is wrong with it.
	ErrDamaged = errors.New("database is damaged")

	// ErrLocked: another process, or another DB of this one, has the database open.
	ErrLocked = errors.New("database is in use")

	// ErrNoSpace: too little free space to open the database. Badger writes
	// through memory maps, where a full disk is a fatal signal, so this is
	// checked before it starts.
	ErrNoSpace = errors.New("not enough free disk space")
)

// ErrLater is what [Options.Rewrite] returns as long as it must not write.
var ErrLater = errors.New("not yet")

// A Profile is a set of Badger options for one kind of data.
type Profile uint8

const (
	// Log is for records that are written once, overwritten soon, and hardly
	// ever read: no compression, no caches, a wide level 0.
	Log Profile = iota

	// State is for data that stays and is read: Snappy, a block cache and an
	// index cache.
	State
)

// String returns the name of the profile.
func (p Profile) String() string {
	switch p {
	case Log:
		return "log"
	case State:
		return "state"
	default:
		return fmt.Sprintf("Profile(%d)", uint8(p))
	}
}

const (
	// DefaultMemTableSize decides how much memory a node takes. A database may
	// hold NumMemtables+2 = 5 memtables; more is in the builders of tables, up to
	// eight of which Badger keeps for the next table, each as large as the largest
	// it was used for. That is the table of a memtable: 1.5 times its size, with
	// compression of 4 KiB values 3 times. No other option changes that.
	//
	// Against 32 MiB, under a full load of 4 KiB values on two databases, the heap's
	// peak is lower by a quarter, at the same throughput, as level 0 has twice as
	// many tables instead (see Options.badger). A node with memory to spare and a
	// thousand busy groups should ask for 64 MiB.
	DefaultMemTableSize = 16 << 20

	// MinMemTableSize is the smallest memtable that works; transactions are
	// limited to 15 % of it.
	MinMemTableSize = 1 << 20

	// MaxMemTableSize keeps the write-ahead log, of twice the size, in the 32
	// bits that Badger has for it.
	MaxMemTableSize = 512 << 20

	// EntryOverhead is what each key and value counts in a transaction beside
	// their own bytes, see [DB.MaxTxnBytes].
	EntryOverhead = 12

	numMemtables = 3

	// logBlockSize lets the largest record of a log fit into a block as it is begun. One
	// that does not has its block copied, into one of twice the size at last, and the
	// builder keeps all of them, so that a table takes three times its size of memory. A
	// large block costs nothing where it is not compressed: a read finds its key by
	// binary search and touches no more pages.
	logBlockSize = 520 << 10
)

// Options say which database to open and how. The zero value of every field but
// Dir means "use the default".
type Options struct {
	// Dir holds the database and nothing else. It is created when missing, but
	// its parent is not.
	Dir string

	// MemTableSize, in bytes, is the size of a memtable and half that of its
	// write-ahead log. It limits a transaction to 15 % of it, and may change
	// between one Open and the next: a smaller one counts from the next Open on
	// after a database that was not closed. Default: [DefaultMemTableSize].
	MemTableSize int64

	// Stagger makes memtables larger than MemTableSize, by up to a quarter: by another part of it
	// for each number, and by nothing for zero. The members of a group write the same to their
	// databases. With memtables of one size all would write a table at the same time, and a
	// majority of them would be busy with it; with numbers that follow each other, as those of
	// nodes do, they take turns. What a transaction may hold does not change.
	Stagger uint64

	Profile Profile

	// BlockCacheSize and IndexCacheSize are in bytes and used by the [State]
	// profile only. Defaults: 64 MiB and 32 MiB.
	BlockCacheSize int64
	IndexCacheSize int64

	// Fill commits a transaction of about so many bytes that say nothing, or a
	// small one for zero, which is the last. It is called, from a goroutine of
	// the DB, to push the memtable to disk when the database is quiet and that
	// returns much space. An error ends that. Default: a key of the database's
	// own is written and deleted again.
	Fill func(size int) error

	// Rewrite commits what fn writes in a transaction: pairs that are there already, from a file
	// of which little else counts. It is called from a goroutine of the DB. An error ends that
	// for a while; [ErrLater] is none. Default: [DB.Commit].
	Rewrite func(fn func(Setter) error) error

	// ScrubRate is how many bytes of tables are read a second, in the background, to compare
	// them with their checksums. An hour after all were read it begins anew. Zero: never.
	ScrubRate int64

	// Damaged is called for each table that is found to be damaged, by that or before a merge, from
	// a goroutine of the DB, and again each time that it is found so. Close waits for it; ctx
	// ends then. To read the database it uses [Guard]. Default: nobody is told.
	Damaged func(ctx context.Context, d Damage)

	// Logger gets what Badger reports. Default: discard.
	Logger *slog.Logger

	minValue int // the shortest value that stays in the journal, for the Log profile

	nominal int64 // MemTableSize before it was changed; what a transaction may hold follows it
}

func (o Options) withDefaults() Options {
	o.MemTableSize = cmp.Or(o.MemTableSize, DefaultMemTableSize)
	o.nominal = cmp.Or(o.nominal, o.MemTableSize)
	o.minValue = cmp.Or(o.minValue, minValue)
	if o.Profile != Log {
		o.minValue = math.MaxInt
	}
	o.BlockCacheSize = cmp.Or(o.BlockCacheSize, 64<<20)
	o.IndexCacheSize = cmp.Or(o.IndexCacheSize, 32<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// staggered returns options with memtables as Stagger wants them: multiples of the golden ratio
// lie apart from each other, however many there are.
func (o Options) staggered() Options {
	const golden = 0x9e3779b97f4a7c15 // of 2^64
	o.MemTableSize += int64(float64(o.Stagger*golden) / (1 << 64) * float64(o.MemTableSize/4))
	return o
}

// Validate reports every problem in o. [Open] calls it.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("badgerdb: options: "+format, args...))
		}
	}
	check(o.Dir != "", "Dir must not be empty")
	check(o.MemTableSize >= MinMemTableSize && o.MemTableSize <= MaxMemTableSize,
		"MemTableSize is %d, want %d to %d", o.MemTableSize, MinMemTableSize, MaxMemTableSize)
	check(o.Profile <= State, "Profile is %d, want Log or State", o.Profile)
	check(o.ScrubRate >= 0, "ScrubRate is %d, want none or a positive rate", o.ScrubRate)
	check(o.BlockCacheSize > 0, "BlockCacheSize is %d, want a positive size", o.BlockCacheSize)
	check(o.IndexCacheSize > 0, "IndexCacheSize is %d, want a positive size", o.IndexCacheSize)
	return errors.Join(errs...)
}

// badger returns the options that Badger is opened with.
func (o Options) badger() badger.Options {
	maxTxn := 15 * o.nominal / 100 // a transaction is at most that part of a memtable
	b := badger.DefaultOptions(o.Dir)
	b.SyncWrites = false      // what counts is in the journal
	b.DetectConflicts = false // commits are made one at a time
	b.NumVersionsToKeep = 1
	b.MetricsEnabled = false // expvar, so global
	b.CompactL0OnClose = false
	b.ChecksumVerificationMode = options.NoVerification // checkTables and mergeCheck do it
	b.VerifyValueChecksum = true
	b.MemTableSize = o.MemTableSize
	b.NumMemtables = numMemtables
	b.NumCompactors = 2
	b.BaseLevelSize = max(4*o.MemTableSize, 8<<20)
	// Values stay out of the value log: an error of its sync is only logged.
	b.ValueThreshold = min(1<<20, maxTxn)
	b.ValueLogFileSize = min(max(o.MemTableSize/2, 1<<20), 16<<20)
	if o.Profile == Log {
		// Few compactions, each of much, write least: level 0 may grow to 320 MiB.
		b.NumLevelZeroTables = o.tablesOf(320<<20, 10, 20)
		b.NumLevelZeroTablesStall = 2 * b.NumLevelZeroTables
		b.BaseTableSize = min(max(o.MemTableSize/4, 1<<20), 8<<20)
		b.Compression = options.None
		b.BlockSize = logBlockSize
		b.BlockCacheSize, b.IndexCacheSize = 0, 0
		return b
	}
	b.NumLevelZeroTables = o.tablesOf(160<<20, 5, 10)
	b.NumLevelZeroTablesStall = 3 * b.NumLevelZeroTables
	// A builder begins with twice the size of its table, rounded up to a power of
	// two, and takes twice as much again when that does not suffice. A table of
	// 4 KiB values needs 2.2 times its size while it is compressed: with 7 MiB that
	// still fits into the first 16 MiB, with 8 MiB it would take 48.
	b.BaseTableSize = min(max(o.MemTableSize/2, 1<<20), 7<<20)
	b.Compression = options.Snappy
	b.ChecksumVerificationMode = options.OnBlockRead // what Reader relies on
	b.BlockCacheSize, b.IndexCacheSize = o.BlockCacheSize, o.IndexCacheSize
	return b
}

// tablesOf returns how many memtables make so many bytes, within limits.
func (o Options) tablesOf(bytes int64, least, most int) int {
	return min(max(int(bytes/o.MemTableSize), least), most)
}

// toReplay returns options with memtables that hold so much, unless those of o do: Badger ends
// the process when what it finds in a log does not fit into a memtable. Such a log is of a
// process with larger ones, which did not close the database. It is gone with the next Open.
func (o Options) toReplay(memory int64) (Options, bool) {
	// What Badger gives a memtable, and a hundredth: memory is an estimate.
	if memory+memory/100 <= o.MemTableSize+2*o.MemTableSize*15/100 {
		return o, false
	}
	o.Logger.Info("memtables are larger than asked for, since a write-ahead log is",
		slog.Int64("asked", o.MemTableSize), slog.Int64("bytes", memory))
	o.MemTableSize = memory
	return o, true
}

// DB is an open database. Its methods may be called from several goroutines.
//
// Of the embedded database use the read methods of [badger.Txn] only. Its other
// ways of writing (Update, WriteBatch, DropPrefix, StreamWriter) either split
// what should be atomic, or stop all writers, or leave holes in the timestamps.
type DB struct {
	*badger.DB

	maxTxnBytes int64
	maxTxnCount int64
	maxValue    int64
	minValue    int // see values
	profile     Profile
	wal         *walWatch
	journal     *journal
	mover       *mover
	values      *values
	collector   *collector

	durable   atomic.Uint64 // timestamp of the newest durable transaction
	committed atomic.Uint64 // timestamp of the newest one that Badger has

	commitMu sync.Mutex // held for the whole of a commit
	failed   error      // first error of a write or sync, under commitMu
	doubtful *Txn       // whose sync has failed: the journal may not have it; under commitMu

	parts
	reads     *reads
	memtables *memtables
	readers   readers
	reclaimer *reclaimer
	scrubber  *scrubber
	pace      pace
}

// Open opens the database in o.Dir, or makes it.
func Open(o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := os.Mkdir(o.Dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("badgerdb: make %s: %w", o.Dir, err)
	}
	return o.staggered().open()
}

func (o Options) open() (*DB, error) {
	r, space, lost := newReclaimer(o), newRoom(o), newBroken()
	tables := &lostTables{
		path: filepath.Join(o.Dir, lostName), log: o.Logger, failed: lost.note,
	}
	space.after = tables.check
	check := &mergeCheck{log: o.Logger, failed: lost.note, halt: lost.halt}
	bopts := o.badger()
	bopts.Logger = logger{
		to: o.Logger, mergeStep: r.step, failed: lost.note,
		build:  func(compactor int) { tables.writing(compactor); space.build() },
		merged: check.merged, built: tables.wrote,
		halt: lost.halt,
	}
	is, err := prepare(o, bopts)
	if larger, ok := o.toReplay(is.memory); err == nil && ok {
		return larger.open()
	}
	if err == nil && !is.based {
		err = layBase(bopts, lost)
	}
	if err != nil {
		return nil, fmt.Errorf("badgerdb: open %s: %w", o.Dir, err)
	}
	blocks := newTableBlocks(o, space)
	blocks.start()
	bdb, err := lost.open(bopts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("badgerdb: open %s: %w", o.Dir, err), blocks.close())
	}
	db, err := o.begin(bdb, bopts, is, parts{
		room: space, blocks: blocks, broken: lost, lost: tables, merges: check,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("badgerdb: open %s: %w", o.Dir, err), lost.close(bdb),
			blocks.close())
	}
	db.reclaimer = r
	r.start(db)
	db.scrubber.start(db)
	return db, nil
}

// parts are what was made before Badger was opened.
type parts struct {
	room   *room
	blocks *tableBlocks
	broken *broken
	lost   *lostTables
	merges *mergeCheck
}

// begin makes a DB of what Badger has opened, and starts what belongs to it. After an error
// there is nothing to stop.
func (o Options) begin(
	bdb *badger.DB, bopts badger.Options, is prepared, with parts,
) (*DB, error) {
	// The mapping shows the real path, with all symbolic links followed.
	dir, err := filepath.EvalSymlinks(o.Dir)
	if err != nil {
		return nil, err
	}
	in, err := insideOf(bdb)
	if err != nil {
		return nil, err
	}
	db := &DB{
		DB: bdb, parts: with,
		// As Badger would have it with memtables of the nominal size: without what the end marker
		// takes, and some; and without the marker itself, where Badger's limit is exclusive.
		maxTxnBytes: 15*o.nominal/100 - 128,
		maxTxnCount: 15*o.nominal/100/int64(skl.MaxNodeSize) - 2,
		maxValue:    bopts.ValueThreshold - 1,
		minValue:    o.minValue,
		memtables:   in.memtables,
		profile:     o.Profile,
		wal:         newWALWatch(dir, o, with.room),
	}
	newest := bdb.MaxVersion()
	db.committed.Store(newest)
	db.durable.Store(newest)
	db.mover = newMover(db)
	db.values = newValues(dir, o.Logger, &db.readers, func() uint64 {
		return min(db.durable.Load(), db.committed.Load())
	})
	if err = db.beginJournal(o, is, newest); err != nil {
		db.values.close()
		return nil, err
	}
	db.collector = newCollector(db, o)
	db.scrubber = newScrubber(o)
	db.reads = &reads{
		levels: in.levels, indexes: newIndexCache(o.IndexCacheSize), suspect: db.scrubber.suspect,
	}
	db.merges.start(in.merging, in.merging.check, db.scrubber.ctx.Done())
	db.lost.start(db.tableIDs)
	db.room.flushed = db.afterLook
	db.room.start(dir)
	db.mover.start()
	db.collector.start()
	return db, nil
}

// beginJournal finds what is kept for values, and begins the journal behind the newest
// transaction.
func (db *DB) beginJournal(o Options, is prepared, newest uint64) error {
	if err := db.values.load(db.DB, is.values); err != nil {
		return err
	}
	last := max(is.lastLog(newest), db.values.last())
	db.journal = newJournal(db.values.dir, o, db.room, db.values, last)
	if err := db.wal.start(); err != nil {
		return err
	}
	if err := db.journal.begin(newest+1, newest); err != nil {
		return errors.Join(err, db.journal.close())
	}
	return nil
}

// afterLook is called by the room after each look.
func (db *DB) afterLook() {
	db.journal.retire()
	db.collector.look()
}

// Close flushes and closes the database. A compaction that is going on is
// finished before, and a [DB.Scrub] ends. Every [Snapshot] must have been
// discarded before, and no other method may be running but Memory and Upkeep.
//
// When there is no space for the flush, or a flush or compaction has failed, which is
// [ErrFailed], the database is left as a process that is killed leaves it, which loses
// nothing: its directory stays locked until the process ends.
func (db *DB) Close() error {
	db.room.stopWaiting()
	db.scrubber.cancel() // it also ends what looks into a finding of the reclaimer's
	db.collector.cancel()
	err := db.broken.do(func() error {
		db.reclaimer.stop()
		db.collector.stop()
		db.scrubber.stop()
		return nil
	})
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	db.mover.stop()
	failed := db.usable() != nil
	leave := !db.room.leave() || err != nil
	if db.failed == nil || leave {
		db.failed = errors.New("badgerdb: closed")
	}
	if !leave && db.doubtful != nil {
		err = db.mover.whole(db.doubtful)
		leave = err != nil
	}
	db.memtables.close()
	err = errors.Join(err, db.journal.close())
	defer db.values.close()
	if !leave {
		closing := errors.Join(db.broken.close(db.DB), db.wal.remove())
		if closing == nil && !failed {
			closing = db.journal.remove() // all is in tables
		}
		err = errors.Join(err, closing)
	}
	if err = errors.Join(err, db.blocks.close()); err != nil {
		return fmt.Errorf("badgerdb: close: %w", err)
	}
	return nil
}
