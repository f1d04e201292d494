package storage

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// stage is what a batch makes of one group. It starts as the durable state, is
// changed by one op after the other, and becomes the durable state after the
// commit. Until then nothing outside of it is touched.
type stage struct {
	rep   *replica
	group raftyard.GroupID

	exists    bool // there is a replica or a tombstone
	live      bool
	damaged   error
	info      Replica
	created   bool // the log starts anew
	destroyed bool
	forgotten bool // nothing of the group is left
	shown     bool // info has changed

	seq         uint64
	metaSeq     uint64
	snapshotSeq uint64
	slots       slotTaker
	orphans     []uint32 // slots that this batch writes and no log has in the end

	terms    terms
	last     uint64
	hard     hardState
	snapshot []byte
	changes  []refChange
}

// refChange is a step of what happens to a log's refs and cache: first all from
// index cut on are dropped, then ref is appended if it has entries.
type refChange struct {
	cut     uint64
	ref     ref
	parts   []uint32
	entries []*raftpb.Entry
}

// load fills st with the durable state of a group.
func (st *stage) load(s *Store, g raftyard.GroupID) {
	*st = stage{group: g, terms: st.terms[:0], changes: st.changes[:0]}
	s.mu.RLock()
	defer s.mu.RUnlock()
	rep := s.replicas[g]
	if rep == nil {
		rep = &replica{info: Replica{Group: g}, seq: s.inventory.floor}
		st.rep, st.slots.from, st.seq = rep, &rep.slots, rep.seq
		return
	}
	st.rep, st.slots.from = rep, &rep.slots
	st.exists, st.live, st.damaged = true, rep.live(), rep.info.Damage
	st.info = rep.info
	st.seq, st.metaSeq, st.snapshotSeq = rep.seq, rep.metaSeq, rep.snapshotSeq
	if l := rep.log; l != nil {
		// Without the log's lock: only the committer changes these, and it is us.
		st.terms = append(st.terms, l.terms...)
		st.last, st.hard, st.snapshot = l.last, l.hard, l.snapshot
	}
}

// prefix takes the next record number.
func (st *stage) prefix(batch uint64) prefix {
	st.seq++
	return prefix{
		incarnation: st.info.Incarnation,
		replica:     st.info.ID,
		batch:       batch,
		seq:         st.seq,
	}
}

func (st *stage) head() head {
	start := st.terms.start()
	return head{
		hard:  st.hard,
		start: start.index, startTerm: start.term, last: st.last,
		metaSeq: st.metaSeq, snapshotSeq: st.snapshotSeq,
		lastTerm: knownTerm{st.terms.at(st.last), true},
	}
}

func (st *stage) invalid(format string, args ...any) error {
	return fmt.Errorf("%w: group %d: %s", ErrInvalid, st.group, fmt.Sprintf(format, args...))
}

// create makes st a new, empty replica.
func (st *stage) create(r Replica) error {
	if st.exists {
		if st.live {
			return fmt.Errorf("%w: group %d: replica %d", ErrExists, st.group, st.info.ID)
		}
		if err := st.info.Tombstone.admits(st.info, r); err != nil {
			return err
		}
	}
	if r.ID == 0 || r.Incarnation.IsZero() {
		return st.invalid("replica %d of incarnation %s", r.ID, r.Incarnation)
	}
	st.exists, st.live, st.created, st.shown, st.damaged = true, true, true, true, nil
	st.info = Replica{Group: st.group, Incarnation: r.Incarnation, ID: r.ID}
	st.terms, st.last = append(st.terms[:0], termRun{}), 0
	st.hard, st.snapshot = hardState{}, nil
	st.metaSeq, st.snapshotSeq = 0, 0
	return nil
}

// destroy makes st a tombstone.
func (st *stage) destroy(t Tombstone) {
	st.exists, st.live, st.destroyed, st.created = true, false, true, false
	st.damaged, st.shown = nil, true
	st.info.Tombstone, st.info.Meta, st.info.Damage, st.info.Forgotten = &t, nil, nil, false
	st.dropChanges()
	st.terms = st.terms[:0]
	st.metaSeq, st.snapshotSeq = 0, 0
}

// spoil makes st a damaged replica.
func (st *stage) spoil(damage error) {
	st.damaged, st.info.Damage, st.shown = damage, damage, true
	st.dropChanges()
}

// dropChanges gives up what the batch has written of the log: there is none any more.
func (st *stage) dropChanges() {
	for _, c := range st.changes {
		if c.ref.count > 0 {
			st.orphans = append(append(st.orphans, c.ref.slot), c.parts...)
		}
	}
	clear(st.changes)
	st.changes = st.changes[:0]
}

// usable reports why st takes no updates.
func (st *stage) usable() error {
	switch {
	case !st.live:
		return fmt.Errorf("%w: group %d", ErrNotFound, st.group)
	case st.damaged != nil:
		return fmt.Errorf("group %d: %w", st.group, st.damaged)
	default:
		return nil
	}
}

// change checks an update and makes st what it is after it. It returns the
// entries that have to be written: those that the log lacks and keeps.
func (st *stage) change(u *Update) ([]*raftpb.Entry, error) {
	if u.Reset {
		if err := st.reset(u.Snapshot); err != nil {
			return nil, err
		}
	}
	entries, err := st.append(u.Entries)
	if err != nil {
		return nil, err
	}
	if u.Snapshot != nil && !u.Reset {
		if err := st.checkSnapshot(u.Snapshot); err != nil {
			return nil, err
		}
	}
	if u.CompactTo > st.terms.start().index {
		if err := st.compact(u); err != nil {
			return nil, err
		}
		for len(entries) > 0 && entries[0].GetIndex() <= u.CompactTo {
			entries = entries[1:]
		}
	}
	return entries, st.setHard(u.HardState)
}

func (st *stage) reset(s *raftpb.Snapshot) error {
	m := s.GetMetadata()
	if m.GetIndex() == 0 {
		return st.invalid("reset without a snapshot")
	}
	st.terms = append(st.terms[:0], termRun{m.GetIndex(), m.GetTerm()})
	st.last = m.GetIndex()
	st.changes = append(st.changes, refChange{cut: 0})
	return nil
}

// append checks entries and makes them the end of the log. It returns those that
// the log has not compacted.
func (st *stage) append(entries []*raftpb.Entry) ([]*raftpb.Entry, error) {
	for i, e := range entries {
		if err := checkEntry(e); err != nil {
			return nil, err
		}
		if want := entries[0].GetIndex() + uint64(i); e.GetIndex() != want || want == 0 {
			return nil, st.invalid("entry %d stands where %d must", e.GetIndex(), want)
		}
	}
	start := st.terms.start().index
	for len(entries) > 0 && entries[0].GetIndex() <= start {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil, nil
	}
	first := entries[0].GetIndex()
	if first > st.last+1 {
		return nil, st.invalid("entry %d after the last entry %d", first, st.last)
	}
	st.terms = st.terms.cut(first)
	for _, e := range entries {
		st.terms = st.terms.push(e.GetIndex(), e.GetTerm())
	}
	st.last = entries[len(entries)-1].GetIndex()
	st.changes = append(st.changes, refChange{cut: first})
	return entries, nil
}

func (st *stage) checkSnapshot(s *raftpb.Snapshot) error {
	index, term := s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm()
	start := st.terms.start().index
	if index == 0 || index < start || index > st.last {
		return st.invalid("snapshot at %d of a log (%d, %d]", index, start, st.last)
	}
	if have := st.terms.at(index); have != term {
		return st.invalid("snapshot at %d has term %d, the entry has %d", index, term, have)
	}
	if st.snapshot != nil {
		if old := snapshotIndex(st.snapshot); index < old {
			return st.invalid("snapshot at %d replaces one at %d", index, old)
		}
	}
	return nil
}

func (st *stage) compact(u *Update) error {
	limit := u.Snapshot.GetMetadata().GetIndex()
	if u.Snapshot == nil && st.snapshot != nil {
		limit = snapshotIndex(st.snapshot)
	}
	if u.CompactTo > limit || u.CompactTo > st.last {
		return st.invalid("compact to %d, with the snapshot at %d and the last entry %d",
			u.CompactTo, limit, st.last)
	}
	st.terms = st.terms.drop(u.CompactTo)
	return nil
}

// setHard takes over a hard state, if there is one, and keeps the commit index
// within the log: a start beyond it means that more was committed than was noted.
func (st *stage) setHard(hs *raftpb.HardState) error {
	if hs != nil {
		st.hard = hardState{true, hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
	}
	if !st.hard.set {
		return nil
	}
	if st.hard.commit > st.last {
		return st.invalid("commit index %d is beyond the last entry %d", st.hard.commit, st.last)
	}
	st.hard.commit = max(st.hard.commit, st.terms.start().index)
	return nil
}
