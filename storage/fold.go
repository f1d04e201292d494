package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard/internal/mutant"
)

// build makes a replica of what was found. It always returns one, with as much
// of its identity as can be read; an error says why it cannot be used.
func (f *found) build(s *Store) (*replica, error) {
	r := &replica{info: Replica{Group: f.group}, seq: f.seq}
	for _, slot := range f.slots {
		r.slots.next = max(r.slots.next, slot+1)
	}
	r.slots.held = uint32(len(f.slots))
	rr := f.replica
	if rr == nil {
		f.guessIdentity(r)
		return r, firstError(f.err, errors.New("the replica record is missing"))
	}
	r.info.ID, r.info.Incarnation = rr.replica, rr.incarnation
	if rr.state == stateTombstone {
		return r, f.buildTombstone(s, r)
	}
	if f.err != nil {
		return r, f.err
	}
	if rr.state == stateDamaged {
		return r, errors.New(rr.damage)
	}
	return r, f.buildLog(s, r)
}

// guessIdentity takes the identity from another record than the one that is for it.
func (f *found) guessIdentity(r *replica) {
	var p prefix
	if n := len(f.records); n > 0 {
		p = f.records[n-1].prefix
	}
	if f.head != nil && f.head.seq > p.seq {
		p = f.head.prefix
	}
	r.info.ID, r.info.Incarnation = p.replica, p.incarnation
}

// metaOf returns the meta that was written for a damaged replica last, as far as can be
// read. It may be an older one.
func (f *found) metaOf(r *Replica) []byte {
	if m := f.meta; m != nil && m.replica == r.ID && m.incarnation == r.Incarnation {
		return m.value
	}
	return nil
}

// buildTombstone gives all that is left of the log to the garbage. What is wrong
// with that does not matter any more, unless it is newer than the tombstone.
func (f *found) buildTombstone(s *Store, r *replica) error {
	r.info.Tombstone = new(f.replica.tombstone)
	if f.seq > f.replica.seq {
		r.info.Tombstone = nil
		return fmt.Errorf("record %d is newer than the tombstone, record %d", f.seq, f.replica.seq)
	}
	s.garbage.add(f.group, slices.Clone(f.slots))
	r.slots.held, r.slots.doomed = 0, r.slots.held
	return nil
}

// buildLog folds the records of a live replica, oldest first, into its log.
func (f *found) buildLog(s *Store, r *replica) error {
	if err := f.dropOld(r); err != nil {
		return err
	}
	h, err := f.newestHead()
	if err != nil {
		return err
	}
	l := &Log{store: s, group: f.group, last: h.last, hard: h.hard}
	l.terms = terms{{h.start, h.startTerm}}
	if err := f.fold(l, r, h); err != nil {
		return err
	}
	if err := f.attach(l, r, h); err != nil {
		return err
	}
	r.log = l
	r.slots.peak = r.slots.alive()
	for _, ref := range l.refs {
		r.slots.filled(ref.charge(l.parts[ref.seq]))
	}
	return nil
}

// dropOld removes the records of the replicas before this one, and checks that
// the others are of this one.
func (f *found) dropOld(r *replica) error {
	rr := f.replica
	old := func(p prefix) bool { return p.seq < rr.seq }
	ours := func(p prefix) error {
		if p.incarnation != rr.incarnation || p.replica != rr.replica {
			return fmt.Errorf("record %d is of replica %d of %s, this is replica %d of %s",
				p.seq, p.replica, p.incarnation, rr.replica, rr.incarnation)
		}
		return nil
	}
	if f.head != nil && old(f.head.prefix) {
		f.head = nil
	}
	if f.meta != nil && old(f.meta.prefix) {
		f.meta = nil
	}
	if f.snapshot != nil && old(f.snapshot.prefix) {
		f.snapshot = nil
	}
	var errs []error
	if f.head != nil {
		errs = append(errs, ours(f.head.prefix))
	}
	f.records = slices.DeleteFunc(f.records, func(fr foundRecord) bool {
		if old(fr.prefix) {
			r.slots.addFree(fr.place())
			return true
		}
		errs = append(errs, ours(fr.prefix))
		return false
	})
	return firstError(errs...)
}

// newestHead returns the head with the highest record number.
func (f *found) newestHead() (head, error) {
	slices.SortFunc(f.records, func(a, b foundRecord) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.part, b.part))
	})
	var (
		newest head
		seq    uint64
	)
	if f.head != nil {
		newest, seq = f.head.head, f.head.seq
	}
	for i := len(f.records) - 1; i >= 0; i-- {
		if fr := &f.records[i]; fr.part == 0 {
			if fr.seq > seq {
				newest, seq = fr.head, fr.seq
			}
			break
		}
	}
	// A part beyond the newest head is the rest of a record whose front is lost.
	if n := len(f.records); n > 0 && f.records[n-1].seq > seq {
		return newest, fmt.Errorf("record %d has no part 0", f.records[n-1].seq)
	}
	if seq == 0 {
		return newest, errors.New("there is no record of the hard state and the log")
	}
	err := newest.check()
	return newest, err
}

// fold builds refs and terms. Every index is taken from the newest record that
// covers it: its writer is still there, because a slot is used again only when
// none of its entries is live, and no later record begins at or before the
// index, because that would have cut it.
func (f *found) fold(l *Log, r *replica, h head) error {
	incomplete := make(map[uint64]error)
	prev := make(map[uint64]knownTerm, len(f.records))
	var dead []slot
	for i := 0; i < len(f.records); {
		first := f.records[i]
		n := i + 1
		for n < len(f.records) && f.records[n].seq == first.seq {
			n++
		}
		group := f.records[i:n]
		i = n
		if first.part != 0 {
			// The rest of a dead record, the front of which has been overwritten.
			for i := range group {
				dead = append(dead, group[i].place())
			}
			continue
		}
		prev[first.seq] = first.prev
		if err := f.push(l, group, &dead); err != nil {
			incomplete[first.seq] = err
		}
	}
	dead = l.cutLocked(h.last+1, nil, dead)
	dead = l.compactLocked(h.start, nil, dead)
	l.terms = l.terms.cut(h.last + 1)
	r.slots.addFree(dead...)

	next := h.start + 1
	for i, ref := range l.refs {
		if err := incomplete[ref.seq]; err != nil {
			return err
		}
		if ref.first > next || i > 0 && ref.first < next {
			return fmt.Errorf("entries %d to %d are missing, the log is (%d, %d]",
				next, ref.first-1, h.start, h.last)
		}
		next = ref.end()
	}
	if mutant.On(mutant.ClampTail) {
		l.clampTail(next - 1)
		return nil
	}
	if next != h.last+1 {
		return fmt.Errorf("entries %d to %d are missing, the log is (%d, %d]",
			next, h.last, h.start, h.last)
	}
	return l.checkSeams(h, prev)
}

// checkSeams looks whether each record follows the entry that it was written after, and
// the log ends with the entry that it did. Otherwise a record is missing, and in its place
// stand the entries of an older one, which it had replaced: those have another term.
func (l *Log) checkSeams(h head, prev map[uint64]knownTerm) error {
	for _, ref := range l.refs {
		before := ref.first - 1
		if before < h.start {
			continue // it is cut off
		}
		if p := prev[ref.seq]; p.differs(l.terms.at(before)) {
			return fmt.Errorf("entry %d has term %d, it should have term %d: what had replaced it "+
				"is missing", before, l.terms.at(before), p.term)
		}
	}
	if term := l.terms.at(h.last); h.lastTerm.differs(term) {
		return fmt.Errorf("the last entry %d has term %d, it should have term %d: what had "+
			"replaced it is missing", h.last, term, h.lastTerm.term)
	}
	return nil
}

// clampTail is the bug of [mutant.ClampTail]: the log ends where it ends.
func (l *Log) clampTail(last uint64) {
	l.last = last
	l.terms = l.terms.cut(last + 1)
	l.hard.commit = min(l.hard.commit, last)
}

// push appends one record, given as its parts in order, to the log.
func (f *found) push(l *Log, group []foundRecord, dead *[]slot) error {
	fr := &group[0]
	*dead = l.cutLocked(fr.first, nil, *dead)
	l.refs = append(l.refs, ref{
		first: fr.first, seq: fr.seq, count: uint32(fr.count), slot: fr.slot, bytes: fr.bytes,
	})
	at := &l.refs[len(l.refs)-1]
	if len(group) > 1 {
		if l.parts == nil {
			l.parts = make(map[uint64][]uint32)
		}
		more := make([]uint32, 0, len(group)-1)
		for i := range group[1:] {
			more = append(more, group[i+1].slot)
			at.bytes += group[i+1].bytes
		}
		l.parts[fr.seq] = more
	}
	l.terms = l.terms.splice(fr.first, fr.first+fr.count, fr.terms)
	return f.checkParts(group)
}

// checkParts reports a record of which a part is missing, or is there twice.
func (f *found) checkParts(group []foundRecord) error {
	for i := range group {
		if p := &group[i]; p.part != uint64(i) {
			return fmt.Errorf("record %d with entry %d: part %d stands where %d must",
				p.seq, group[0].first, p.part, i)
		}
	}
	if have, want := uint64(len(group)), group[0].parts; have != want {
		return fmt.Errorf("record %d with entry %d has %d of %d parts",
			group[0].seq, group[0].first, have, want)
	}
	return nil
}

// attach adds meta and snapshot, which must be those that the head names.
func (f *found) attach(l *Log, r *replica, h head) error {
	var metaSeq, snapshotSeq uint64
	if f.meta != nil {
		metaSeq = f.meta.seq
		r.info.Meta = f.meta.value
	}
	if f.snapshot != nil {
		snapshotSeq = f.snapshot.seq
		l.snapshot = f.snapshot.value
	}
	if metaSeq != h.metaSeq {
		return fmt.Errorf("meta is record %d, it should be record %d", metaSeq, h.metaSeq)
	}
	if snapshotSeq != h.snapshotSeq {
		return fmt.Errorf("snapshot is record %d, it should be record %d",
			snapshotSeq, h.snapshotSeq)
	}
	r.metaSeq, r.snapshotSeq = metaSeq, snapshotSeq
	return nil
}
