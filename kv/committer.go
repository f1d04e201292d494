package kv

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// A write sets key to value, or deletes it when value is nil.
type write struct {
	key, value []byte
}

// A writeSet is what must become durable together. It fits one transaction.
type writeSet struct {
	writes []write
	bytes  int64
}

// set adds a write. Nobody may change key and value afterwards.
func (w *writeSet) set(key, value []byte) {
	w.writes = append(w.writes, write{key: key, value: value})
	w.bytes += int64(len(key)+len(value)) + badgerdb.EntryOverhead
}

func (w *writeSet) delete(key []byte) { w.set(key, nil) }

func (w *writeSet) count() int64 { return int64(len(w.writes)) }

// A request is a write set on its way through the committer.
type request struct {
	set  writeSet
	done chan error // has room for the one answer
}

// A committer makes write sets durable from one goroutine. While a transaction
// is being synced the sets of other callers gather; the next transaction takes
// all of them that fit. Each caller waits for its sets, so the queue holds those of the
// calls in flight: one of each, and all that the flusher has taken.
type committer struct {
	db       *badgerdb.DB
	log      *slog.Logger
	maxBytes int64
	maxCount int64
	done     chan struct{}

	mu      sync.Mutex
	wake    sync.Cond // queue or stopped has changed
	queue   []*request
	stopped bool
	err     error // the first failure
	counts  Stats
}

func newCommitter(db *badgerdb.DB, log *slog.Logger) *committer {
	c := &committer{
		db:       db,
		log:      log,
		maxBytes: db.MaxTxnBytes(),
		maxCount: db.MaxTxnCount(),
		done:     make(chan struct{}),
	}
	c.wake.L = &c.mu
	return c
}

// start starts the goroutine. It is called once.
func (c *committer) start() { go c.run() }

// stop makes what is queued durable, and waits until the goroutine has ended.
func (c *committer) stop() {
	c.mu.Lock()
	c.stopped = true
	c.wake.Broadcast()
	c.mu.Unlock()
	<-c.done
}

// commit returns when set is durable, or will certainly never be reported to be.
func (c *committer) commit(set writeSet) error { return c.commitAll([]writeSet{set}) }

// commitAll is commit for several sets, which share transactions as far as they fit.
func (c *committer) commitAll(sets []writeSet) error {
	waiting := make([]*request, 0, len(sets))
	var err error
	for _, set := range sets {
		r := &request{set: set, done: make(chan error, 1)}
		if err = c.enqueue(r); err != nil {
			break
		}
		waiting = append(waiting, r)
	}
	for _, r := range waiting {
		err = cmp.Or(err, <-r.done)
	}
	return err
}

func (c *committer) enqueue(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.stopped:
		return ErrClosed
	}
	c.queue = append(c.queue, r)
	c.wake.Signal()
	return nil
}

func (c *committer) run() {
	defer close(c.done)
	for {
		batch := c.next()
		if batch == nil {
			return
		}
		err := c.write(batch)
		for _, r := range batch {
			r.done <- err
		}
	}
}

// next waits for work and takes as much of it as fits one transaction. It returns
// nil when there will be no more.
func (c *committer) next() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.stopped {
			return nil
		}
		c.wake.Wait()
	}
	var bytes, count int64
	n := 0
	for _, r := range c.queue {
		bytes += r.set.bytes
		count += r.set.count()
		if n > 0 && (bytes > c.maxBytes || count > c.maxCount) {
			break
		}
		n++
	}
	batch := append([]*request(nil), c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return batch
}

// write commits batch as one transaction.
func (c *committer) write(batch []*request) error {
	if err := c.failed(); err != nil {
		return err
	}
	err := c.db.Commit(func(txn *badgerdb.Txn) error {
		for _, r := range batch {
			if err := r.set.apply(txn); err != nil {
				return err
			}
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, badgerdb.ErrNoSpace) {
		// Nothing was written, and nothing will be: the store is to be closed.
		c.err = fmt.Errorf("%w: %w", ErrClosed, err)
		return c.err
	}
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrFailed, err)
		c.log.Error("state store failed", slog.Any("error", err))
		return c.err
	}
	c.counts.Transactions++
	c.counts.WriteSets += uint64(len(batch))
	for _, r := range batch {
		c.counts.Bytes += uint64(r.set.bytes - badgerdb.EntryOverhead*r.set.count())
	}
	return nil
}

func (w *writeSet) apply(txn *badgerdb.Txn) error {
	for _, op := range w.writes {
		var err error
		if op.value == nil {
			err = txn.Delete(op.key)
		} else {
			err = txn.Set(op.key, op.value)
		}
		if err != nil {
			return fmt.Errorf("key %x: %w", op.key, err)
		}
	}
	return nil
}

// failed returns the first failure, or nil.
func (c *committer) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *committer) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// isShutdown tells the two errors after which background work ends silently:
// whoever caused them has been told.
func isShutdown(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed)
}
