package kv

import (
	"log/slog"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// A step of the cleaner deletes at most so many items, and so many bytes of keys
// with them, so that the writers it shares transactions with hardly notice.
const (
	cleanStepItems = 1000
	cleanStepBytes = 128 << 10
)

// A cleaner deletes generations that nothing points at, one after the other, from
// one goroutine. What it has not finished is found again when the store is
// opened, by the generation's record, which goes last.
type cleaner struct {
	db        *badgerdb.DB
	committer *committer
	log       *slog.Logger
	done      chan struct{}

	mu      sync.Mutex
	wake    sync.Cond
	queue   []generation // bounded by the generation records on disk
	stopped bool
	dropped uint64
}

func newCleaner(db *badgerdb.DB, c *committer, log *slog.Logger) *cleaner {
	cl := &cleaner{db: db, committer: c, log: log, done: make(chan struct{})}
	cl.wake.L = &cl.mu
	return cl
}

// add queues generations whose records say that they are not live, or which
// nobody writes any more.
func (c *cleaner) add(g ...generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, g...)
	c.wake.Signal()
}

// start starts the goroutine. It is called once.
func (c *cleaner) start() { go c.run() }

// stop ends the goroutine after its present step, and waits for it.
func (c *cleaner) stop() {
	c.mu.Lock()
	c.stopped = true
	c.wake.Signal()
	c.mu.Unlock()
	<-c.done
}

func (c *cleaner) run() {
	defer close(c.done)
	for {
		g, ok := c.first()
		if !ok {
			return
		}
		if err := c.drop(g); err != nil {
			if isShutdown(err) {
				return
			}
			c.log.Warn("cannot delete old state, left for the next start",
				slog.Uint64("generation", uint64(g)), slog.Any("error", err))
		}
		c.finish()
	}
}

// first waits for a generation. It stays in the queue until finish.
func (c *cleaner) first() (generation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && !c.stopped {
		c.wake.Wait()
	}
	if c.stopped {
		return 0, false
	}
	return c.queue[0], true
}

func (c *cleaner) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue[:0], c.queue[1:]...)
}

// drop deletes the items of g, then its record.
func (c *cleaner) drop(g generation) error {
	start := itemKeyPrefix(g)
	for {
		if c.isStopped() {
			return ErrClosed
		}
		keys, err := c.step(g, start)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := c.delete(keys); err != nil {
			return err
		}
		// Going on behind the last key spares the iterator the tombstones.
		start = keyAfter(keys[len(keys)-1])
	}
	var set writeSet
	set.delete(generationKey(g))
	return c.committer.commit(set)
}

// step returns the next keys of g to delete.
func (c *cleaner) step(g generation, start []byte) (keys [][]byte, err error) {
	err = view(c.db, func(at badgerdb.Reader) error {
		bytes := 0
		return at.Scan(itemKeyPrefix(g), start, func(item *badger.Item) (bool, error) {
			if len(keys) == cleanStepItems || bytes >= cleanStepBytes {
				return false, nil
			}
			key := item.KeyCopy(nil)
			keys = append(keys, key)
			bytes += len(key)
			return true, nil
		})
	})
	return keys, err
}

func (c *cleaner) delete(keys [][]byte) error {
	var set writeSet
	for _, key := range keys {
		set.delete(key)
	}
	if err := c.committer.commit(set); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped += uint64(len(keys))
	return nil
}

func (c *cleaner) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// stats returns how many generations are waiting or being deleted, and how many
// items have been.
func (c *cleaner) stats() (dropping int, dropped uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue), c.dropped
}
