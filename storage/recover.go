package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/mutant"
)

// recover reads the whole database once, group after group, and rebuilds what is
// kept in memory. What is wrong with one group becomes that replica's damage.
func (s *Store) recover() error {
	var at progress
	f := new(found)
	view := s.db.Snapshot()
	defer view.Discard()
	err := view.Scan(func(key, value []byte, version uint64) error {
		batch, err := s.recoverPair(f, view, key, value)
		if err == nil {
			at.saw(batch, version)
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.any {
		s.take(f)
	}
	newest := at.newest()
	s.durable.Store(newest)
	s.inventory.guessFloor(max(newest, s.note.noted))
	amends := s.checkInventory()
	if noted := s.note.noted; noted > newest && !mutant.On(mutant.ClampTail) {
		return s.lostTail(newest, noted, amends)
	}
	if s.inventory.whole {
		s.findForgotten()
	}
	return s.amend(amends, func() uint64 { return s.durable.Load() + 1 })
}

// findForgotten finds those that an earlier start has found to be forgotten, of which the
// inventory has nothing since.
func (s *Store) findForgotten() {
	for _, r := range s.replicas {
		r.info.Forgotten = r.live() && r.info.Damage != nil && !s.inventory.has(r)
	}
}

// recoverPair takes in one key and returns the number of its batch, or zero if its
// record does not tell. Why a value is not there, the view says.
func (s *Store) recoverPair(
	f *found, view kv.Snapshot, key, value []byte,
) (batch uint64, err error) {
	var lost error
	if value == nil {
		_, lost = view.Get(key)
		if lost != nil && !errors.Is(lost, badgerdb.ErrDamaged) {
			return 0, lost // it may be there
		}
	}
	k, ok := parseGroupKey(key)
	if !ok {
		return readStoreRecord(key, value)
	}
	if f.any && k.group != f.group {
		s.take(f)
	}
	f.group, f.any = k.group, true
	return f.pair(k, key, value, lost), nil
}

// progress finds out the number of the newest batch. Batches and Badger's
// versions rise together, one by one, so a record that cannot be read still
// tells, by its version, that its batch is there.
type progress struct {
	batch, version uint64 // of the newest batch that can be read
	unreadable     uint64 // the highest version of a record that cannot
}

// saw takes in one key; batch is zero if its record does not tell.
func (p *progress) saw(batch, version uint64) {
	switch {
	case batch == 0:
		p.unreadable = max(p.unreadable, version)
	case batch > p.batch:
		p.batch, p.version = batch, version
	}
}

func (p *progress) newest() uint64 {
	if p.batch != 0 && p.unreadable > p.version {
		return p.batch + p.unreadable - p.version
	}
	return p.batch
}

// readStoreRecord reads a record of the store and returns the batch number in it.
func readStoreRecord(key, value []byte) (batch uint64, err error) {
	switch string(key) {
	case identityKey:
		return 0, nil // checked before
	case sequenceKey:
		// One that cannot be read still counts by its version.
		if r, rerr := openRecord(key, value); rerr == nil {
			batch = r.Uvarint()
		}
		return batch, nil
	default:
		return 0, fmt.Errorf("%w: key %x is none of this store", ErrDamaged, key)
	}
}

// take makes a replica of what was found of one group, and makes f ready for the
// next.
func (s *Store) take(f *found) {
	r, err := f.build(s)
	if err != nil {
		r.info.Damage = fmt.Errorf("%w: group %d: %w", ErrDamaged, f.group, err)
		r.log = nil
		r.info.Meta = f.metaOf(&r.info)
		r.slots.free = r.slots.free[:0]
		for _, number := range f.slots {
			r.slots.free = append(r.slots.free, slot{number: number})
		}
		s.opts.Logger.Error("replica is damaged",
			slog.Uint64("group", uint64(f.group)), slog.Any("error", r.info.Damage))
	}
	s.replicas[f.group] = r
	f.reset()
}

// lostTail handles a database that has come back without batches that were
// durable. Whose they were is not known, so every live replica is marked as
// damaged, durably: the next start could not tell any more. The numbers go on
// only after the last mark is written, so an interrupted marking starts again.
// Those that are known to be damaged have their own reasons.
//
// What was created in a batch that is not the newest is in the inventory. So who is here,
// and not there, had been forgotten.
//
// Replicas that were lost altogether, and tombstones, only the inventory knows. Without it
// the store does not open: replicas would be made again that know nothing of what they once
// vouched for, and groups be founded again that go on elsewhere.
func (s *Store) lostTail(newest, noted uint64, amends []op) error {
	text := fmt.Sprintf("the store has lost its newest batches: it ends with batch %d,"+
		" batch %d was durable", newest, noted)
	if !s.inventory.whole {
		return fmt.Errorf("%w: %s, and no inventory says which replicas there were",
			ErrDamaged, text)
	}
	s.opts.Logger.Error("all replicas are damaged", slog.String("error", text))
	for _, r := range s.liveReplicas() { // a damaged one has no log
		r.info.Forgotten = !s.inventory.has(r)
		amends = append(amends, op{kind: opDamaged, group: r.info.Group, damage: text})
	}
	if err := s.amend(amends, func() uint64 { return newest }); err != nil {
		return err
	}
	s.writer.reset(s, noted+1, recordCharge)
	s.writer.sequence(0)
	return s.write(&s.writer, 0)
}

// amend writes that replicas are damaged, and tombstones that were lost, in batches of the
// numbers given.
func (s *Store) amend(ops []op, number func() uint64) error {
	w := &s.writer
	for len(ops) > 0 {
		n, size := 1, ops[0].amends()
		for n < min(len(ops), amendBatch) && size+ops[n].amends() <= s.limits.MaxBatchBytes {
			size += ops[n].amends()
			n++
		}
		w.reset(s, number(), size)
		for i := range ops[:n] {
			if err := w.add(&ops[i]); err != nil {
				return err
			}
		}
		if err := s.write(w, 0); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// amends returns how much of a batch one takes at most, as [Batch] counts it.
func (o *op) amends() int64 {
	return 4*recordCharge + int64(len(o.damage)+len(o.tombstone.Data))
}

// amendBatch bounds how many are written at once; it is small enough for the smallest
// memtable.
const amendBatch = 128

// found is everything that the scan has seen of one group.
type found struct {
	any   bool
	group groupID

	replica  *replicaRecord
	head     *foundHead
	meta     *foundValue
	snapshot *foundValue
	records  []foundRecord
	slots    []uint32 // all, also of records that cannot be read

	seq uint64 // the highest
	err error  // the first thing that is wrong
}

type foundHead struct {
	prefix

	head head
}

type foundValue struct {
	prefix

	value []byte
}

type foundRecord struct {
	logRecord // without body

	slot  uint32
	bytes uint32
	terms []termRun
}

// place returns the record's slot.
func (fr *foundRecord) place() slot { return slot{fr.slot, fr.bytes + slotCharge} }

func (f *found) reset() {
	clear(f.records)
	*f = found{records: f.records[:0], slots: f.slots[:0]}
}

// pair takes in one key of the group and returns the number of its batch, or zero
// if that cannot be read, or is lost. What is wrong with the record goes to f.err.
func (f *found) pair(k groupKey, key, value []byte, lost error) (batch uint64) {
	if k.kind == kindLog {
		f.slots = append(f.slots, k.slot)
	}
	p, err := prefix{}, lost
	if lost == nil {
		p, err = f.record(k, key, value)
	}
	if err != nil {
		what := fmt.Sprintf("record %c", k.kind)
		if k.kind == kindLog {
			what = fmt.Sprintf("record in slot %d", k.slot)
		}
		f.wrong(fmt.Errorf("%s: %w", what, err))
		return 0
	}
	f.seq = max(f.seq, p.seq)
	return p.batch
}

func (f *found) wrong(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *found) record(k groupKey, key, value []byte) (prefix, error) {
	switch k.kind {
	case kindReplica:
		rr, err := readReplicaRecord(key, value)
		f.replica = &rr
		if err != nil {
			f.replica = nil
		}
		return rr.prefix, err
	case kindHead:
		p, h, err := readHeadRecord(key, value)
		f.head = &foundHead{p, h}
		return p, err
	case kindMeta:
		r, err := openRecord(key, value)
		if err != nil {
			return prefix{}, err
		}
		f.meta = &foundValue{readPrefix(r), slices.Clone(r.Bytes())}
		return f.meta.prefix, r.Close()
	case kindSnapshot:
		r, err := openRecord(key, value)
		if err != nil {
			return prefix{}, err
		}
		f.snapshot = &foundValue{readPrefix(r), slices.Clone(r.Raw(uint64(r.Len())))}
		if r.Err() == nil {
			_, err = decodeSnapshot(f.snapshot.value)
		}
		return f.snapshot.prefix, firstError(r.Close(), err)
	default: // kindLog; parseGroupKey admits no other
		return f.logRecord(k.slot, key, value)
	}
}

func (f *found) logRecord(slot uint32, key, value []byte) (prefix, error) {
	l, err := readLogRecord(key, value)
	if err != nil {
		return l.prefix, err
	}
	fr := foundRecord{logRecord: l, slot: slot, bytes: uint32(len(l.body))}
	if l.part == 0 {
		err = readTerms(&l, func(index, term uint64) {
			if n := len(fr.terms); n == 0 || fr.terms[n-1].term != term {
				fr.terms = append(fr.terms, termRun{index, term})
			}
		})
	}
	fr.body = nil
	f.records = append(f.records, fr)
	return l.prefix, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
