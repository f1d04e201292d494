//go:build unix

package crash

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/kv"
)

// The kinds of groups: in memory, with snapshots in files, and in a store.
const (
	kindList = "list"
	kindKV   = "kv"
)

// hooks are told in which phase a replica is. They may not return.
type hooks func(phase string, env group.Env)

// A list is a state machine in memory. Each command is appended, also one that is
// there already: that a command is applied twice shows.
type list struct {
	env   group.Env
	hooks hooks

	mu       sync.RWMutex
	commands [][]byte
}

func newList(h hooks) group.Factory {
	return func(env group.Env) (group.StateMachine, error) {
		h(phaseOpen, env)
		return &list{env: env, hooks: h}, nil
	}
}

// listCommand encodes a token with something to make it long.
func listCommand(token string, filler int) []byte {
	b := wire.AppendString(nil, token)
	return wire.AppendBytes(b, bytes.Repeat([]byte(token[len(token)-1:]), filler))
}

// Apply appends the commands.
func (l *list) Apply(batch []group.Command) ([]group.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range batch {
		l.commands = append(l.commands, bytes.Clone(c.Data))
	}
	return make([]group.Result, len(batch)), nil
}

func (l *list) encode() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	b := wire.AppendUvarint(nil, uint64(len(l.commands)))
	for _, c := range l.commands {
		b = wire.AppendBytes(b, c)
	}
	return b
}

func decodeList(b []byte) ([][]byte, error) {
	r := wire.NewReader(b)
	commands := make([][]byte, 0, r.Count(1))
	for range cap(commands) {
		commands = append(commands, bytes.Clone(r.Bytes()))
	}
	return commands, r.Close()
}

// Snapshot copies the state.
func (l *list) Snapshot() (group.Snapshot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return &listSnapshot{l.env, l.hooks, &list{commands: slices.Clone(l.commands)}}, nil
}

type listSnapshot struct {
	env   group.Env
	hooks hooks
	of    *list
}

// WriteTo writes the state in two parts, with the phase between them.
func (s *listSnapshot) WriteTo(w io.Writer) (int64, error) {
	b := s.of.encode()
	n, err := w.Write(b[:len(b)/2])
	if err != nil {
		return int64(n), err
	}
	s.hooks(phaseRead, s.env)
	m, err := w.Write(b[len(b)/2:])
	s.hooks(phaseRead2, s.env)
	return int64(n + m), err
}

// Close does nothing.
func (s *listSnapshot) Close() error { return nil }

// Restore replaces the state.
func (l *list) Restore(r io.Reader) error {
	l.hooks(phaseRestore, l.env)
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	commands, err := decodeList(b)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.commands = commands
	l.mu.Unlock()
	l.hooks(phaseRestore2, l.env)
	return nil
}

// Query returns the state.
func (l *list) Query([]byte) ([]byte, error) { return l.encode(), nil }

// Hash returns a hash of the state, which depends on the order.
func (l *list) Hash() ([]byte, error) {
	sum := sha256.Sum256(l.encode())
	return sum[:], nil
}

// Close does nothing.
func (l *list) Close() error { return nil }

// Destroy only says so.
func (l *list) Destroy() error {
	l.hooks(phaseDestroy, l.env)
	l.hooks(phaseDestroy2, l.env)
	return nil
}

// A watched state machine is the store's, with its phases told.
type watched struct {
	*kv.Machine
	env   group.Env
	hooks hooks
}

func newWatched(s *kv.Store, h hooks) group.Factory {
	open := s.Factory()
	return func(env group.Env) (group.StateMachine, error) {
		h(phaseOpen, env)
		sm, err := open(env)
		if err != nil {
			return nil, err
		}
		m, ok := sm.(*kv.Machine)
		if !ok {
			return nil, fmt.Errorf("the store's factory makes a %T", sm)
		}
		return &watched{m, env, h}, nil
	}
}

// Applied is what a durable state machine is asked before its log is cut.
func (m *watched) Applied() (uint64, error) {
	index, err := m.Machine.Applied()
	m.hooks(phaseDurable, m.env)
	return index, err
}

// Snapshot makes one that tells when it is read.
func (m *watched) Snapshot() (group.Snapshot, error) {
	s, err := m.Machine.Snapshot()
	if err != nil {
		return nil, err
	}
	return &watchedSnapshot{s, m}, nil
}

type watchedSnapshot struct {
	group.Snapshot
	m *watched
}

// WriteTo writes the state.
func (s *watchedSnapshot) WriteTo(w io.Writer) (int64, error) {
	s.m.hooks(phaseRead, s.m.env)
	n, err := s.Snapshot.WriteTo(w)
	s.m.hooks(phaseRead2, s.m.env)
	return n, err
}

// Restore replaces the state.
func (m *watched) Restore(r io.Reader) error {
	m.hooks(phaseRestore, m.env)
	err := m.Machine.Restore(r)
	m.hooks(phaseRestore2, m.env)
	return err
}

// Destroy deletes the state.
func (m *watched) Destroy() error {
	m.hooks(phaseDestroy, m.env)
	err := m.Machine.Destroy()
	m.hooks(phaseDestroy2, m.env)
	return err
}
