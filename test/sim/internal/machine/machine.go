package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// An Observer hears what state machines do. Its methods are called from whatever
// calls the machine. A [check.Checker] is one.
type Observer interface {
	MachineOpened(id check.Identity, index uint64)
	MachineDurable(id check.Identity, index uint64)
	Applied(id check.Identity, batch []group.Command, results []group.Result)
	Restored(id check.Identity, index uint64)
	Hashed(id check.Identity, index, hash uint64)
}

// Config says how machines work. The zero value of every field but Files, which
// [Durable] needs, means "use the default".
type Config struct {
	// Files is where a durable machine keeps its state.
	Files vfs.FS

	// Observer hears what happens. Default: a checker that nobody asks.
	Observer Observer

	// Sync decides, after each Apply of a durable machine, whether to sync. Default:
	// after each eighth.
	Sync func() bool
}

// Memory returns the factory of machines that live in memory.
func Memory(c Config) group.Factory {
	return func(env group.Env) (group.StateMachine, error) {
		m := newMemory(c, env)
		m.observer.MachineOpened(m.id, 0)
		return m, nil
	}
}

// memory is a machine without a disk, and a part of the one with a disk.
type memory struct {
	id       check.Identity
	observer Observer

	mu    sync.RWMutex // queries come beside Apply
	state *registers
}

var (
	_ group.Hasher  = (*memory)(nil)
	_ group.Querier = (*memory)(nil)
	_ group.Sizer   = (*memory)(nil)
)

func newMemory(c Config, env group.Env) *memory {
	m := &memory{
		id: check.Identity{
			Group: env.Group, Incarnation: env.Incarnation,
			Replica: env.Replica, Node: env.Node,
		},
		observer: c.Observer,
		state:    newRegisters(),
	}
	if m.observer == nil {
		m.observer = check.New(check.Config{})
	}
	return m
}

// Apply implements group.StateMachine.
func (m *memory) Apply(batch []group.Command) ([]group.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]group.Result, len(batch))
	begun := 0 // the first command of the present index
	for i := range batch {
		results[i].Data = m.state.apply(&batch[i])
		if i+1 < len(batch) && batch[i+1].Index == batch[i].Index {
			continue
		}
		m.observer.Applied(m.id, batch[begun:i+1], results[begun:i+1])
		m.observer.Hashed(m.id, m.state.index, m.state.hash())
		begun = i + 1
	}
	return results, nil
}

// Snapshot implements group.StateMachine.
func (m *memory) Snapshot() (group.Snapshot, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return snapshot(m.state.encode()), nil
}

// Restore implements group.StateMachine.
func (m *memory) Restore(r io.Reader) error {
	s, err := readRegisters(r)
	if err != nil {
		return err
	}
	m.replace(s)
	return nil
}

func readRegisters(r io.Reader) (*registers, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return decodeRegisters(b)
}

// replace makes s the state.
func (m *memory) replace(s *registers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mutant.On(mutant.KeepOnInstall) {
		s.keep(m.state)
	}
	m.state = s
	m.observer.Restored(m.id, s.index)
	m.observer.Hashed(m.id, s.index, s.hash())
}

// keep adds what only the old state has. It is a planted bug.
func (s *registers) keep(old *registers) {
	for key, r := range old.keys {
		if _, there := s.keys[key]; !there {
			s.put(key, r)
		}
	}
}

// Hash implements group.Hasher.
func (m *memory) Hash() ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return binary.BigEndian.AppendUint64(nil, m.state.hash()), nil
}

// Query implements group.Querier. It answers an encoded Get.
func (m *memory) Query(query []byte) ([]byte, error) {
	op, err := decodeOp(query)
	if err != nil {
		return nil, err
	}
	if op.Kind != linear.Get {
		return nil, fmt.Errorf("a %s is not a question", op.Kind)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return appendResult(nil, m.state.do(op)), nil
}

// Size implements group.Sizer.
func (m *memory) Size() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.bytes
}

// Close implements group.StateMachine.
func (m *memory) Close() error { return nil }

// snapshot is an encoded state.
type snapshot []byte

// writeSize is small, so that a crash finds files that are written in part.
const writeSize = 512

// WriteTo implements io.WriterTo.
func (s snapshot) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for part := range slices.Chunk(s, writeSize) {
		n, err := w.Write(part)
		written += int64(n)
		if err != nil {
			return written, fmt.Errorf("write snapshot: %w", err)
		}
	}
	return written, nil
}

// Close implements io.Closer.
func (s snapshot) Close() error { return nil }
