package storage

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// Log is the durable log of one replica, as raft reads it: a raft.Storage. It
// changes only through [Batch.Commit], and only after the batch is durable.
//
// Its methods may be called while batches are committed. Each sees the log
// before or after a batch as a whole, but two calls may see different ones.
type Log struct {
	store *Store
	group raftyard.GroupID

	mu   sync.RWMutex
	gone error // not nil: the replica was destroyed or found damaged

	// Invariant: terms.start().index <= last, and refs cover exactly the entries
	// (terms.start().index, last], the first of them perhaps with entries before
	// that, in order and without gaps.
	terms terms
	last  uint64
	refs  []ref
	parts map[uint64][]uint32 // slots of the parts > 0, by seq of the record

	hard     hardState
	snapshot []byte // encoded; nil when there is none
	chunks   []*chunk
}

var _ raft.Storage = (*Log)(nil)

// ref tells where the entries [first, first+count) are.
type ref struct {
	first uint64
	seq   uint64 // of the record
	count uint32 // less than in the record if a suffix was overwritten
	slot  uint32
	bytes uint32 // of the record
}

func (r ref) end() uint64 { return r.first + uint64(r.count) }

// charge returns how many bytes the record takes that is in r.slot and parts.
func (r ref) charge(parts []uint32) int64 {
	return int64(r.bytes) + int64(1+len(parts))*slotCharge
}

// HardState returns the hard state, or nil when none was ever written. Its
// commit index is never below the start of the log: what was compacted was
// committed, even if that was not written down.
func (l *Log) HardState() *raftpb.HardState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.hard.set {
		return nil
	}
	h := l.hard
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// Bounds returns the indexes of the first entry and of the last. In an empty log
// first is last+1.
func (l *Log) Bounds() (first, last uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.terms.start().index + 1, l.last
}

// Bytes returns about how much the entries of the log take on disk.
func (l *Log) Bytes() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, r := range l.refs {
		n += int64(r.bytes)
	}
	return n
}

// BytesAfter returns about how much the entries behind index i take on disk.
func (l *Log) BytesAfter(i uint64) int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, r := range slices.Backward(l.refs) {
		if r.end() <= i+1 {
			break
		}
		n += int64(r.bytes)
	}
	return n
}

// Within returns the lowest index behind which the entries up to i take at most about so
// many bytes on disk; it is not above i. What one record holds counts together.
func (l *Log) Within(i uint64, bytes int64) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, r := range slices.Backward(l.refs) {
		if r.first > i {
			continue
		}
		if bytes -= int64(r.bytes); bytes < 0 {
			return min(r.end()-1, i)
		}
	}
	return min(l.terms.start().index, i)
}

// InitialState implements raft.Storage. The ConfState is the one of the newest
// snapshot; the replica knows a newer one.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs := l.HardState()
	l.mu.RLock()
	encoded, gone := l.snapshot, l.gone
	l.mu.RUnlock()
	if gone != nil {
		return nil, nil, gone
	}
	if encoded == nil {
		return hs, raftpb.EnsureConfState(nil), nil
	}
	s, err := decodeSnapshot(encoded)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: group %d: snapshot: %w", ErrDamaged, l.group, err)
	}
	return hs, raftpb.EnsureConfState(s.GetMetadata().GetConfState()), nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.terms.start().index + 1, l.gone
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last, l.gone
}

// Term implements raft.Storage. It never reads from disk.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.gone != nil:
		return 0, l.gone
	case i < l.terms.start().index:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	default:
		return l.terms.at(i), nil
	}
}

// Snapshot implements raft.Storage. While there is none it returns
// raft.ErrSnapshotTemporarilyUnavailable, never an empty one. The caller owns
// what it returns.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	l.mu.RLock()
	encoded, gone := l.snapshot, l.gone
	l.mu.RUnlock()
	switch {
	case gone != nil:
		return nil, gone
	case encoded == nil:
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	s, err := decodeSnapshot(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: group %d: snapshot: %w", ErrDamaged, l.group, err)
	}
	return s, nil
}

// Entries implements raft.Storage. The caller owns the slice, but not the
// entries: those may be the ones that were appended, still in the cache, and
// must not be modified by anybody.
//
// Unlike raft.MemoryStorage it answers a range that ends beyond the log with
// raft.ErrUnavailable, not a panic.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	l.mu.RLock()
	if err := l.checkRangeLocked(lo, hi); err != nil {
		l.mu.RUnlock()
		return nil, err
	}
	tail := l.cachedLocked(lo, hi)
	cut := hi - uint64(len(tail)) // entries [lo, cut) are not cached
	if cut == lo {
		l.mu.RUnlock()
		l.store.stats.cacheHits.Add(1)
		return slices.Clip(limitSize(tail, maxSize)), nil
	}
	read := l.openReadLocked(lo, cut)
	l.mu.RUnlock()

	l.store.stats.cacheMisses.Add(1)
	entries, full, err := read.run(maxSize)
	if err != nil {
		return nil, err
	}
	if !full {
		entries = limitSize(append(entries, tail...), maxSize)
	}
	return slices.Clip(entries), nil
}

func (l *Log) checkRangeLocked(lo, hi uint64) error {
	start := l.terms.start().index
	switch {
	case l.gone != nil:
		return l.gone
	case lo <= start:
		return raft.ErrCompacted
	case hi > l.last+1 || lo > hi || start == l.last:
		return raft.ErrUnavailable
	default:
		return nil
	}
}

// cachedLocked returns the entries [x, hi) for the least x >= lo from which on
// the cache has them all.
func (l *Log) cachedLocked(lo, hi uint64) []*raftpb.Entry {
	from := len(l.chunks)
	for from > 0 && l.chunks[from-1].entries[0].GetIndex() >= hi {
		from--
	}
	to := from
	n := 0
	for from > 0 {
		c := l.chunks[from-1].entries
		from--
		n += len(c)
		if c[0].GetIndex() <= lo {
			break
		}
	}
	out := make([]*raftpb.Entry, 0, n)
	for _, c := range l.chunks[from:to] {
		first := c.entries[0].GetIndex()
		a := max(lo, first) - first
		z := min(hi-first, uint64(len(c.entries)))
		if a < z {
			out = append(out, c.entries[a:z]...)
		}
	}
	return out
}

// findLocked returns the position of the ref that has entry i.
func (l *Log) findLocked(i uint64) int {
	n, _ := slices.BinarySearchFunc(l.refs, i, func(r ref, i uint64) int {
		switch {
		case r.end() <= i:
			return -1
		case r.first > i:
			return 1
		default:
			return 0
		}
	})
	return n
}

// fail makes every further read fail with err.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		l.gone = err
	}
}
