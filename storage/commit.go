package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/wire"
)

// commit is the only way in which anything is written. It checks the whole batch
// and encodes it, writes it in one transaction, and shows it after that.
func (s *Store) commit(b *Batch) error {
	if len(b.ops) == 0 {
		return s.Err()
	}
	s.lockCommits()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	if b.bytes > s.limits.MaxBatchBytes {
		return fmt.Errorf("%w: batch of %d bytes, the limit is %d",
			ErrTooLarge, b.bytes, s.limits.MaxBatchBytes)
	}
	if mutant.On(mutant.TornUpdate) {
		return s.commitTorn(b)
	}
	return s.commitOps(b.ops, b.bytes)
}

// commitOps commits changes that take at most so many bytes.
func (s *Store) commitOps(ops []op, bytes int64) error {
	w := &s.writer
	w.reset(s, s.durable.Load()+1, bytes)
	for i := range ops {
		if err := w.add(&ops[i]); err != nil {
			return err
		}
	}
	return s.write(w, s.spareRoom(bytes))
}

// commitTorn is the bug of [mutant.TornUpdate]: the log is written first, the hard
// state and the meta that belong to it after that.
func (s *Store) commitTorn(b *Batch) error {
	first := slices.Clone(b.ops)
	var rest []op
	for i := range first {
		o := &first[i]
		u := &o.update
		if o.kind == opUpdate && (len(u.Entries) > 0 || u.Snapshot != nil) {
			late := Update{HardState: u.HardState, Meta: u.Meta}
			rest = append(rest, op{kind: opUpdate, group: o.group, update: late})
			u.HardState, u.Meta = nil, nil
		}
	}
	if err := s.commitOps(first, b.bytes); err != nil || len(rest) == 0 {
		return err
	}
	return s.commitOps(rest, b.bytes)
}

// spareRoom returns how many keys may be deleted along with a batch.
func (s *Store) spareRoom(bytes int64) int {
	room := (s.limits.MaxBatchBytes - bytes) / recordCharge
	return int(min(room, garbagePerCommit, s.garbage.size.Load()))
}

// write commits what w holds, and the deletion of the first n keys of the
// garbage, and makes it visible.
func (s *Store) write(w *writer, n int) error {
	s.garbage.visit(n, func(g groupID, slot uint32) {
		w.remove(appendLogKey(nil, g, slot))
	})
	if err := s.inventory.forget(w.order); err != nil {
		return fmt.Errorf("inventory of replicas: %w", err)
	}
	err := s.db.Commit(func(to kv.Writer) error {
		for _, p := range w.pairs {
			var err error
			if p.value == nil {
				err = to.Delete(p.key)
			} else {
				err = to.Set(p.key, p.value)
			}
			if err != nil {
				return err
			}
		}
		if w.more != nil {
			return w.more(to)
		}
		return nil
	})
	switch {
	case errors.Is(err, kv.ErrTooBig):
		// Cannot be: Bytes is an upper bound. Nothing was written.
		return fmt.Errorf("%w: %d keys, %d bytes: %w", ErrTooLarge, len(w.pairs), w.bytes, err)
	case errors.Is(err, ErrNoSpace):
		// The store is to be closed, and nothing was written: what was to be forgotten is
		// there, and the inventory gets it back when that is done.
		s.inventory.recall(w.order)
		return err
	case err != nil:
		return s.fail(err)
	}
	if err := s.inventory.created(w.order); err != nil {
		return s.fail(err)
	}
	s.stats.commits.Add(1)
	s.stats.records.Add(int64(len(w.pairs) - n))
	s.stats.deletes.Add(int64(n))
	s.stats.bytes.Add(w.bytes)
	for _, st := range w.order {
		s.apply(st)
	}
	// After that: the slots that the batch has taken are the groups' now.
	s.garbage.done(n, func(g groupID, slots []uint32) {
		r := s.replicas[g]
		r.slots.vacate(slots, r.live())
	})
	s.cache.evict()
	s.durable.Store(w.batch)
	return nil
}

// collect deletes garbage when no batch has done so. The transaction has no
// record of a group, so it notes its number in a record of its own: a batch that
// can no longer be seen must not look lost.
func (s *Store) collect() error {
	s.lockCommits()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	n := int(min(s.garbage.size.Load(), garbageAlone, s.limits.MaxBatchBytes/recordCharge-1))
	if n == 0 {
		return nil
	}
	w := &s.writer
	w.reset(s, s.durable.Load()+1, recordCharge)
	w.sequence(0)
	return s.write(w, n)
}

// fill commits about size bytes that say nothing. With them the reclaimer of the
// database pushes the deletions that are in memory down to what they delete.
func (s *Store) fill(size int) error {
	s.lockCommits()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	w := &s.writer
	w.reset(s, s.durable.Load()+1, int64(recordCharge+size))
	w.sequence(size)
	return s.write(w, 0)
}

// rewrite commits pairs that are there already, which the database has read from a file that it
// wants to be rid of. With them goes the number of the batch, as in collect.
func (s *Store) rewrite(fn func(badgerdb.Setter) error) error {
	s.lockCommits()
	defer s.commitMu.Unlock()
	if err := s.Err(); err != nil {
		return err
	}
	if !s.opened {
		return badgerdb.ErrLater // its number is not known yet
	}
	w := &s.writer
	w.reset(s, s.durable.Load()+1, recordCharge)
	w.sequence(0)
	w.more = func(to kv.Writer) error { return fn(to) }
	defer func() { w.more = nil }()
	return s.write(w, 0)
}

// sequence writes the store's own record of the batch number, and so many bytes
// more.
func (w *writer) sequence(padding int) {
	key := w.key(func(b []byte) []byte { return append(b, sequenceKey...) })
	w.put(key, func(b []byte) []byte {
		b = wire.AppendUvarint(append(b, 0, 0, 0, 0, recordFormat), w.batch)
		return append(b, make([]byte, padding)...)
	})
}

// apply makes the durable state of a group what the batch has made of it.
func (s *Store) apply(st *stage) {
	if st.forgotten {
		s.mu.Lock()
		delete(s.replicas, st.group)
		s.mu.Unlock()
		return
	}
	st.slots.commit()
	s.inventory.dirty[st.group] = true
	r := st.rep
	if st.destroyed || st.damaged != nil {
		s.dropLog(r, st)
	}
	s.garbage.add(st.group, st.orphans)
	r.slots.held -= uint32(len(st.orphans))
	r.slots.doomed += uint32(len(st.orphans))
	r.seq, r.metaSeq, r.snapshotSeq = st.seq, st.metaSeq, st.snapshotSeq

	var l *Log
	if st.live && st.damaged == nil {
		l = r.log
		if st.created {
			l = &Log{store: s, group: st.group}
		}
		for i := range st.changes {
			if c := &st.changes[i]; c.ref.count > 0 {
				r.slots.filled(c.ref.charge(c.parts))
			}
		}
		s.garbage.add(st.group, r.slots.release(l.apply(st, &s.cache)))
	}
	s.show(st, l)
}

// show makes the result of apply visible to Replicas and Log.
func (s *Store) show(st *stage, l *Log) {
	r := st.rep
	if r.log == l && !st.shown {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A reader may have found damage since the batch was begun. That stays, unless
	// the replica it was found in is gone.
	damage := r.info.Damage
	r.info, r.log = st.info, l
	if damage != nil && st.live && !st.created {
		r.info.Damage = damage
	}
	s.replicas[st.group] = r
}

// dropLog gives up a log with all its slots.
func (s *Store) dropLog(r *replica, st *stage) {
	if l := r.log; l != nil {
		err := fmt.Errorf("%w: group %d", ErrNotFound, st.group)
		if st.damaged != nil {
			err = st.damaged
		}
		r.slots.freed(l.drop(&s.cache, err))
	}
	if st.destroyed {
		s.garbage.add(st.group, r.slots.drop(len(r.slots.free)))
		r.slots = slots{next: r.slots.next, held: r.slots.held, doomed: r.slots.doomed}
	}
}

// apply changes the log to what the stage says and returns the slots that are
// dead now.
func (l *Log) apply(st *stage, c *cache) (dead []slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range st.changes {
		ch := &st.changes[i]
		dead = l.cutLocked(ch.cut, c, dead)
		if ch.ref.count == 0 {
			continue
		}
		l.refs = append(l.refs, ch.ref)
		if len(ch.parts) > 0 {
			if l.parts == nil {
				l.parts = make(map[uint64][]uint32)
			}
			l.parts[ch.ref.seq] = ch.parts
		}
		l.chunks = append(l.chunks, c.add(l, ch.entries))
	}
	l.terms = append(l.terms[:0], st.terms...)
	l.last, l.hard, l.snapshot = st.last, st.hard, st.snapshot
	return l.compactLocked(l.terms.start().index, c, dead)
}

// cutLocked drops everything from entry i on.
func (l *Log) cutLocked(i uint64, c *cache, dead []slot) []slot {
	for n := len(l.refs); n > 0; n = len(l.refs) {
		r := &l.refs[n-1]
		if r.first < i {
			r.count = uint32(min(uint64(r.count), i-r.first))
			break
		}
		dead = l.freeLocked(*r, dead)
		l.refs = l.refs[:n-1]
	}
	for n := len(l.chunks); n > 0; n = len(l.chunks) {
		ch := l.chunks[n-1]
		if first := ch.entries[0].GetIndex(); first < i {
			if keep := i - first; keep < uint64(len(ch.entries)) {
				c.shorten(ch, int(keep))
			}
			break
		}
		c.remove(ch)
		l.chunks[n-1] = nil
		l.chunks = l.chunks[:n-1]
	}
	return dead
}

// compactLocked drops the records of which no entry is after start.
func (l *Log) compactLocked(start uint64, c *cache, dead []slot) []slot {
	n := 0
	for n < len(l.refs) && l.refs[n].end() <= start+1 {
		dead = l.freeLocked(l.refs[n], dead)
		n++
	}
	l.refs = shift(l.refs, n)
	n = 0
	for n < len(l.chunks) {
		ch := l.chunks[n]
		if ch.entries[len(ch.entries)-1].GetIndex() > start {
			break
		}
		c.remove(ch)
		l.chunks[n] = nil
		n++
	}
	l.chunks = shift(l.chunks, n)
	return dead
}

func (l *Log) freeLocked(r ref, dead []slot) []slot {
	parts := l.parts[r.seq]
	delete(l.parts, r.seq)
	each := r.bytes / uint32(1+len(parts)) // parts are equally long, but for the last
	dead = append(dead, slot{r.slot, r.bytes - each*uint32(len(parts)) + slotCharge})
	for _, number := range parts {
		dead = append(dead, slot{number, each + slotCharge})
	}
	return dead
}

// drop empties the log for good and returns its slots.
func (l *Log) drop(c *cache, err error) (dead []slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dead = l.cutLocked(0, c, nil)
	l.gone, l.snapshot = err, nil
	return dead
}

// shift drops the first n elements. What is left of an array much too large for
// it moves to a smaller one.
func shift[T any](s []T, n int) []T {
	if n == 0 {
		return s
	}
	s = s[n:]
	switch {
	case len(s) == 0:
		return nil
	case cap(s) > 64 && cap(s) > 4*len(s):
		return append(make([]T, 0, 2*len(s)), s...)
	default:
		return s
	}
}
