package kv

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

var (
	_ group.StateMachine = (*Machine)(nil)
	_ group.Durable      = (*Machine)(nil)
	_ group.Hasher       = (*Machine)(nil)
	_ group.Querier      = (*Machine)(nil)
	_ group.Sizer        = (*Machine)(nil)
	_ group.Destroyer    = (*Machine)(nil)
)

// A Machine is the state machine of one replica. Beside what
// [group.StateMachine] demands, all its methods may be called at any time and
// from several goroutines; those that change something wait for each other.
type Machine struct {
	store   *Store
	replica Replica

	mu     sync.Mutex // held by what changes the state, also across its commits
	state  machineState
	closed bool
	behind *behind

	// The same as state and closed, for readers, who never wait.
	published atomic.Pointer[machineState]
	gone      atomic.Bool
}

func newMachine(s *Store, r Replica, b *behind) *Machine {
	m := &Machine{store: s, replica: r, behind: b}
	m.setStateLocked(b.state)
	return m
}

// replaceLocked makes another state the machine's, which the database has.
func (m *Machine) replaceLocked(s machineState) {
	m.behind.replace(s)
	m.setStateLocked(s)
}

func (m *Machine) setStateLocked(s machineState) {
	m.state = s
	m.published.Store(&s)
}

// begin lets a change begin: it takes the lock and enters the store. Unless it
// fails, end must follow.
func (m *Machine) begin() error {
	if err := m.store.gate.enter(); err != nil {
		return err
	}
	m.mu.Lock()
	err := m.store.Err()
	if m.closed {
		err = ErrClosed
	}
	if err != nil {
		m.end()
	}
	return err
}

func (m *Machine) end() {
	m.mu.Unlock()
	m.store.gate.leave()
}

// Apply applies the commands of whole entries, in order. What they do is seen at once, and becomes
// durable a little later, see [Machine.Applied]; when too much is not yet, Apply waits. A command
// that is malformed, beyond a limit or whose condition does not hold has a result that says so,
// and no effect; a command at a position that was applied before is skipped. An error means that
// the store failed or that a stored record is damaged; then the state is that of some command
// before.
//
// The commands of one entry must not be divided between two calls.
func (m *Machine) Apply(batch []group.Command) ([]group.Result, error) {
	if err := m.begin(); err != nil {
		return nil, m.wrap("apply", err)
	}
	defer m.end()
	results := make([]group.Result, 0, len(batch))
	for len(results) < len(batch) {
		part, err := m.applyPart(batch[len(results):])
		if err != nil {
			return nil, m.wrap("apply", err)
		}
		results = append(results, part...)
	}
	return results, nil
}

// applyPart applies as many commands as one layer takes, at least one.
func (m *Machine) applyPart(batch []group.Command) ([]group.Result, error) {
	s := m.store
	adds := m.mayAdd(batch)
	if err := s.flusher.admit(m.behind, s.writeSetBytes, s.writeSetCount, adds); err != nil {
		return nil, err
	}
	defer s.flusher.leave(adds)
	in := m.state.generation
	if in == 0 {
		var err error
		if in, err = s.generations.allocate(); err != nil {
			return nil, err
		}
	}
	p, view, err := m.behind.begin()
	if err != nil {
		return nil, err
	}
	defer view.Discard()
	p.state.generation = in
	var results []group.Result
	err = guard(func() (err error) {
		results, err = m.run(p, batch)
		return err
	})
	if err != nil {
		return nil, m.distrust(m.state.generation, err)
	}
	if p.state.position == m.state.position {
		return results, nil // all of it was applied before
	}
	m.behind.add(p)
	m.setStateLocked(p.state)
	return results, nil
}

// mayAdd returns about how many bytes a part of a batch adds to a layer at most.
func (m *Machine) mayAdd(batch []group.Command) (bytes int64) {
	most := m.store.writeSetBytes + MaxCommandBytes
	for i := 0; i < len(batch) && bytes < most; i++ {
		bytes += int64(len(batch[i].Data)) + recordOverhead + badgerdb.EntryOverhead
	}
	return min(bytes, most)
}

// run executes commands until the layer that takes them is full.
func (m *Machine) run(p *pending, batch []group.Command) ([]group.Result, error) {
	bytes, count := m.store.writeSetBytes-p.top.size(), m.store.writeSetCount-p.top.count()
	results := make([]group.Result, 0, len(batch))
	for i, cmd := range batch {
		offset := uint64(cmd.Offset)
		if p.state.position.covers(cmd.Index, offset) {
			results = append(results, group.Result{Data: encodeReplayed()})
			continue
		}
		data, err := p.execute(cmd.Data)
		if err != nil {
			return nil, fmt.Errorf("index %d offset %d: %w", cmd.Index, cmd.Offset, err)
		}
		results = append(results, group.Result{Data: data})
		p.state.position = position{
			index:   cmd.Index,
			offset:  offset,
			partial: i+1 < len(batch) && batch[i+1].Index == cmd.Index,
		}
		if p.bytes >= bytes || p.count() >= count {
			break
		}
	}
	return results, nil
}

// Applied makes durable what was applied, and returns the newest index of which all commands are.
// It waits for the disk, and for disk space.
func (m *Machine) Applied() (uint64, error) {
	if err := m.begin(); err != nil {
		return 0, m.wrap("applied", err)
	}
	defer m.end()
	if err := m.store.flusher.await(m.behind); err != nil {
		return 0, m.wrap("applied", err)
	}
	return m.state.position.applied(), nil
}

// Revision returns the group's revision.
func (m *Machine) Revision() uint64 { return m.published.Load().revision }

// Hash returns the content hash. It reads nothing from disk; see [Machine.Verify]
// for that.
func (m *Machine) Hash() ([]byte, error) {
	if m.gone.Load() {
		return nil, m.wrap("hash", ErrClosed)
	}
	s := m.published.Load()
	return s.content.hash(s.revision), nil
}

// Size returns the number of bytes of all keys and values.
func (m *Machine) Size() int64 { return int64(m.published.Load().content.bytes) }

// Verify reads all items of one consistent view, checks every record, and
// compares count, bytes and content hash with those that are kept beside them.
// It runs beside Apply.
func (m *Machine) Verify() error {
	s, err := m.view()
	if err != nil {
		return m.wrap("verify", err)
	}
	err = s.writeItems(func([]byte, item) error { return nil })
	return m.wrap("verify", errors.Join(err, s.Close()))
}

// Close releases the machine, so that it can be opened again. It does not delete
// the state, nor wait until that is durable, which it becomes all the same. Snapshots stay valid.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
	return nil
}

func (m *Machine) closeLocked() {
	if !m.closed {
		m.closed = true
		m.gone.Store(true)
		m.store.unregister(m.replica, m.behind)
	}
}

// Destroy deletes the state and closes the machine. When it returns, nothing of
// the state can be seen any more, also after a crash; its space is reclaimed in
// the background, which goes on after a restart. After an error it can be called
// again, also on a machine that was opened anew.
func (m *Machine) Destroy() error {
	if err := m.begin(); err != nil {
		return m.wrap("destroy", err)
	}
	defer m.end()
	if err := m.store.flusher.await(m.behind); err != nil {
		return m.wrap("destroy", err)
	}
	if g := m.state.generation; g != 0 {
		var set writeSet
		set.delete(machineKey(m.replica))
		m.unlink(&set, g)
		if err := m.store.committer.commit(set); err != nil {
			return m.wrap("destroy", err)
		}
		m.replaceLocked(machineState{})
		m.store.cleaner.add(g)
	}
	m.store.forget(m.replica)
	m.closeLocked()
	return nil
}

// unlink adds to set that g is to be deleted.
func (m *Machine) unlink(set *writeSet, g generation) {
	rec := generationRecord{state: dropping, owner: m.replica}
	set.set(generationKey(g), encodeGeneration(g, rec))
}

// Snapshot returns a view of the present state. It costs no copy but of what is not written
// yet; the versions that it shows stay on disk until it is closed.
func (m *Machine) Snapshot() (group.Snapshot, error) {
	s, err := m.view()
	if err != nil {
		return nil, m.wrap("snapshot", err)
	}
	return s, nil
}

// Restore replaces the state by the one that r holds. It reads r to its end.
// Everything is checked before the switch, which is one transaction: an error or
// a crash at any time leaves the old state, complete.
func (m *Machine) Restore(r io.Reader) error {
	if err := m.begin(); err != nil {
		return m.wrap("restore", err)
	}
	defer m.end()
	err := m.store.flusher.await(m.behind)
	if err == nil {
		err = m.restoreLocked(r)
	}
	return m.wrap("restore", err)
}

// wrap says what m was doing.
func (m *Machine) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kv: %v: %s: %w", m.replica, doing, err)
}
