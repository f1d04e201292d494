package kv

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/vfs"
)

const (
	defaultMemTableSize = 16 << 20
	defaultBlockCache   = 16 << 20
	defaultIndexCache   = 8 << 20
	defaultMaxSnapshots = 256

	// maxWriteSetBytes bounds what one write set holds in memory and how long it
	// keeps the others waiting.
	maxWriteSetBytes = 2 << 20
	// minWriteSetBytes is the least that must be left for a write set beside the
	// largest command.
	minWriteSetBytes = 256 << 10
)

// StoreOptions are the settings of a [Store]. The zero value of every field but
// Dir means "use the default".
type StoreOptions struct {
	// Dir is a directory for the store alone. It is made when missing, with its
	// parents. It may lie in the node's own directory under any name that the
	// node does not use; "state" is one that it never will.
	Dir string

	// MemTableSize, in bytes, is the size of Badger's memtables, of which up to
	// five may exist at a time. They are up to a quarter larger, by chance, so that not all
	// nodes write their tables at once. A file of the journal has the same. It bounds
	// how much one transaction can merge. Default: 16 MiB, which is the minimum.
	MemTableSize int64

	// BlockCacheBytes and IndexCacheBytes bound what is kept in memory of the
	// tables on disk. Defaults: 16 MiB and 8 MiB.
	BlockCacheBytes int64
	IndexCacheBytes int64

	// MaxSnapshots is how many snapshots of all machines together may be open.
	// Each one keeps the deleted and overwritten data that it still shows on
	// disk. Default: 256.
	MaxSnapshots int

	// ScrubRate is how many bytes of tables on disk are read a second, in the background, to
	// find damage before anybody needs what is in them, see [Machine.Damage]. An hour after
	// all were read it begins anew. Default: zero, which is never.
	ScrubRate int64

	// Logger gets what the store has to say. Default: nothing is logged.
	Logger *slog.Logger
}

func (o StoreOptions) withDefaults() StoreOptions {
	o.MemTableSize = cmp.Or(o.MemTableSize, defaultMemTableSize)
	o.BlockCacheBytes = cmp.Or(o.BlockCacheBytes, defaultBlockCache)
	o.IndexCacheBytes = cmp.Or(o.IndexCacheBytes, defaultIndexCache)
	o.MaxSnapshots = cmp.Or(o.MaxSnapshots, defaultMaxSnapshots)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every problem in o, not only the first one. [OpenStore] calls
// it.
func (o StoreOptions) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("kv: options: "+format, args...))
		}
	}
	check(o.Dir != "", "Dir must not be empty")
	check(o.MemTableSize >= defaultMemTableSize,
		"MemTableSize is %d, want at least %d", o.MemTableSize, defaultMemTableSize)
	check(o.BlockCacheBytes > 0, "BlockCacheBytes is %d, want a positive size", o.BlockCacheBytes)
	check(o.IndexCacheBytes > 0, "IndexCacheBytes is %d, want a positive size", o.IndexCacheBytes)
	check(o.ScrubRate >= 0, "ScrubRate is %d, want none or a positive rate", o.ScrubRate)
	check(o.MaxSnapshots > 0, "MaxSnapshots is %d, want a positive number", o.MaxSnapshots)
	return errors.Join(errs...)
}

// A Store keeps the state of all key-value groups of a node in one Badger. Its
// methods may be called from several goroutines.
type Store struct {
	log  *slog.Logger
	db   *badgerdb.DB
	gate gate

	committer   *committer
	flusher     *flusher
	generations *generations
	cleaner     *cleaner

	maxSnapshots  int
	snapshots     atomic.Int64
	writeSetBytes int64 // a write set is complete when it has at least so many bytes
	writeSetCount int64 // or so many records

	mu     sync.Mutex
	open   map[Replica]*Machine // machines that are open; nil: one that is being opened
	left   map[Replica]*behind  // of machines that are closed, and that is not written yet
	rotten map[Replica]rot      // see Machine.Damage

	closeOnce sync.Once
	closeErr  error
}

// OpenStore opens the store in o.Dir, or makes it, and goes on with deleting
// what an earlier process left to be deleted. A directory that cannot be trusted
// is an error ([ErrStoreDamaged]), and so is one that is open already, which is not
// touched ([ErrLocked]).
//
// A program that embeds a node opens the store before the node, whose Open asks
// [Store.Factory] for machines, and closes it after the node.
func OpenStore(o StoreOptions) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := (vfs.OS{}).MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("kv: open: make directory: %w", err)
	}
	s := &Store{
		log:          o.Logger,
		maxSnapshots: o.MaxSnapshots,
		open:         make(map[Replica]*Machine),
		left:         make(map[Replica]*behind),
		rotten:       make(map[Replica]rot),
	}
	db, err := badgerdb.Open(badgerdb.Options{
		Dir:            o.Dir,
		MemTableSize:   o.MemTableSize,
		Stagger:        rand.Uint64(),
		Profile:        badgerdb.State,
		BlockCacheSize: o.BlockCacheBytes,
		IndexCacheSize: o.IndexCacheBytes,
		ScrubRate:      o.ScrubRate,
		Damaged:        s.tableDamaged,
		Logger:         o.Logger,
	})
	switch {
	case errors.Is(err, badgerdb.ErrLocked):
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, badgerdb.ErrDamaged):
		return nil, fmt.Errorf("%w: %w", ErrStoreDamaged, err)
	case errors.Is(err, badgerdb.ErrFailed):
		return nil, fmt.Errorf("kv: open: %w: %w", ErrFailed, err)
	case err != nil:
		return nil, fmt.Errorf("kv: open: %w", err)
	}
	s.db = db
	if err := s.start(); err != nil {
		if errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%w: %w", ErrStoreDamaged, err)
		}
		return nil, errors.Join(fmt.Errorf("kv: open: %w", err), db.Close())
	}
	return s, nil
}

// start checks the limits, reads the store's own records and starts the
// goroutines.
func (s *Store) start() error {
	s.writeSetBytes = min(maxWriteSetBytes, s.db.MaxTxnBytes()-maxCommandWrites)
	s.writeSetCount = s.db.MaxTxnCount() - 2*MaxTxnOps
	if s.writeSetBytes < minWriteSetBytes || s.writeSetCount < MaxTxnOps {
		return fmt.Errorf("a transaction holds %d bytes and %d records, too few for a command of"+
			" %d bytes; use a larger MemTableSize",
			s.db.MaxTxnBytes(), s.db.MaxTxnCount(), MaxCommandBytes)
	}
	var reserved generation
	var left []generation
	err := view(s.db, func(at badgerdb.Reader) (err error) {
		reserved, left, err = scanGenerations(at)
		return err
	})
	if err != nil {
		return err
	}
	s.committer = newCommitter(s.db, s.log)
	s.generations = &generations{
		commit:   s.committer.commit,
		next:     max(reserved, 1), // zero means none
		reserved: reserved,
	}
	s.flusher = newFlusher(s.committer, s.written)
	s.cleaner = newCleaner(s.db, s.committer, s.log)
	s.cleaner.add(left...)
	s.committer.start()
	s.flusher.start()
	s.cleaner.start()
	return nil
}

// Factory returns the factory that opens a replica's [Machine] in s, for the
// Kinds of a node. It does not use [group.Env].Dir. Opening reads one record; a
// replica that never applied anything has none.
func (s *Store) Factory() group.Factory {
	return func(env group.Env) (group.StateMachine, error) {
		return s.Open(Replica{Group: env.Group, Incarnation: env.Incarnation, ID: env.Replica})
	}
}

// Open opens the machine of a replica. Each can be open once; [ErrOpen] tells
// that it is.
func (s *Store) Open(r Replica) (*Machine, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	if err := s.Err(); err != nil {
		return nil, err
	}
	b, ok := s.register(r)
	if !ok {
		return nil, fmt.Errorf("%w: %v", ErrOpen, r)
	}
	var state machineState
	err := view(s.db, func(at badgerdb.Reader) (err error) {
		state, err = loadMachine(at, r)
		if err != nil {
			return err
		}
		return checkGeneration(at, r, state)
	})
	if err != nil {
		s.unregister(r, b)
		return nil, fmt.Errorf("kv: open %v: %w", r, err)
	}
	if b == nil {
		b = newBehind(s, r, state)
	}
	m := newMachine(s, r, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[r] = m
	delete(s.left, r)
	return m, nil
}

// Replicas returns the replicas of which s holds a state, in the order of their
// groups.
func (s *Store) Replicas() ([]Replica, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	found := s.unwritten()
	err := view(s.db, func(at badgerdb.Reader) error {
		return eachKey(at, []byte{machinePrefix}, func(item *badger.Item) error {
			r, ok := parseMachineKey(item.Key())
			if !ok {
				return &DamageError{Key: item.KeyCopy(nil), What: "no replica has such a key"}
			}
			found = append(found, r)
			return nil
		})
	})
	slices.SortFunc(found, Replica.compare)
	return slices.Compact(found), err
}

// unwritten returns the replicas that have a state of which something is not written yet.
func (s *Store) unwritten() (found []Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, m := range s.open {
		if m != nil && !m.behind.isWritten() {
			found = append(found, r)
		}
	}
	for r := range s.left {
		found = append(found, r)
	}
	return found
}

// Destroy deletes the state of a replica whose machine is not open, as
// [Machine.Destroy] does. A replica that has no state is not an error, so a node
// can call it for every replica that it knows to be gone.
func (s *Store) Destroy(r Replica) error {
	m, err := s.Open(r)
	if err != nil {
		return err
	}
	return m.Destroy()
}

// register notes that the machine of r is open, and reports false if it is. It returns what an
// earlier machine has left that is not written yet, or nil. That stays among what is left until
// the machine is open: [Store.Replicas] must find it.
func (s *Store) register(r Replica) (b *behind, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[r]; ok {
		return nil, false
	}
	s.open[r] = nil
	return s.left[r], true
}

// unregister notes that the machine of r is closed, with what it leaves, which may be nil.
func (s *Store) unregister(r Replica, b *behind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, r)
	if b != nil && !b.isWritten() {
		s.left[r] = b
		s.flusher.hurry()
	}
}

// written hears that the flusher has written what a replica had.
func (s *Store) written(b *behind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[b.replica] == b && b.isWritten() {
		delete(s.left, b.replica)
	}
}

// Err returns the error after which s refuses to work, or nil.
func (s *Store) Err() error { return s.committer.failed() }

// Stats are counters of a [Store] since it was opened, and a few present values.
type Stats struct {
	Transactions uint64 // synced transactions
	WriteSets    uint64 // what they merged: commands of one replica, parts of restores, deletions
	Bytes        uint64 // of keys and values in them
	Unwritten    int64  // bytes of what commands have changed and no transaction has had yet

	Machines  int    // open machines
	Snapshots int    // open snapshots
	Dropping  int    // generations that are being deleted
	Dropped   uint64 // items deleted in the background

	DiskBytes int64 // tables on disk, as of about a minute ago
}

// Stats returns the present statistics.
func (s *Store) Stats() Stats {
	st := s.committer.stats()
	st.Unwritten = s.flusher.unwritten()
	st.Snapshots = int(s.snapshots.Load())
	st.Dropping, st.Dropped = s.cleaner.stats()
	s.mu.Lock()
	st.Machines = len(s.open)
	s.mu.Unlock()
	lsm, vlog := s.db.Size()
	st.DiskBytes = lsm + vlog
	return st
}

// Close waits for the calls that are in flight, makes durable what was applied unless there is
// no disk space for it, stops the background work and closes the database. Snapshots that are
// being written end with [ErrClosed]; every later call returns it. A Restore ends when its reader
// returns. The machines need not be closed before, but a node that has them must: its replicas
// would be stopped for an error of their state machines.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.db.StopWaiting()
		s.db.StopScrub()
		s.gate.close()
		s.cleaner.stop()
		s.flusher.stop()
		s.committer.stop()
		if err := s.db.Close(); err != nil {
			s.closeErr = fmt.Errorf("kv: close: %w", err)
		}
	})
	return s.closeErr
}

// A gate counts the calls that use the database, so that closing can wait for
// them. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // made by close, closed when nobody is inside

	closing atomic.Bool // the same as closed, without the lock
}

func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// close lets nobody in any more and waits until everybody is out. It is called
// once.
func (g *gate) close() {
	g.closing.Store(true)
	g.mu.Lock()
	g.closed = true
	g.empty = make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	<-g.empty
}
