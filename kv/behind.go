package kv

import (
	"bytes"
	"strings"
	"sync"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// behind is the state of a replica with what the database does not have of it yet. Commands
// are answered when their effect is here: they are committed in the group's log, which is not
// cut before the database has it, see [Machine.Applied].
//
// There are two layers above the database. The flusher takes the upper one, from then on the
// lower, and writes it as one transaction, while commands go into a new one.
//
//	commands ──▶ top ──▶ under ──▶ database
//
// What is in a layer counts more than what is below. A layer is let go of when the database
// shows what was in it, so whoever looks at the layers first, and then at a view of the
// database that was opened meanwhile, misses nothing.
//
// It outlives its machine: one that is opened again goes on with it. The flusher's lock comes
// before its own.
type behind struct {
	replica Replica
	db      *badgerdb.DB
	flusher *flusher

	mu    sync.RWMutex // is not held while anything waits for a disk
	state machineState // after all commands
	top   *layer       // takes what commands do; nil: nothing to be written
	under *layer       // is being written; nil: nothing is
	fresh bool         // the generation has no record, not even in under

	// Both are the flusher's.
	queued, writing bool
}

// A layer is what some commands have changed: records for one transaction.
type layer struct {
	state machineState // after the last of them
	fresh bool         // the generation's record is to be written, too
	items map[string]pendingItem
	bytes int64 // at least what the write set will have
}

// itemBytes is at least what an item adds to a write set.
func itemBytes(key string, it item) int64 {
	return int64(len(key)+len(it.value)) + recordOverhead + badgerdb.EntryOverhead
}

func (l *layer) count() int64 {
	if l == nil {
		return 0
	}
	return int64(len(l.items))
}

func (l *layer) size() int64 {
	if l == nil {
		return 0
	}
	return l.bytes
}

// get returns what a layer has of a key; ok is false if that is nothing.
func (l *layer) get(key string) (it pendingItem, ok bool) {
	if l != nil {
		it, ok = l.items[key]
	}
	return it, ok
}

// set makes an item the layer's, with a value of its own: that of a command is its log's.
func (l *layer) set(key string, it pendingItem) {
	if before, ok := l.items[key]; ok {
		l.bytes -= itemBytes(key, before.item)
		it.stored = before.stored // below the layer nothing has changed
	}
	it.value = bytes.Clone(it.value)
	l.bytes += itemBytes(key, it.item)
	l.items[key] = it
}

// writes returns what the database is to be given.
func (l *layer) writes(r Replica) (set writeSet) {
	for key, it := range l.items {
		storedKey := itemKey(l.state.generation, []byte(key))
		switch {
		case it.present():
			set.set(storedKey, encodeItem(r.Group, storedKey, it.item))
		case it.stored:
			set.delete(storedKey)
		}
	}
	set.set(machineKey(r), encodeMachine(r, l.state))
	if l.fresh {
		rec := generationRecord{state: live, owner: r}
		set.set(generationKey(l.state.generation), encodeGeneration(l.state.generation, rec))
	}
	return set
}

func newBehind(s *Store, r Replica, state machineState) *behind {
	return &behind{
		replica: r, db: s.db, flusher: s.flusher, state: state, fresh: state.generation == 0,
	}
}

// viewLocked opens a view of the database in which nothing is missing that is in none of the
// layers now. The caller holds mu, so that no layer goes meanwhile.
func (b *behind) viewLocked() (*badgerdb.Snapshot, error) {
	view := b.db.Snapshot()
	if err := view.Err(); err != nil {
		view.Discard()
		return nil, err
	}
	return view, nil
}

// begin returns what commands begin from, above a view of the database. Only who may change the
// state may call it, and read the layers without the lock: nobody else writes to them.
func (b *behind) begin() (*pending, *badgerdb.Snapshot, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	view, err := b.viewLocked()
	if err != nil {
		return nil, nil, err
	}
	return &pending{
		at: b.db.Reader(view.Txn), top: b.top, under: b.under, group: b.replica.Group,
		state: b.state, items: make(map[string]pendingItem),
	}, view, nil
}

// add takes over what commands have done.
func (b *behind) add(p *pending) { b.flusher.add(b, b.merge(p)) }

// merge is add, and returns how many bytes the upper layer has got.
func (b *behind) merge(p *pending) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.top.size()
	if b.top == nil {
		b.top = &layer{items: make(map[string]pendingItem, len(p.items)), fresh: b.fresh}
		b.fresh = false
	}
	for key, it := range p.items {
		if was, ok := p.top.get(key); ok && b.top != p.top {
			it.stored = was.present() // it has come below meanwhile
		}
		b.top.set(key, it)
	}
	b.state, b.top.state = p.state, p.state
	return b.top.bytes - before
}

// take moves the upper layer down, to be written, and returns it.
func (b *behind) take() *layer {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under, b.top = b.top, nil
	return b.under
}

// wrote lets go of the lower layer: the database shows what was in it.
func (b *behind) wrote() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under = nil
}

// isWritten reports whether the database has all of it.
func (b *behind) isWritten() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.top == nil && b.under == nil
}

// isFull reports whether the upper layer has so many bytes or items.
func (b *behind) isFull(bytes, count int64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.top.size() >= bytes || b.top.count() >= count
}

// replace says that the state is another one, which the database has. All was written before.
func (b *behind) replace(state machineState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.fresh = state, state.generation == 0
}

// lookupLocked returns what the layers have of a key; ok is false if that is nothing.
func (b *behind) lookupLocked(key string) (it item, ok bool) {
	for _, l := range []*layer{b.top, b.under} {
		if found, ok := l.get(key); ok {
			return found.item, true
		}
	}
	return item{}, false
}

// look has fn look into the layers, and opens a view of the database as it is then, of which the
// state is returned too. There is none if that was enough.
func (b *behind) look(fn func(*behind) (enough bool)) (machineState, *badgerdb.Snapshot, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if fn(b) {
		return machineState{}, nil, nil
	}
	view, err := b.viewLocked()
	return b.state, view, err
}

// A change is an item that a layer has, the zero item if its key is deleted.
type change struct {
	key string
	item
}

// changesLocked returns what the layers have of keys that begin with a prefix, from a start on.
func (b *behind) changesLocked(prefix, start []byte) []change {
	from, with := string(start), string(prefix)
	var found []change
	for _, l := range []*layer{b.top, b.under} {
		if l == nil {
			continue
		}
		for key, it := range l.items {
			if key < from || !strings.HasPrefix(key, with) {
				continue
			}
			if l == b.under {
				if _, hidden := b.top.get(key); hidden {
					continue
				}
			}
			found = append(found, change{key: key, item: it.item})
		}
	}
	return found
}

// A merge puts changes between the items of the database, in order.
type merge struct {
	changes []change // a heap, the first key on top: a list may need few of many
	fn      func(key []byte, it item) (more bool, err error)
}

func newMerge(changes []change, fn func([]byte, item) (bool, error)) *merge {
	m := &merge{changes: changes, fn: fn}
	for i := len(changes)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m
}

// sink moves a change down to where none below it comes before it.
func (m *merge) sink(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.changes); child++ {
			if m.changes[child].key < m.changes[first].key {
				first = child
			}
		}
		if first == i {
			return
		}
		m.changes[i], m.changes[first] = m.changes[first], m.changes[i]
		i = first
	}
}

// before gives fn what comes before a key of the database, and reports whether that item counts:
// not if it has been changed. It is not more if fn wants no more.
func (m *merge) before(key []byte) (counts, more bool, err error) {
	for len(m.changes) > 0 && m.changes[0].key < string(key) {
		if more, err = m.next(); err != nil || !more {
			return false, false, err
		}
	}
	if len(m.changes) == 0 || m.changes[0].key != string(key) {
		return true, true, nil
	}
	more, err = m.next()
	return false, more, err
}

// rest gives fn what comes after all that the database has.
func (m *merge) rest() error {
	for len(m.changes) > 0 {
		if more, err := m.next(); err != nil || !more {
			return err
		}
	}
	return nil
}

func (m *merge) next() (more bool, err error) {
	c, last := m.changes[0], len(m.changes)-1
	m.changes[0], m.changes[last] = m.changes[last], c // who has the slice still has all of them
	m.changes = m.changes[:last]
	m.sink(0)
	if !c.present() {
		return true, nil
	}
	return m.fn([]byte(c.key), c.item)
}
