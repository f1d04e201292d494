package kv

import (
	"sync"
	"time"
)

// A flusher writes what replicas have in their layers, of all of them together, from one
// goroutine. It lets some gather, so that many commands share a transaction and its sync, and
// one that changes a key again spares a record; nobody waits for it but who must have
// something on disk, or finds too much that is not.
type flusher struct {
	committer *committer
	written   func(*behind) // is told of what has been written
	wake      chan struct{}
	clock     *time.Timer // wakes it
	done      chan struct{}

	mu      sync.Mutex
	changed sync.Cond // something was written, or err is set
	queue   []*behind
	bytes   int64 // that wait in the queue
	taken   int64 // that are being written
	coming  int64 // that commands may add which were admitted
	stopped bool
	err     error // the first failure
}

const (
	// flushTime and flushBytes bound what gathers before it is written.
	flushTime, flushBytes = 50 * time.Millisecond, 1 << 20

	// maxUnwritten is with how many bytes of all replicas commands wait. A replica waits with
	// a full layer, too.
	maxUnwritten = 8 << 20
)

func newFlusher(c *committer, written func(*behind)) *flusher {
	f := &flusher{
		committer: c, written: written,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	f.changed.L = &f.mu
	f.clock = time.AfterFunc(time.Hour, f.hurry)
	f.clock.Stop()
	return f
}

// start starts the goroutine. It is called once.
func (f *flusher) start() { go f.run() }

// stop writes what there is, unless that has failed, and waits until the goroutine has ended.
func (f *flusher) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.hurry()
	<-f.done
	f.clock.Stop()
}

// hurry has it write at once what there is.
func (f *flusher) hurry() {
	select {
	case f.wake <- struct{}{}:
	default: // it is about to
	}
}

// add says that a replica has so many bytes more that are to be written.
func (f *flusher) add(b *behind, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes += bytes
	if !b.queued {
		b.queued = true
		f.queue = append(f.queue, b)
		if len(f.queue) == 1 {
			f.clock.Reset(flushTime)
		}
	}
	if f.bytes >= flushBytes {
		f.hurry()
	}
}

// await returns when the database has everything of a replica that was there when it was
// called, or will not get it.
func (f *flusher) await(b *behind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for b.queued || b.writing {
		if f.err != nil {
			return f.err
		}
		f.waitLocked()
	}
	return f.err
}

// admit returns when commands of a replica may change something: when its upper layer has room,
// less than so many bytes and items, and all replicas together have not too much. What the
// commands may add counts from then on, until leave.
func (f *flusher) admit(b *behind, bytes, count, adds int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil && (f.bytes+f.taken+f.coming >= maxUnwritten || b.isFull(bytes, count)) {
		f.waitLocked()
	}
	if f.err == nil {
		f.coming += adds
	}
	return f.err
}

// waitLocked waits until something has changed, and has what is in the queue written for that.
// With nothing there the flusher would only wake who waits, who would wake it again.
func (f *flusher) waitLocked() {
	if len(f.queue) > 0 {
		f.hurry()
	}
	f.changed.Wait()
}

// leave says that commands that were admitted have added what they add.
func (f *flusher) leave(adds int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coming -= adds
	f.changed.Broadcast()
}

// unwritten returns how many bytes the database does not have yet.
func (f *flusher) unwritten() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes + f.taken
}

func (f *flusher) run() {
	defer close(f.done)
	for range f.wake {
		batch, last := f.next()
		if len(batch) > 0 {
			f.wrote(batch, f.write(batch))
		}
		if last {
			return
		}
	}
}

// A flush is what is written of one replica.
type flush struct {
	of    *behind
	layer *layer // nil: it was written already
}

// next takes all that there is. It reports whether there will be no more.
func (f *flusher) next() (batch []flush, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || len(f.queue) == 0 {
		return nil, f.stopped
	}
	for _, b := range f.queue {
		b.queued, b.writing = false, true
		batch = append(batch, flush{of: b, layer: b.take()})
	}
	f.queue = nil
	f.taken, f.bytes = f.bytes, 0
	f.changed.Broadcast()
	return batch, f.stopped
}

// write makes layers durable, each of them in one transaction.
func (f *flusher) write(batch []flush) error {
	sets := make([]writeSet, 0, len(batch))
	for _, w := range batch {
		if w.layer != nil {
			sets = append(sets, w.layer.writes(w.of.replica))
		}
	}
	return f.committer.commitAll(sets)
}

// wrote says how it has ended. After an error the layers stay, and nothing is written any more.
func (f *flusher) wrote(batch []flush, err error) {
	f.mu.Lock()
	f.taken = 0
	if f.err = err; err == nil {
		for _, w := range batch {
			w.of.wrote()
			w.of.writing = false
		}
	}
	f.changed.Broadcast()
	f.mu.Unlock()
	if err == nil {
		for _, w := range batch {
			f.written(w.of)
		}
	}
}
