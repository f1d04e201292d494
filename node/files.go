package node

import "sync"

// background runs small jobs that may wait for the disk, a bounded number at a
// time, in the order in which they were started.
type background struct {
	mu     sync.Mutex
	ready  sync.Cond
	jobs   []func()
	closed bool
	wg     sync.WaitGroup
}

// fileWorkers is how many goroutines write and remove snapshot files.
const fileWorkers = 4

func newBackground() *background {
	b := &background{}
	b.ready.L = &b.mu
	for range fileWorkers {
		b.wg.Go(b.run)
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
	for {
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

// close does what is queued and waits for it.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
	b.wg.Wait()
}
