package badgerdb

import (
	"fmt"
	"sync"
)

// mover brings what is in the journal to Badger's memtable, in order. It has one goroutine,
// which start launches and stop waits for.
//
// A commit waits for the journal's sync, and the mover works meanwhile. A commit is one
// transaction of Badger's, with the version that it has in the journal, so that a replay after
// a crash writes what is there already, or what comes after it.
type mover struct {
	db    *DB
	limit int64 // of bytes that wait; a commit waits while there are more
	done  chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	queue   []*Txn
	bytes   int64 // of the queue, and of what is being moved
	stopped bool
	err     error // the first failure; nothing is moved any more
	free    []*Txn
}

const (
	// freeTxns and freeBytes bound the buffers that are kept for the next commits.
	freeTxns, freeBytes = 4, 4 << 20
)

func newMover(db *DB) *mover {
	m := &mover{db: db, limit: 2 * db.maxTxnBytes, done: make(chan struct{})}
	m.changed.L = &m.mu
	return m
}

func (m *mover) start() { go m.run() }

// stop has everything moved that is in the queue, unless that has failed.
func (m *mover) stop() {
	m.mu.Lock()
	m.stopped = true
	m.changed.Broadcast()
	m.mu.Unlock()
	<-m.done
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
	if len(m.free) < freeTxns && cap(t.buf) <= freeBytes {
		m.free = append(m.free, t)
	}
}

// push puts a transaction into the queue when there is room.
func (m *mover) push(t *Txn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.bytes > m.limit && m.err == nil {
		m.changed.Wait()
	}
	if m.err != nil {
		return m.err
	}
	m.queue = append(m.queue, t)
	m.bytes += t.bytes
	m.changed.Broadcast()
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
	for {
		t := m.next()
		if t == nil {
			return
		}
		err := m.move(t)
		m.moved(t, err)
		if err != nil {
			return
		}
	}
}

// next waits for work. It returns nil when there will be no more.
func (m *mover) next() *Txn {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) == 0 {
		if m.stopped {
			return nil
		}
		m.changed.Wait()
	}
	t := m.queue[0]
	rest := copy(m.queue, m.queue[1:])
	m.queue[rest] = nil
	m.queue = m.queue[:rest]
	return t
}

// moved says how it has ended.
func (m *mover) moved(t *Txn, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes -= t.bytes
	if err != nil { // Badger may still have the buffer
		m.err = fmt.Errorf("badgerdb: memtable: %w: %w", ErrFailed, err)
		m.queue = nil
	} else {
		m.giveLocked(t)
	}
	m.changed.Broadcast()
}

// move writes a transaction to Badger. It is in the journal, if not durable yet: that matters
// only when the memtable becomes a table, which is after a later commit has begun.
func (m *mover) move(t *Txn) error {
	db := m.db
	last := db.committed.Load()
	txn := db.NewTransactionAt(last, true)
	defer txn.Discard()
	for _, p := range t.pairs {
		key, value := t.pair(p)
		var err error
		if value == nil {
			err = txn.Delete(key)
		} else {
			err = txn.Set(key, value)
		}
		if err != nil {
			return err
		}
	}
	if err := db.broken.commit(txn, t.version); err != nil {
		return err
	}
	if err := db.wal.afterCommit(); err != nil {
		return err
	}
	db.journal.moved(t.version, db.wal.active())
	db.committed.Store(t.version)
	// Always below the newest commit, so that whatever compaction drops, the newest
	// version in the files stays that of the newest commit: recovery and checkTables
	// count on it. At once, because a compaction that keeps what is hidden brings it,
	// with the deletion, to where nothing looks at it again.
	db.SetDiscardTs(db.readers.oldest(last))
	return nil
}
