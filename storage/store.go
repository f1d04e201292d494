package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/vfs"
)

type groupID = raftyard.GroupID

// Store is the raft logs of all groups of one node. Its methods may be called
// from several goroutines.
type Store struct {
	opts        Options
	backing     Backing
	identity    Identity
	limits      Limits
	recordLimit int64

	lock      io.Closer
	db        kv.DB
	note      *sequenceNote
	inventory *inventory
	keeper    *keeper
	stats     stats

	durable atomic.Uint64 // number of the newest durable batch

	commitMu sync.Mutex // held for the whole of a commit; makes its holder the committer
	writer   writer     // the committer's
	opened   bool       // all that was there is known; under commitMu
	cache    cache      // the committer's
	garbage  garbage    // the committer's

	mu       sync.RWMutex
	replicas map[groupID]*replica // entries are removed by Forget only
	err      error                // first failure, or ErrClosed
	rotten   []Rotten             // what TakeRotten is to return: each replica once
}

// Open opens the store in o.Dir, or makes it if the directory holds none. It
// raises the boot counter before it returns.
//
// A store in which single replicas are damaged opens; see [Replica.Damage]. When
// the newest batches are missing, every live replica is damaged, and stays so:
// there is no telling whose they were.
func Open(o Options) (*Store, error) { return OpenOn(o, Real()) }

// OpenOn is [Open] on a disk that may be simulated.
func OpenOn(o Options, on Backing) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := on.Files.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("storage: open: %w", err)
	}
	lock, err := on.Files.Lock(filepath.Join(o.Dir, LockName))
	if held, ok := errors.AsType[*vfs.LockedError](err); ok {
		err = fmt.Errorf("%w by %s: %w", ErrLocked, held.Holder, held.Err)
	} else if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", o.Dir, advise(unreadable(err)))
	}
	s := &Store{
		opts: o, backing: on, lock: lock, replicas: make(map[groupID]*replica),
		cache: cache{budget: o.CacheBytes},
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("storage: open %s: %w", o.Dir, advise(err)), s.release())
	}
	s.keeper = &keeper{store: s}
	if on.Until == nil {
		s.keeper.start()
	}
	return s, nil
}

// open does the steps of Open that follow the lock, in the order in which they
// depend on each other.
func (s *Store) open() error {
	var err error
	files := s.backing.Files
	if s.identity, err = loadIdentity(s.opts, s.backing); err != nil {
		return err
	}
	if s.note, err = openSequenceNote(files, s.path(sequenceName), s.identity); err != nil {
		return err
	}
	if err = s.openInventory(); err != nil {
		return err
	}
	s.db, err = s.backing.OpenDB(badgerdb.Options{
		Dir:          s.path(logName),
		MemTableSize: s.opts.MemTableSize,
		Stagger:      uint64(s.opts.Node),
		Profile:      badgerdb.Log,
		Logger:       s.opts.Logger,
		Fill:         s.fill,
		Rewrite:      s.rewrite,
		ScrubRate:    s.opts.ScrubRate,
		Damaged:      s.tableDamaged,
	})
	switch {
	case errors.Is(err, badgerdb.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case errors.Is(err, badgerdb.ErrLocked):
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case errors.Is(err, badgerdb.ErrFailed):
		return fmt.Errorf("%w: %w", ErrFailed, err)
	case err != nil:
		return err
	}
	s.limits = limitsOf(s.db)
	// A record is well below the size from which on Badger would move it to its
	// value log, and a batch has room for several.
	s.recordLimit = min(512<<10, s.db.MaxValueBytes()/2)
	if err := s.checkStoreRecord(); err != nil {
		return err
	}
	if err := s.recover(); err != nil {
		return err
	}
	if err := s.inventory.begin(s.replicas); err != nil {
		return err
	}
	if s.identity.Boot == 0 {
		// From boot 1 on everything must be there, so its names are durable before.
		if err := files.SyncDir(s.opts.Dir); err != nil {
			return err
		}
	}
	s.identity.raise()
	if err := s.identity.save(files, s.opts.Dir); err != nil {
		return err
	}
	s.lockCommits()
	defer s.commitMu.Unlock()
	s.opened = true
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.opts.Dir, name) }

// Identity returns who the store belongs to.
func (s *Store) Identity() Identity {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.identity
}

// Present makes this start one of those in the identity, durably, and returns that. It is
// to be called once, before anybody hears of this start: whoever has heard of one asks
// the later ones for it. There is room for [lineage.MaxStarts]; the oldest are dropped
// then, except keep. A start of which nobody can have heard takes none.
func (s *Store) Present(keep lineage.Start) (Identity, error) {
	id := s.Identity()
	next := lineage.Start{Boot: id.Boot, Process: s.backing.UUID()}
	id.Starts = id.Starts.Then(next, keep)
	if err := id.save(s.backing.Files, s.opts.Dir); err != nil {
		return Identity{}, fmt.Errorf("storage: %s: %w", s.path(IdentityName), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = id
	return id, nil
}

// Limits returns what a batch can hold.
func (s *Store) Limits() Limits { return s.limits }

// Replicas returns all replicas and tombstones, by group id.
func (s *Store) Replicas() []Replica {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Replica, 0, len(s.replicas))
	for _, r := range s.replicas {
		all = append(all, r.clone())
	}
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// Replica returns the group's replica or tombstone.
func (s *Store) Replica(g raftyard.GroupID) (Replica, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.replicas[g]
	if !ok {
		return Replica{}, false
	}
	return r.clone(), true
}

// Log returns the log of the group's live replica, or nil when there is none or
// it is damaged. After the replica was destroyed the methods of its Log return
// an error.
func (s *Store) Log(g raftyard.GroupID) *Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r, ok := s.replicas[g]; ok && r.info.Damage == nil {
		return r.log
	}
	return nil
}

// Remains reports whether records of the group's destroyed replicas are still to be
// deleted, which goes on in the background. It waits for a batch that is being committed.
// Of a group with a live replica it tells nothing: false.
func (s *Store) Remains(g raftyard.GroupID) bool {
	s.lockCommits()
	defer s.commitMu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.replicas[g]
	return ok && !r.live() && (r.slots.held != 0 || r.slots.doomed != 0)
}

// Err returns the first failure of a write, which wraps [ErrFailed], or
// [ErrClosed] after Close, or nil. While it is not nil, nothing is written.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.err
}

// fail takes the store out of service.
func (s *Store) fail(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%w: %w", ErrFailed, cause)
	}
	return s.err
}

// damage takes a replica out of service in which a reader has found damage.
func (s *Store) damage(l *Log, err error) {
	l.fail(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.replicas[l.group]; ok && r.log == l && r.info.Damage == nil {
		r.info.Damage = err
	}
}

// Close notes the newest batch and closes the store. Batches that are being
// committed are finished before, but those that wait for disk space end with [ErrNoSpace];
// later ones end with [ErrClosed]. Reads must
// have ended, and so must [Store.Keep]. Calling it again does no harm.
func (s *Store) Close() error {
	s.StopWaiting() // or the lock would not be free before there is space
	s.lockCommits()
	s.mu.Lock()
	closed := errors.Is(s.err, ErrClosed)
	failed := s.err
	s.err = ErrClosed
	s.mu.Unlock()
	s.commitMu.Unlock()
	if closed {
		return nil
	}
	s.keeper.stop()
	var err error
	if failed == nil {
		err = errors.Join(s.noteSequence(), s.noteNumbers())
	}
	return errors.Join(err, s.release())
}

// release lets go of whatever open has got.
func (s *Store) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.note != nil {
		errs = append(errs, s.note.close())
	}
	errs = append(errs, s.inventory.close())
	return errors.Join(append(errs, s.lock.Close())...)
}
