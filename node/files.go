package node

import (
	"sync"
	"time"
)

// background runs small jobs that may wait for the disk, a bounded number at a
// time, in the order in which they were started.
type background struct {
	mu     sync.Mutex
	ready  sync.Cond
	jobs   []func()
	closed bool

	world *surroundings
	procs processes
}

// fileWorkers is how many goroutines write and remove snapshot files.
const fileWorkers = 4

func newBackground(s *surroundings) *background {
	b := &background{world: s}
	b.ready.L = &b.mu
	for range fileWorkers {
		b.procs = append(b.procs, s.spawn("files", b.run))
	}
	return b
}

// start queues a job. What is queued is bounded by the replicas, each of which
// has one snapshot under way. After close a job runs at once, so that nothing
// waits for it in vain.
func (b *background) start(job func()) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		job()
		return
	}
	b.jobs = append(b.jobs, job)
	b.mu.Unlock()
	b.ready.Signal()
}

func (b *background) run() {
	busy := b.busy // once: it is on the heap
	for {
		b.world.until(busy)
		b.mu.Lock()
		for len(b.jobs) == 0 && !b.closed {
			b.ready.Wait()
		}
		if len(b.jobs) == 0 {
			b.mu.Unlock()
			return
		}
		job := b.jobs[0]
		b.jobs = b.jobs[1:]
		b.mu.Unlock()
		job()
	}
}

// busy reports whether there is something to do for run.
func (b *background) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs) > 0 || b.closed
}

// close does what is queued and waits for it.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
	b.procs.wait()
}

// limiter lets something happen once a minute. The zero value is ready.
type limiter struct {
	mu   sync.Mutex
	next time.Time
}

// due reports whether it may happen now.
func (l *limiter) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(time.Minute)
	return true
}
