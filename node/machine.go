package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard/group"
)

// A machine is a replica's state machine with the queue of what is to be done
// with it. At most one applier works on it at a time; views run beside that.
type machine struct {
	world   *surroundings
	env     group.Env
	factory func(kind string) group.Factory // nil: not one of the node's kinds

	// access is held for reading by views, and for writing while the state
	// machine is opened, restored or closed.
	access sync.RWMutex
	sm     group.StateMachine // nil until the replica has a state
	waiter atomic.Pointer[waiter]
	closed bool
	// closedBy says why it is closed.
	closedBy error

	// logOnly: there is no state machine that works. The node has none of the replica's
	// kind, see logonly.go: that is decided when the kind is known, and stays. Or it has
	// failed: broken says why, see standstill.go.
	logOnly atomic.Bool
	broken  atomic.Pointer[faultError]

	// careful are the indexes that are applied one by one; see pinpoint.
	careful span

	// skips are the entries that are not applied here; see skip.go. Only tasks touch it.
	skips []group.Skip

	// position is where the state machine stands. Only tasks touch it.
	position position
	// lastCommand is the index of the last command applied. Only tasks touch it.
	lastCommand uint64

	expected expected

	backlogBytes atomic.Int64

	mu      sync.Mutex
	tasks   []task
	claimed bool // in the appliers' queue, or being worked on
	holds   int  // see hold
	purged  bool
	purge   func() // waits for the last hold
}

// position is what is known of a state machine's state.
type position struct {
	applied uint64
	term    uint64 // of the entry at applied
	state   group.State
}

var errNoState = errors.New("the replica has no state yet")

func (m *machine) backlog() int64   { return m.backlogBytes.Load() }
func (m *machine) addBacklog(n int) { m.backlogBytes.Add(int64(n)) }
func (m *machine) queued() (n int)  { m.mu.Lock(); defer m.mu.Unlock(); return len(m.tasks) }

// push queues t and reports whether the machine must be put into the queue.
func (m *machine) push(t task) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = append(m.tasks, t)
	if m.claimed {
		return false
	}
	m.claimed = true
	return true
}

// pop takes what can be done in one go: applies in a row up to a size, or one
// other task. It gives up the claim when there is nothing.
func (m *machine) pop() []task {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tasks) == 0 {
		m.claimed = false
		m.tasks = nil
		return nil
	}
	n, bytes := 1, 0
	if m.tasks[0].apply != nil && !m.careful.touches(m.tasks[0].apply) {
		for bytes = m.tasks[0].apply.Bytes; n < len(m.tasks) && m.tasks[n-1].goesOn() &&
			m.tasks[n].apply != nil; n++ {
			if bytes += m.tasks[n].apply.Bytes; bytes > maxApplyBatch {
				break
			}
		}
	}
	ts := m.tasks[:n:n]
	m.tasks = m.tasks[n:]
	return ts
}

// yield gives up the claim if there is nothing left, and else keeps it for the queue.
func (m *machine) yield() (more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claimed = len(m.tasks) > 0
	return m.claimed
}

// hold keeps the replica's directory from being deleted until release, for whoever
// writes a file into it. It is false when that has begun already.
func (m *machine) hold() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.purged {
		return false
	}
	m.holds++
	return true
}

// release ends a hold.
func (m *machine) release() {
	m.mu.Lock()
	m.holds--
	var purge func()
	if m.holds == 0 {
		purge, m.purge = m.purge, nil
	}
	m.mu.Unlock()
	if purge != nil {
		purge()
	}
}

// whenFree calls fn when nobody holds the directory, which nobody can from now on.
func (m *machine) whenFree(fn func()) {
	m.mu.Lock()
	m.purged = true
	free := m.holds == 0
	if !free {
		m.purge = fn
	}
	m.mu.Unlock()
	if free {
		fn()
	}
}

// open makes the state machine of the given kind, if there is none yet and the node
// knows the kind.
func (m *machine) open(kind string) (err error) {
	defer recovered(&err, "open")
	m.access.Lock()
	defer m.access.Unlock()
	if m.closed {
		return ErrClosed
	}
	if m.sm != nil {
		return nil
	}
	factory := m.factory(kind)
	if factory == nil {
		m.logOnly.Store(true)
		return nil
	}
	// A factory that fails may return a nil pointer in the interface: it must not
	// be kept.
	sm, err := factory(m.env)
	if err == nil && sm == nil {
		err = errors.New("the factory returned nothing")
	}
	if err != nil {
		return fmt.Errorf("open state machine of kind %q: %w", kind, err)
	}
	m.sm = sm
	m.noteWaiter()
	return nil
}

// panicError is a panic that was recovered. The stack is for the log.
type panicError struct {
	what  string
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic in %s: %v", e.what, e.value) }

// recovered turns a panic of a state machine into an error.
func recovered(err *error, what string) {
	if p := recover(); p != nil {
		*err = &panicError{what: "the state machine's " + what, value: p, stack: debug.Stack()}
	}
}

// apply applies a run of committed batches and answers those who wait. An error is an
// [applyError]; then nobody was answered.
func (m *machine) apply(ts []task) error {
	commands := ts[0].apply.Commands
	if len(ts) > 1 {
		commands = nil
		for _, t := range ts {
			commands = append(commands, t.apply.Commands...)
		}
	}
	results, err := m.applyCommands(commands, m.careful.touches(ts[0].apply))
	if err != nil {
		return err
	}
	if len(commands) > 0 {
		m.lastCommand = commands[len(commands)-1].Index
	}
	m.moveTo(ts[len(ts)-1].apply)
	for _, t := range ts {
		answerAll(t.apply, results[:len(t.apply.Commands)])
		m.expected.answer(t.apply.Commands, results[:len(t.apply.Commands)])
		results = results[len(t.apply.Commands):]
	}
	return nil
}

// moveTo sets the position to the end of a run.
func (m *machine) moveTo(ap *group.Apply) {
	m.position = position{applied: ap.Last, term: ap.LastTerm, state: ap.State}
}

// applyCommands applies commands, one index after the other if they are to be applied
// carefully.
func (m *machine) applyCommands(
	commands []group.Command, carefully bool,
) (results []group.Result, err error) {
	for len(commands) > 0 {
		n := len(commands)
		if carefully {
			n = 1
			for n < len(commands) && commands[n].Index == commands[0].Index {
				n++
			}
		}
		some, err := m.applySome(commands[:n])
		if err != nil {
			return nil, &applyError{
				first: commands[0].Index, last: commands[n-1].Index, err: err,
			}
		}
		if n == len(commands) && results == nil {
			return some, nil
		}
		results = append(results, some...)
		commands = commands[n:]
	}
	return results, nil
}

// applySome is one call of the state machine.
func (m *machine) applySome(commands []group.Command) (results []group.Result, err error) {
	defer recovered(&err, "Apply")
	if m.sm == nil {
		return nil, errNoState
	}
	if results, err = m.sm.Apply(commands); err != nil {
		return nil, fmt.Errorf("state machine: apply %d commands up to index %d: %w",
			len(commands), commands[len(commands)-1].Index, err)
	}
	if len(results) != len(commands) {
		return nil, fmt.Errorf("state machine: Apply returned %d results for %d commands",
			len(results), len(commands))
	}
	return results, nil
}

// An applyError is why some commands could not be applied.
type applyError struct {
	first, last uint64 // their indexes
	err         error
}

func (e *applyError) Error() string { return e.err.Error() }
func (e *applyError) Unwrap() error { return e.err }

// answerAll tells the waiting proposers of one batch their results.
func answerAll(ap *group.Apply, results []group.Result) {
	for i, token := range ap.Tokens {
		if c, ok := token.(*call); ok {
			results[i].Index = ap.Commands[i].Index
			c.finish(results[i], nil)
		}
	}
}

// machineApplied returns how far the state machine says it is durable; ok is
// false for one that keeps nothing on disk.
func (m *machine) machineApplied() (index uint64, ok bool, err error) {
	defer recovered(&err, "Applied")
	if m.logOnly.Load() {
		return 0, false, nil
	}
	d, ok := m.sm.(group.Durable)
	if !ok {
		return 0, false, nil
	}
	index, err = d.Applied()
	if err != nil {
		return 0, true, fmt.Errorf("state machine: applied index: %w", err)
	}
	return index, true, nil
}

// restore replaces the state by the contents of a file in the replica's directory.
// If that fails because the file is not what was written, the reason is [DamagedState].
func (m *machine) restore(name string, check fileCheck) error {
	err := m.restoreFrom(name, check)
	if err == nil {
		return nil
	}
	path := filepath.Join(m.env.Dir, name)
	if damage := checkSnapshotFile(m.world.files, path, check); damage != nil {
		return faulty(DamagedState, damage)
	}
	return err
}

func (m *machine) restoreFrom(name string, check fileCheck) (err error) {
	defer recovered(&err, "Restore")
	f, err := openSnapshotFile(m.world.files, filepath.Join(m.env.Dir, name), check)
	if err != nil {
		return err
	}
	defer f.Close()
	m.access.Lock()
	defer m.access.Unlock()
	if m.closed {
		return ErrClosed
	}
	if err := m.sm.Restore(readerFunc(f.Read)); err != nil {
		return fmt.Errorf("state machine: restore: %w", err)
	}
	return nil
}

// snapshot returns the state machine's view of its state.
func (m *machine) snapshot() (s group.Snapshot, err error) {
	defer recovered(&err, "Snapshot")
	if m.sm == nil || m.logOnly.Load() {
		return nil, errNoState
	}
	if s, err = m.sm.Snapshot(); err != nil {
		return nil, fmt.Errorf("state machine: snapshot: %w", err)
	}
	return guarded{s}, nil
}

// guarded is a snapshot whose panics are errors: it is written on goroutines that
// many replicas share.
type guarded struct{ s group.Snapshot }

// WriteTo writes the snapshot.
func (g guarded) WriteTo(w io.Writer) (n int64, err error) {
	defer recovered(&err, "snapshot")
	return g.s.WriteTo(w)
}

// Close closes the snapshot.
func (g guarded) Close() (err error) {
	defer recovered(&err, "snapshot")
	return g.s.Close()
}

// use calls fn with the state machine, beside Apply. While the state machine is
// being restored it waits, until ctx ends.
func (m *machine) use(ctx context.Context, fn func(group.StateMachine) error) error {
	for {
		if done, err := m.tryUse(fn); done {
			return err
		}
		if err := m.fault(); err != nil { // whoever closes it may never be done
			return err
		}
		if !m.world.sleep(ctx, pollEvery) {
			return fmt.Errorf("group %d: %w: the state machine is being restored: %w",
				m.env.Group, ErrTimeout, context.Cause(ctx))
		}
	}
}

// tryUse is use without waiting: it is not done while the state machine is being restored.
func (m *machine) tryUse(fn func(group.StateMachine) error) (done bool, err error) {
	if !m.access.TryRLock() {
		return false, nil
	}
	defer m.access.RUnlock()
	return true, m.useLocked(fn)
}

func (m *machine) useLocked(fn func(group.StateMachine) error) (err error) {
	defer recovered(&err, "read")
	switch {
	case m.fault() != nil:
		return m.fault()
	case m.closed:
		return m.closedBy
	case m.logOnly.Load():
		return fmt.Errorf("%w: %w", ErrNoReplica, errLogOnly)
	case m.sm == nil:
		return fmt.Errorf("%w: %w", ErrNoReplica, errNoState)
	}
	return fn(m.sm)
}

// size returns the bytes of live data, zero if the state machine cannot tell.
func (m *machine) size() int64 {
	var n int64
	err := m.use(context.Background(), func(sm group.StateMachine) error {
		if s, ok := sm.(group.Sizer); ok {
			n = s.Size()
		}
		return nil
	})
	if err != nil {
		return 0
	}
	return n
}

// close closes the state machine, or destroys it with what it has stored.
func (m *machine) close(destroy bool) (err error) {
	defer recovered(&err, "Close")
	m.access.Lock()
	defer m.access.Unlock()
	if m.closed {
		return nil
	}
	m.closed, m.closedBy = true, ErrClosed
	if destroy {
		m.closedBy = fmt.Errorf("%w: it is removed", ErrNoReplica)
	}
	if m.sm == nil {
		return nil
	}
	if d, ok := m.sm.(group.Destroyer); ok && destroy {
		if err := d.Destroy(); err != nil {
			return fmt.Errorf("state machine: destroy: %w", err)
		}
		return nil
	}
	if err := m.sm.Close(); err != nil {
		return fmt.Errorf("state machine: close: %w", err)
	}
	return nil
}
