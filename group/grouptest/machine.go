package grouptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A machine is a state machine under test with the log that it has been given.
type machine struct {
	tb      testing.TB
	suite   Suite
	factory group.Factory
	env     group.Env
	sm      group.StateMachine

	next  int // number of the next command
	index uint64
}

// open opens a new machine on a node of its own. It is closed with the test.
func (s Suite) open(tb testing.TB) *machine {
	tb.Helper()
	m := &machine{
		tb: tb, suite: s, factory: s.Open(tb),
		env: group.Env{
			Group: 7, Incarnation: raftyard.Incarnation{1}, Replica: 1, Node: 1,
			Dir: filepath.Join(tb.TempDir(), "replica"), Logger: slog.New(slog.DiscardHandler),
		},
		index: 1, // the log of a group begins after its first snapshot
	}
	m.reopen()
	tb.Cleanup(func() {
		if m.sm != nil {
			m.close()
		}
	})
	return m
}

func (m *machine) reopen() {
	m.tb.Helper()
	sm, err := m.factory(m.env)
	if err != nil {
		m.tb.Fatalf("open: %v", err)
	}
	m.sm = sm
}

func (m *machine) close() {
	m.tb.Helper()
	sm := m.sm
	m.sm = nil
	if err := sm.Close(); err != nil {
		m.tb.Errorf("Close: %v", err)
	}
}

// batch returns the commands of the next n entries. Entries are never split between
// calls of Apply; each carries one to three commands, the same on every replica.
func (m *machine) batch(n int) []group.Command {
	var batch []group.Command
	for range n {
		m.index++
		for offset := range 1 + int(m.index%3) {
			batch = append(batch, group.Command{
				Index: m.index, Offset: offset, ID: commandID(m.next),
				Data: bytes.Clone(m.suite.Command(m.next)),
			})
			m.next++
		}
	}
	return batch
}

func commandID(i int) group.CommandID {
	var id group.CommandID
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	return id
}

// apply applies the next n entries in one call and returns the results.
func (m *machine) apply(n int) []group.Result {
	m.tb.Helper()
	return m.applyBatch(m.batch(n))
}

func (m *machine) applyBatch(batch []group.Command) []group.Result {
	m.tb.Helper()
	results, err := m.sm.Apply(batch)
	if err != nil {
		m.tb.Fatalf("Apply of %d commands from index %d on: %v", len(batch), batch[0].Index, err)
	}
	if len(results) != len(batch) {
		m.tb.Fatalf("Apply of %d commands returned %d results", len(batch), len(results))
	}
	return results
}

// state returns something that is equal for equal states and differs for others.
func (m *machine) state() string {
	m.tb.Helper()
	var b bytes.Buffer
	if h, ok := m.sm.(group.Hasher); ok {
		hash, err := h.Hash()
		if err != nil {
			m.tb.Fatalf("Hash: %v", err)
		}
		fmt.Fprintf(&b, "hash %x\n", hash)
	}
	if q, ok := m.sm.(group.Querier); ok {
		for _, query := range m.suite.Queries {
			answer, err := q.Query(query)
			if err != nil {
				m.tb.Fatalf("Query(%q): %v", query, err)
			}
			fmt.Fprintf(&b, "query %q: %q\n", query, answer)
		}
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "snapshot %q", m.snapshot())
	}
	return b.String()
}

// snapshot returns what a snapshot of the present state writes.
func (m *machine) snapshot() []byte {
	m.tb.Helper()
	snap, err := m.sm.Snapshot()
	if err != nil {
		m.tb.Fatalf("Snapshot: %v", err)
	}
	return m.write(snap)
}

// write writes a snapshot out and closes it.
func (m *machine) write(snap group.Snapshot) []byte {
	m.tb.Helper()
	var b bytes.Buffer
	writeSnapshot(m.tb, snap, &b)
	return b.Bytes()
}

// writeSnapshot may be called from any goroutine.
func writeSnapshot(tb testing.TB, snap group.Snapshot, w io.Writer) {
	tb.Helper()
	counter := &counter{w: w}
	n, err := snap.WriteTo(counter)
	if err != nil {
		tb.Errorf("the snapshot's WriteTo: %v", err)
	}
	if n != counter.n {
		tb.Errorf("the snapshot's WriteTo returned %d, but wrote %d bytes", n, counter.n)
	}
	if err := snap.Close(); err != nil {
		tb.Errorf("the snapshot's Close: %v", err)
	}
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// restore restores a snapshot that was taken after the first next commands.
func (m *machine) restore(snap []byte, from *machine) {
	m.tb.Helper()
	if err := m.sm.Restore(bytes.NewReader(snap)); err != nil {
		m.tb.Fatalf("Restore: %v", err)
	}
	m.next, m.index = from.next, from.index
}

func (m *machine) wantState(want, what string) {
	m.tb.Helper()
	if got := m.state(); got != want {
		m.tb.Errorf("%s: the state is\n%s\nwant\n%s", what, got, want)
	}
}

// applied returns how far the machine is durable, and false if it is not Durable.
func (m *machine) applied() (uint64, bool) {
	m.tb.Helper()
	d, ok := m.sm.(group.Durable)
	if !ok {
		return 0, false
	}
	index, err := d.Applied()
	if err != nil {
		m.tb.Fatalf("Applied: %v", err)
	}
	return index, true
}
