package node

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard/group"
)

const (
	// maxApplyBatch bounds what one call of Apply gets.
	maxApplyBatch = 4 << 20
	// maxTurn is how many tasks of one replica an applier does before others
	// have their turn.
	maxTurn = 16
)

// Appliers run the state machines beside the workers: in order within a group,
// side by side for different groups. It is a fixed pool; a state machine that is
// slow holds one of its goroutines, never a worker.
type appliers struct {
	mu     sync.Mutex
	ready  sync.Cond
	queue  []*replica // those with tasks that no applier works on
	closed bool

	// most bounds the bytes of committed commands that wait, of all replicas, and half of it
	// those for one state machine. A replica with more than that makes no further steps until
	// the state machine has caught up; well before that it refuses proposals. When all
	// together have more than most, only replicas make steps that have none, and with twice as
	// much nobody: a node has thousands of groups, and state machines that share a disk become
	// slow together.
	most    int64
	backlog atomic.Int64 // bytes of commands that wait, of all replicas

	world *surroundings
	procs processes

	stop func(r *replica, reason error) // called when a task panics
	// failed is called when a state machine fails, and reports whether the replica goes on.
	failed func(r *replica, ts []task, err error) bool
}

func newAppliers(
	s *surroundings, most int64, stop func(*replica, error),
	failed func(*replica, []task, error) bool,
) *appliers {
	a := &appliers{world: s, most: most, stop: stop, failed: failed}
	a.ready.L = &a.mu
	return a
}

func (a *appliers) start(n int) {
	for range n {
		a.procs = append(a.procs, a.world.spawn("applier", a.run))
	}
}

// close waits until the tasks under way are done. Tasks that wait are dropped:
// what they would have done is in the log.
func (a *appliers) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.ready.Broadcast()
	a.procs.wait()
	for _, r := range a.queue {
		for ts := r.machine.pop(); len(ts) > 0; ts = r.machine.pop() {
			if ts[0].drop != nil {
				ts[0].drop(ErrClosed)
			}
		}
	}
}

// A task is something to do with a state machine, when its turn comes.
type task struct {
	apply *group.Apply       // commands to apply, or else
	run   func(*machine)     // anything else
	drop  func(reason error) // run will not be called; may be nil
}

// goesOn reports whether what comes after a task may be done together with it.
func (t *task) goesOn() bool {
	return t.apply == nil || t.apply.Stop == nil && len(t.apply.Decided) == 0
}

// apply queues committed commands. It never blocks: see room.
func (a *appliers) apply(r *replica, ap *group.Apply) {
	r.machine.addBacklog(ap.Bytes)
	a.backlog.Add(int64(ap.Bytes))
	a.add(r, task{apply: ap})
}

// room reports whether the replica may hand out more.
func (a *appliers) room(r *replica) bool {
	own, all := r.machine.backlog(), a.backlog.Load()
	if own == 0 {
		return all < 2*a.most
	}
	return own < a.most/2 && all < a.most
}

// behind reports whether so much waits that the replica should take no proposals: long
// before it may hand out no more.
func (a *appliers) behind(r *replica) bool {
	own := r.machine.backlog()
	return own > a.most/8 || own > 0 && a.backlog.Load() > a.most/2
}

// add queues a task for r's state machine.
func (a *appliers) add(r *replica, t task) {
	if !r.machine.push(t) {
		return
	}
	a.mu.Lock()
	a.queue = append(a.queue, r)
	a.mu.Unlock()
	a.ready.Signal()
}

func (a *appliers) run() {
	busy := a.busy // once: it is on the heap
	for {
		a.world.until(busy)
		a.mu.Lock()
		for len(a.queue) == 0 && !a.closed {
			a.ready.Wait()
		}
		if a.closed {
			a.mu.Unlock()
			return
		}
		r := a.queue[0]
		a.queue[0] = nil
		a.queue = a.queue[1:]
		a.mu.Unlock()
		a.turn(r)
	}
}

// busy reports whether there is something to do for run.
func (a *appliers) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue) > 0 || a.closed
}

// turn does some tasks of r, and puts it at the end of the queue if there are more.
func (a *appliers) turn(r *replica) {
	for range maxTurn {
		ts := r.machine.pop()
		if len(ts) == 0 {
			return
		}
		a.do(r, ts)
	}
	if r.machine.yield() {
		a.mu.Lock()
		a.queue = append(a.queue, r)
		a.mu.Unlock()
		a.ready.Signal()
	}
}

// do runs tasks: several applies in a row, or one other. Nothing more is applied to a state
// machine that has failed.
func (a *appliers) do(r *replica, ts []task) {
	if ts[0].run != nil {
		a.runTask(r, ts[0])
		return
	}
	bytes := 0
	for _, t := range ts {
		bytes += t.apply.Bytes
	}
	goesOn := r.serving() && a.advance(r, ts)
	a.backlog.Add(-int64(bytes))
	if !goesOn {
		return
	}
	r.machine.addBacklog(-bytes) // before the worker looks whether there is room
	r.applied.Store(ts[len(ts)-1].apply.Last)
	r.worker.box.applied(r)
}

// advance has commands applied, or followed without a state machine. It is false if the
// replica does not go on.
func (a *appliers) advance(r *replica, ts []task) bool {
	if !r.machine.logOnly.Load() {
		err := r.machine.pass(ts)
		if err == nil {
			err = r.machine.apply(ts)
		}
		if err == nil {
			err = stopped(ts[len(ts)-1].apply)
		}
		if err == nil {
			return true
		}
		if !a.failed(r, ts, err) {
			return false
		}
	}
	r.machine.follow(ts)
	return true
}

func (a *appliers) runTask(r *replica, t task) {
	defer func() {
		if p := recover(); p != nil {
			reason := faulty(MachinePanicked,
				&panicError{what: "the state machine", value: p, stack: debug.Stack()})
			a.stop(r, reason)
			if t.drop != nil {
				t.drop(reason)
			}
		}
	}()
	t.run(r.machine)
}
