package node

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// A write is something that one replica wants to be durable.
type write struct {
	kind      writeKind
	group     raftyard.GroupID
	replica   storage.Replica // writeCreate
	update    storage.Update  // writeCreate, writeUpdate
	tombstone storage.Tombstone
	damage    string // writeDamaged

	// saved is the replica that goes on when the write is durable; done, which
	// must not block, is called otherwise. After a failure saved replicas never
	// go on: nothing may vouch for what is not durable.
	saved *replica
	done  func(error)
}

type writeKind uint8

const (
	writeUpdate writeKind = iota
	writeCreate
	writeDestroy
	writePurged
	writeForget
	writeNothing // it is done when all before it is
	writeDamaged
)

// A committer makes the writes of all workers durable. While one batch is being
// synced the next gathers, so one sync carries what all groups have by then.
type committer struct {
	world *surroundings
	store *storage.Store
	slow  *slowness   // is told how long commits take; nil: nobody is
	fail  func(error) // called when the store can write no more

	// refused is called when the store refuses what a group's replica wants to
	// write; the store and the others are well.
	refused func(raftyard.GroupID, error)

	batch *storage.Batch // what commit uses, again and again

	mu      sync.Mutex
	ready   sync.Cond
	pending []write
	closed  bool
	proc    process
}

func newCommitter(
	s *surroundings, store *storage.Store,
	fail func(error), refused func(raftyard.GroupID, error),
) *committer {
	c := &committer{world: s, store: store, fail: fail, refused: refused}
	c.batch = store.NewBatch()
	c.ready.L = &c.mu
	return c
}

// start begins to commit.
func (c *committer) start() { c.proc = c.world.spawn("committer", c.run) }

// submit hands writes over, in order. It never blocks; what waits is bounded by
// the number of replicas, as each has one append under way at most.
func (c *committer) submit(ws ...write) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		for i := range ws {
			ws[i].finish(ErrClosed)
		}
		return
	}
	c.pending = append(c.pending, ws...)
	c.mu.Unlock()
	c.ready.Signal()
}

// wait makes writes durable and returns the error of each.
func (c *committer) wait(ws []write) []error {
	errs := make([]error, len(ws))
	if len(ws) == 0 {
		return errs
	}
	var left atomic.Int64
	left.Store(int64(len(ws)))
	all := make(chan struct{})
	for i := range ws {
		ws[i].done = func(err error) {
			errs[i] = err
			if left.Add(-1) == 0 {
				close(all)
			}
		}
	}
	c.submit(ws...)
	await[struct{}](c.world, nil, all, nil)
	return errs
}

// run commits until close, then what is left.
func (c *committer) run() {
	var spare []write
	busy := c.busy // once: it is on the heap
	for {
		c.world.until(busy)
		c.mu.Lock()
		for len(c.pending) == 0 && !c.closed {
			c.ready.Wait()
		}
		c.mu.Unlock()
		c.world.yield() // those whom the last commit has let go on may have the next write
		ws := c.take(spare)
		if len(ws) == 0 {
			return
		}
		c.commit(ws)
		clear(ws)
		spare = ws
	}
}

// take swaps what waits for an empty list, in the memory of spare.
func (c *committer) take(spare []write) []write {
	c.mu.Lock()
	defer c.mu.Unlock()
	ws := c.pending
	c.pending = spare[:0]
	return ws
}

// busy reports whether run has something to do.
func (c *committer) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0 || c.closed
}

// close waits for the last commit.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.ready.Signal()
	c.proc.wait()
}

// commit makes ws durable in as few batches as the store's limits allow.
func (c *committer) commit(ws []write) {
	limits := c.store.Limits()
	for len(ws) > 0 {
		batch := c.batch
		n := 0
		for n < len(ws) {
			ws[n].addTo(batch)
			n++
			if batch.Len() >= limits.MaxUpdates/2 || batch.Bytes() >= limits.MaxBatchBytes/2 {
				break
			}
		}
		err := c.sync(batch)
		batch.Reset()
		c.deliver(ws[:n], err)
		ws = ws[n:]
	}
}

// sync commits one batch, and tells how long that takes.
func (c *committer) sync(batch *storage.Batch) error {
	if c.slow == nil {
		return batch.Commit()
	}
	c.slow.begin(syncLog, c.world.now())
	err := batch.Commit()
	c.slow.end(syncLog, c.world.now())
	return err
}

// deliver tells how a batch ended. One that the store has refused, without writing
// anything, holds something that makes no sense for one replica; the others must
// not suffer for it, so each write is tried alone.
func (c *committer) deliver(ws []write, err error) {
	switch {
	case err == nil:
	case c.store.Err() != nil:
		err = fmt.Errorf("log store: %w", err)
		c.fail(err)
	case errors.Is(err, storage.ErrNoSpace): // the node closes
	case len(ws) > 1:
		for i := range ws {
			batch := c.store.NewBatch()
			ws[i].addTo(batch)
			c.deliver(ws[i:i+1], c.sync(batch))
		}
		return
	case ws[0].kind == writeUpdate:
		// A creation or destruction that is refused says nothing against the
		// replica that is there; whoever asked for it is told below.
		c.refused(ws[0].group, err)
	}
	for i := range ws {
		ws[i].finish(err)
	}
}

func (w *write) finish(err error) {
	switch {
	case w.done != nil:
		w.done(err)
	case err == nil && w.saved != nil:
		w.saved.worker.box.saved(w.saved)
	}
}

func (w *write) addTo(b *storage.Batch) {
	switch w.kind {
	case writeUpdate:
		b.Update(w.group, w.update)
	case writeCreate:
		b.Create(w.replica, w.update)
	case writeDestroy:
		b.Destroy(w.group, w.tombstone)
	case writePurged:
		b.MarkPurged(w.group)
	case writeForget:
		b.Forget(w.group)
	case writeNothing:
	case writeDamaged:
		b.MarkDamaged(w.group, w.damage)
	}
}
