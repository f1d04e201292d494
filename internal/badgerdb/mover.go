package badgerdb

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// mover brings what is in the journal to Badger's memtable, in order. It has one goroutine,
// which start launches and stop waits for.
//
// Nobody waits for it but who reads, so it takes its time: what has gathered is one request to
// Badger, which costs several switches between goroutines, and for a small commit more than
// all else. Each pair has the version that it has in the journal, so that a replay after a
// crash writes what is there already, or what comes after it. Badger puts no marks of
// transactions around pairs that have a version each, so its log could not be replayed: see
// [errNoMarks].
type mover struct {
	db    *DB
	limit int64 // of bytes that wait; a commit waits while there are more
	wake  chan struct{}
	clock *time.Timer // wakes it
	done  chan struct{}

	pointers []byte // of the batch that is being moved
	hastened uint64 // the log of the memtable that was filled

	mu      sync.Mutex
	changed sync.Cond // for those who wait for it
	queue   []*Txn
	bytes   int64 // of the queue, and of what is being moved
	stopped bool
	err     error // the first failure; nothing is moved any more
	free    []*Txn
	kept    int // bytes of buffers that are free
}

const (
	// gatherTime and gatherBytes bound what gathers before it is moved.
	gatherTime, gatherBytes = 100 * time.Millisecond, 256 << 10

	// keptBytes bounds the buffers that are kept for the next commits.
	keptBytes = 4 << 20
)

func newMover(db *DB) *mover {
	m := &mover{
		db: db, limit: 2 * db.maxTxnBytes,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	m.changed.L = &m.mu
	m.clock = time.AfterFunc(time.Hour, m.hurry)
	m.clock.Stop()
	return m
}

func (m *mover) start() { go m.run() }

// stop has everything moved that is in the queue, unless that has failed.
func (m *mover) stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.hurry()
	<-m.done
	m.clock.Stop()
}

// hurry has it move at once what there is.
func (m *mover) hurry() {
	select {
	case m.wake <- struct{}{}:
	default: // it is about to
	}
}

// take returns an empty transaction.
func (m *mover) take() *Txn {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.free)
	if n == 0 {
		return &Txn{db: m.db}
	}
	t := m.free[n-1]
	m.free = m.free[:n-1]
	m.kept -= cap(t.buf)
	t.reset()
	return t
}

// give takes a transaction back that nobody uses any more.
func (m *mover) give(t *Txn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveLocked(t)
}

func (m *mover) giveLocked(t *Txn) {
	if m.kept+cap(t.buf) <= keptBytes {
		m.free = append(m.free, t)
		m.kept += cap(t.buf)
	}
}

// push puts a transaction into the queue when there is room.
func (m *mover) push(t *Txn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.bytes > m.limit && m.err == nil {
		m.hurry()
		m.changed.Wait()
	}
	if m.err != nil {
		return m.err
	}
	m.queue = append(m.queue, t)
	m.bytes += t.bytes
	switch {
	case m.bytes >= gatherBytes:
		m.hurry()
	case len(m.queue) == 1:
		m.clock.Reset(gatherTime)
	}
	return nil
}

// wait returns when Badger has everything up to a version, or will not get it.
func (m *mover) wait(version uint64) error {
	if m.db.committed.Load() >= version {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.db.committed.Load() < version {
		if m.err != nil {
			return m.err
		}
		m.hurry()
		m.changed.Wait()
	}
	return nil
}

// failed returns the first failure, or nil.
func (m *mover) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *mover) run() {
	defer close(m.done)
	var batch []*Txn
	for range m.wake {
		for {
			var stopped bool
			if batch, stopped = m.next(batch[:0]); stopped {
				return
			}
			if len(batch) == 0 {
				break
			}
			err := m.move(batch)
			m.moved(batch, err)
			clear(batch)
			if err != nil {
				return
			}
		}
	}
}

// next takes as much work as fits into one request. It reports when there will be no more.
func (m *mover) next(batch []*Txn) (_ []*Txn, stopped bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var bytes, count int64
	for _, t := range m.queue {
		bytes += t.bytes
		count += int64(len(t.pairs))
		if len(batch) > 0 && (bytes > m.db.maxTxnBytes || count > m.db.maxTxnCount) {
			break
		}
		batch = append(batch, t)
	}
	rest := copy(m.queue, m.queue[len(batch):])
	clear(m.queue[rest:])
	m.queue = m.queue[:rest]
	return batch, len(batch) == 0 && m.stopped
}

// moved says how it has ended.
func (m *mover) moved(batch []*Txn, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range batch {
		m.bytes -= t.bytes
		if err == nil { // after an error Badger may still have the buffer
			m.giveLocked(t)
		}
	}
	if err != nil {
		m.err = fmt.Errorf("badgerdb: memtable: %w: %w", ErrFailed, err)
		m.queue = nil
	}
	m.changed.Broadcast()
}

// move writes transactions to Badger. The last one may not be durable yet: that matters only
// when the memtable becomes a table, which is after a later commit has begun.
func (m *mover) move(batch []*Txn) error {
	if err := m.hastenTable(); err != nil {
		return err
	}
	db := m.db
	to := db.NewManagedWriteBatch()
	to.SetMaxPendingTxns(1)
	m.pointers = m.pointers[:0]
	for _, t := range batch {
		if err := m.write(t, to); err != nil {
			return err
		}
	}
	if err := db.broken.do(to.Flush); err != nil {
		return err
	}
	if err := db.wal.afterCommit(); err != nil {
		return err
	}
	newest := batch[len(batch)-1].version
	db.journal.moved(newest, db.wal.active())
	db.committed.Store(newest)
	// Always below the newest commit: it may not be durable yet, and who reads then reads the one
	// before. And so that, whatever compaction drops, the newest version in the files stays that
	// of the newest commit: recovery and checkTables count on it. At once, because a compaction
	// that keeps what is hidden brings it, with the deletion, to where nothing looks at it again.
	db.SetDiscardTs(db.readers.oldest(newest - 1))
	return nil
}

// hastenTable has the memtable become a table, when many files of the journal wait for that: with
// where values are instead of the values it would take long to be full. It comes before a batch:
// all that the memtable has is durable then, since a later commit has begun.
func (m *mover) hastenTable() error {
	active := m.db.wal.active()
	if m.hastened == active || m.db.journal.waiting(active) < maxWaiting {
		return nil
	}
	m.hastened = active
	value := make([]byte, min(fillSize, m.db.maxValue/2))
	for n := 0; m.db.wal.active() == active; n++ {
		if err := m.fill(fmt.Appendf(nil, "%s%04d", fillerKey, n), value); err != nil {
			return err
		}
	}
	return nil
}

// fill gives Badger a pair of its own. It is of a version that everyone has, so nothing else
// changes.
func (m *mover) fill(key, value []byte) error {
	to := m.db.NewManagedWriteBatch()
	err := to.SetEntryAt(badger.NewEntry(key, value), m.db.committed.Load())
	if err != nil {
		return err
	}
	if err := m.db.broken.do(to.Flush); err != nil {
		return err
	}
	return m.db.wal.afterCommit()
}

// whole gives Badger a transaction again, with all values in it, which take the place of what it
// has of them: who closes the database makes a table of that, and there must be no pointer in it
// to what the journal may not have. The mover has stopped.
func (m *mover) whole(t *Txn) error {
	t.whole = true
	to := m.db.NewManagedWriteBatch()
	if err := m.write(t, to); err != nil {
		return err
	}
	return m.db.broken.do(to.Flush)
}

// write has Badger take the pairs, or where their values are.
func (m *mover) write(t *Txn, b *badger.WriteBatch) error {
	for _, p := range t.pairs {
		key, value := t.pair(p)
		var err error
		if at, ok := t.stays(p); ok {
			from := len(m.pointers)
			m.pointers = at.append(m.pointers)
			e := badger.NewEntry(key, m.pointers[from:]).WithMeta(metaPointer)
			err = b.SetEntryAt(e, t.version)
		} else if value == nil {
			err = b.DeleteAt(key, t.version)
		} else {
			err = b.SetEntryAt(badger.NewEntry(key, value), t.version)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
