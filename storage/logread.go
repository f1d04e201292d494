package storage

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
)

// logRead reads the entries [lo, hi) of a log from Badger. It holds a snapshot
// of the database that was taken together with refs, so a slot that is freed and
// overwritten meanwhile still shows the record that refs mean.
type logRead struct {
	log    *Log
	lo, hi uint64
	refs   []ref
	parts  map[uint64][]uint32
	at     kv.Snapshot
}

// openReadLocked prepares to read [lo, hi), which the log must have.
func (l *Log) openReadLocked(lo, hi uint64) *logRead {
	r := &logRead{
		log: l, lo: lo, hi: hi,
		refs: slices.Clone(l.refs[l.findLocked(lo) : l.findLocked(hi-1)+1]),
		at:   l.store.db.Snapshot(),
	}
	for _, ref := range r.refs {
		if p, ok := l.parts[ref.seq]; ok {
			if r.parts == nil {
				r.parts = make(map[uint64][]uint32)
			}
			r.parts[ref.seq] = p
		}
	}
	return r
}

// run returns entries from lo on, until hi or until they take more than maxSize
// (full is set then), but at least one.
func (r *logRead) run(maxSize uint64) (entries []*raftpb.Entry, full bool, err error) {
	defer r.at.Discard()
	stats := &r.log.store.stats
	var size uint64
	for _, ref := range r.refs {
		got, err := r.record(ref)
		if err != nil {
			return nil, false, r.damage(ref, err)
		}
		stats.recordsRead.Add(1)
		if ref.first < r.lo {
			got = got[r.lo-ref.first:]
		}
		got = got[:min(uint64(len(got)), r.hi-got[0].GetIndex())]
		for i, e := range got {
			if size += protoSize(e); size > maxSize && len(entries)+i > 0 {
				return append(entries, got[:i]...), true, nil
			}
		}
		entries = append(entries, got...)
	}
	return entries, false, nil
}

// damage takes the replica out of service: what it had once acknowledged is no
// longer there.
func (r *logRead) damage(at ref, err error) error {
	if errors.Is(err, badgerdb.ErrFailed) || vfs.HidesContent(err) { // it may be there
		return r.log.store.fail(err)
	}
	err = fmt.Errorf("%w: group %d: entries from %d, slot %d: %w",
		ErrDamaged, r.log.group, at.first, at.slot, err)
	r.log.store.damage(r.log, err)
	return err
}

// record returns the entries of a ref.
func (r *logRead) record(at ref) ([]*raftpb.Entry, error) {
	l, err := r.slot(at.slot)
	if err != nil {
		return nil, err
	}
	if l.seq != at.seq || l.part != 0 || l.first != at.first || l.count < uint64(at.count) {
		return nil, fmt.Errorf(
			"holds %d entries from %d of record %d, want %d from %d of record %d",
			l.count, l.first, l.seq, at.count, at.first, at.seq)
	}
	more := r.parts[at.seq]
	if uint64(len(more)) != l.parts-1 {
		return nil, fmt.Errorf("record %d has %d parts, want %d", l.seq, l.parts, len(more)+1)
	}
	for i, slot := range more {
		p, perr := r.slot(slot)
		if perr != nil {
			return nil, perr
		}
		if p.seq != at.seq || p.part != uint64(i+1) {
			return nil, fmt.Errorf("slot %d holds part %d of record %d, want part %d of record %d",
				slot, p.part, p.seq, i+1, at.seq)
		}
		l.body = append(l.body, p.body...)
	}
	entries, err := readEntries(l.body, l.first, l.count)
	if err != nil {
		return nil, err
	}
	return entries[:at.count], nil
}

// slot reads one record into memory of its own.
func (r *logRead) slot(n uint32) (logRecord, error) {
	key := appendLogKey(nil, r.log.group, n)
	value, err := r.at.Get(key)
	if err != nil {
		return logRecord{}, err
	}
	return readLogRecord(key, value)
}
