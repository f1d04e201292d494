package storage

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/wire"
)

// writer turns a batch into keys and records. The committer owns the only one
// and uses its memory again for every batch.
type writer struct {
	store  *Store
	batch  uint64
	stages map[raftyard.GroupID]*stage
	order  []*stage // in which they were first touched
	spare  []*stage
	pairs  []pair
	buf    []byte
	bytes  int64

	more func(kv.Writer) error // writes what is there already, behind the pairs
}

type pair struct{ key, value []byte } // a nil value deletes the key

// keepBuffer is the largest buffer that is kept from one batch to the next.
const keepBuffer = 16 << 20

func (w *writer) reset(s *Store, batch uint64, size int64) {
	w.store, w.batch, w.bytes = s, batch, 0
	if w.stages == nil {
		w.stages = make(map[raftyard.GroupID]*stage)
	}
	clear(w.stages)
	for _, st := range w.order {
		// Let go of what the batch held, not of the memory of the lists.
		clear(st.changes)
		*st = stage{terms: st.terms[:0], changes: st.changes[:0]}
	}
	w.spare = append(w.spare, w.order...)
	clear(w.pairs)
	w.order, w.pairs = w.order[:0], w.pairs[:0]
	if int64(cap(w.buf)) < size || cap(w.buf) > keepBuffer {
		w.buf = make([]byte, 0, size)
	}
	w.buf = w.buf[:0]
}

func (w *writer) stage(g raftyard.GroupID) *stage {
	if st, ok := w.stages[g]; ok {
		return st
	}
	var st *stage
	if n := len(w.spare); n > 0 {
		st, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		st = new(stage)
	}
	st.load(w.store, g)
	w.stages[g] = st
	w.order = append(w.order, st)
	return st
}

// add checks one op and encodes what it writes.
func (w *writer) add(o *op) error {
	st := w.stage(o.group)
	if st.forgotten {
		return st.invalid("it is forgotten in the same batch")
	}
	switch o.kind {
	case opCreate:
		if err := st.create(o.replica); err != nil {
			return err
		}
		w.replica(st, &replicaRecord{state: stateLive})
		return w.update(st, &o.update)
	case opUpdate:
		if err := st.usable(); err != nil {
			return err
		}
		return w.update(st, &o.update)
	case opDestroy:
		return w.destroy(st, o.tombstone)
	case opPurged:
		if !st.exists || st.live {
			return fmt.Errorf("%w: group %d: no tombstone to mark", ErrInvalid, o.group)
		}
		t := *st.info.Tombstone
		t.Purged = true
		st.info.Tombstone, st.shown = &t, true
		w.replica(st, &replicaRecord{state: stateTombstone, tombstone: t})
		return nil
	case opDamaged:
		return w.damaged(st, o.damage)
	case opForget:
		return w.forget(st)
	default:
		return fmt.Errorf("%w: op %d", ErrInvalid, o.kind)
	}
}

func (w *writer) damaged(st *stage, reason string) error {
	if !st.live {
		return fmt.Errorf("%w: group %d: nothing to be damaged", ErrNotFound, st.group)
	}
	if err := w.checkValue(st, "reason", len(reason)); err != nil {
		return err
	}
	st.spoil(fmt.Errorf("%w: %s", ErrDamaged, reason))
	w.replica(st, &replicaRecord{state: stateDamaged, damage: reason})
	return nil
}

func (w *writer) destroy(st *stage, t Tombstone) error {
	if !st.exists {
		return fmt.Errorf("%w: group %d: nothing to destroy", ErrNotFound, st.group)
	}
	if err := w.checkValue(st, "tombstone", len(t.Data)); err != nil {
		return err
	}
	st.destroy(t)
	w.replica(st, &replicaRecord{state: stateTombstone, tombstone: t})
	for _, k := range []kind{kindHead, kindMeta, kindSnapshot} {
		w.remove(appendKey(nil, st.group, k))
	}
	return nil
}

// forget deletes the last key of a group. Its numbers are not known any more after that: if
// it comes back, its records begin above the floor of the inventory.
func (w *writer) forget(st *stage) error {
	switch {
	case !st.exists || st.live:
		return st.invalid("no tombstone to forget")
	case st.seq != st.rep.seq:
		return st.invalid("it is changed and forgotten in one batch")
	case !st.info.Tombstone.Purged || st.rep.slots.held != 0 || st.rep.slots.doomed != 0:
		return fmt.Errorf("%w: group %d", ErrRemains, st.group)
	}
	st.forgotten = true
	w.remove(appendKey(nil, st.group, kindReplica))
	// No record of the group tells of this batch, which must not look lost.
	w.sequence(0)
	return nil
}

func (w *writer) checkValue(st *stage, what string, size int) error {
	if limit := w.store.limits.MaxValueBytes; int64(size) > limit {
		return fmt.Errorf("%w: group %d: %s of %d bytes, the limit is %d",
			ErrTooLarge, st.group, what, size, limit)
	}
	return nil
}

// update encodes what one update writes: meta and snapshot if they change, then
// the records with the entries, or a head alone. The last of them says how the
// whole log is.
func (w *writer) update(st *stage, u *Update) error {
	for _, e := range u.Entries {
		if limit := w.store.limits.MaxEntryBytes; int64(len(e.GetData())) > limit {
			return fmt.Errorf("%w: group %d: entry %d of %d bytes, the limit is %d",
				ErrTooLarge, st.group, e.GetIndex(), len(e.GetData()), limit)
		}
	}
	entries, err := st.change(u)
	if err != nil {
		return err
	}
	if u.Snapshot != nil {
		if err := w.snapshot(st, u.Snapshot); err != nil {
			return err
		}
	}
	if u.Meta != nil {
		if err := w.meta(st, u.Meta); err != nil {
			return err
		}
	}
	w.store.stats.updates.Add(1)
	if len(entries) == 0 {
		w.head(st)
		return nil
	}
	for len(entries) > 0 {
		n, size := w.fits(entries)
		w.entries(st, entries[:n:n], size)
		entries = entries[n:]
	}
	return nil
}

// fits returns how many entries go into the next record, and their encoded size.
func (w *writer) fits(entries []*raftpb.Entry) (n, size int) {
	for _, e := range entries {
		s := encodedSize(e)
		if n > 0 && int64(size+s) > w.store.recordLimit {
			break
		}
		n, size = n+1, size+s
	}
	return n, size
}

func (w *writer) replica(st *stage, rr *replicaRecord) {
	rr.prefix = st.prefix(w.batch)
	key := w.key(func(b []byte) []byte { return appendKey(b, st.group, kindReplica) })
	w.put(key, rr.append)
}

func (w *writer) head(st *stage) {
	p, h := st.prefix(w.batch), st.head()
	key := w.key(func(b []byte) []byte { return appendKey(b, st.group, kindHead) })
	w.put(key, func(b []byte) []byte { return appendHeadRecord(b, &p, &h) })
}

func (w *writer) meta(st *stage, meta []byte) error {
	if err := w.checkValue(st, "meta", len(meta)); err != nil {
		return err
	}
	p := st.prefix(w.batch)
	st.metaSeq = p.seq
	// The caller may use its bytes again after Commit.
	st.info.Meta, st.shown = append([]byte{}, meta...), true
	key := w.key(func(b []byte) []byte { return appendKey(b, st.group, kindMeta) })
	w.put(key, func(b []byte) []byte { return wire.AppendBytes(p.append(b), meta) })
	return nil
}

func (w *writer) snapshot(st *stage, s *raftpb.Snapshot) error {
	if err := w.checkValue(st, "snapshot", maxSnapshotSize(s)); err != nil {
		return err
	}
	p := st.prefix(w.batch)
	st.snapshotSeq = p.seq
	st.snapshot = appendSnapshot(make([]byte, 0, maxSnapshotSize(s)), s)
	key := w.key(func(b []byte) []byte { return appendKey(b, st.group, kindSnapshot) })
	w.put(key, func(b []byte) []byte { return append(p.append(b), st.snapshot...) })
	return nil
}

// entries encodes one log record, in parts if it is one long entry.
func (w *writer) entries(st *stage, entries []*raftpb.Entry, size int) {
	limit := int(w.store.recordLimit)
	l := logRecord{
		prefix: st.prefix(w.batch),
		parts:  uint64(max(1, (size+limit-1)/limit)),
		head:   st.head(),
		first:  entries[0].GetIndex(),
		count:  uint64(len(entries)),
		prev:   knownTerm{st.terms.at(entries[0].GetIndex() - 1), true},
	}
	c := refChange{cut: l.first, entries: entries, ref: ref{
		first: l.first, seq: l.seq, count: uint32(len(entries)), bytes: uint32(size),
	}}
	if l.parts == 1 {
		c.ref.slot = w.logRecord(st, &l, func(b []byte) []byte {
			for _, e := range entries {
				b = appendEntry(b, e)
			}
			return b
		})
		st.changes = append(st.changes, c)
		return
	}
	body := appendEntry(make([]byte, 0, size), entries[0])
	for l.part = range l.parts {
		piece := body[:min(limit, len(body))]
		body = body[len(piece):]
		slot := w.logRecord(st, &l, func(b []byte) []byte { return append(b, piece...) })
		if l.part == 0 {
			c.ref.slot = slot
		} else {
			c.parts = append(c.parts, slot)
		}
	}
	st.changes = append(st.changes, c)
}

func (w *writer) logRecord(st *stage, l *logRecord, body func([]byte) []byte) (slot uint32) {
	slot = st.slots.take()
	key := w.key(func(b []byte) []byte { return appendLogKey(b, st.group, slot) })
	w.put(key, func(b []byte) []byte { return body(l.appendFront(b)) })
	return slot
}

// key appends a key to the buffer.
func (w *writer) key(fn func([]byte) []byte) []byte {
	at := len(w.buf)
	w.buf = fn(w.buf)
	return w.buf[at:len(w.buf):len(w.buf)]
}

// put appends a record to the buffer and seals it.
func (w *writer) put(key []byte, fn func([]byte) []byte) {
	at := len(w.buf)
	w.buf = fn(w.buf)
	value := w.buf[at:len(w.buf):len(w.buf)]
	sealRecord(key, value)
	w.pairs = append(w.pairs, pair{key, value})
	w.bytes += int64(len(key) + len(value))
}

func (w *writer) remove(key []byte) {
	w.pairs = append(w.pairs, pair{key: key})
	w.bytes += int64(len(key))
}
