package kv

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// waitFor is how long a test waits for something that must happen.
const waitFor = 20 * time.Second

func testReplica(g raftyard.GroupID) Replica {
	return Replica{Group: g, Incarnation: raftyard.Incarnation{15: byte(g)}, ID: 1}
}

// openTestStore opens a store that is closed at the end of the test, unless the
// test has done so.
func openTestStore(tb testing.TB, dir string) *Store {
	tb.Helper()
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		tb.Fatalf("OpenStore: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

func openMachine(tb testing.TB, s *Store, r Replica) *Machine {
	tb.Helper()
	m, err := s.Open(r)
	if err != nil {
		tb.Fatalf("Open(%v): %v", r, err)
	}
	return m
}

// apply applies commands, one entry each, from index on.
func apply(tb testing.TB, m *Machine, index uint64, cmds ...[]byte) {
	tb.Helper()
	batch := make([]group.Command, 0, len(cmds))
	for i, c := range cmds {
		batch = append(batch, group.Command{Index: index + uint64(i), Data: c})
	}
	results, err := m.Apply(batch)
	if err != nil {
		tb.Fatalf("Apply at %d: %v", index, err)
	}
	if len(results) != len(cmds) {
		tb.Fatalf("Apply returned %d results for %d commands", len(results), len(cmds))
	}
}

// flushAll has the database get everything that was applied.
func flushAll(tb testing.TB, s *Store) {
	tb.Helper()
	for _, m := range s.machines() {
		if err := s.flusher.await(m.behind); err != nil {
			tb.Fatalf("flush %v: %v", m.replica, err)
		}
	}
	eventually(tb, "what closed machines left is written", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.left) == 0
	})
}

func put(key, value string) []byte { return encodePut([]byte(key), []byte(value), Cond{}) }

func del(key string) []byte { return encodeDelete([]byte(key), Cond{}) }

// dump returns all items of m.
func dump(tb testing.TB, m *Machine) map[string]string {
	tb.Helper()
	got := make(map[string]string)
	q := ListRequest{Limit: 1000}
	for {
		l, err := m.List(q)
		if err != nil {
			tb.Fatalf("List: %v", err)
		}
		for _, i := range l.Items {
			got[string(i.Key)] = string(i.Data)
		}
		if l.Next == nil {
			return got
		}
		q.Start = l.Next
	}
}

func hashOf(tb testing.TB, m *Machine) []byte {
	tb.Helper()
	h, err := m.Hash()
	if err != nil {
		tb.Fatalf("Hash: %v", err)
	}
	return h
}

func verify(tb testing.TB, m *Machine) {
	tb.Helper()
	if err := m.Verify(); err != nil {
		tb.Fatalf("Verify: %v", err)
	}
}

// snapshotBytes returns the stream of a snapshot of m.
func snapshotBytes(tb testing.TB, m *Machine) []byte {
	tb.Helper()
	s, err := m.Snapshot()
	if err != nil {
		tb.Fatalf("Snapshot: %v", err)
	}
	var buf bytes.Buffer
	n, err := s.WriteTo(&buf)
	if err != nil || n != int64(buf.Len()) {
		tb.Fatalf("WriteTo = %d, %v; it wrote %d bytes", n, err, buf.Len())
	}
	if err := s.Close(); err != nil {
		tb.Fatalf("Close: %v", err)
	}
	return buf.Bytes()
}

// eventually polls until cond holds.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(tb.Context(), waitFor)
	defer cancel()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("waited %v until %s", waitFor, what)
		}
	}
}

// waitCleaned waits until the background deletion is done.
func waitCleaned(tb testing.TB, s *Store) {
	tb.Helper()
	eventually(tb, "old generations are deleted", func() bool { return s.Stats().Dropping == 0 })
}

// machineDB lets a Client talk to machines directly. Every proposal is an entry.
type machineDB struct {
	machines map[raftyard.GroupID]*Machine
	index    map[raftyard.GroupID]uint64
	proposed int
}

func newMachineDB(machines ...*Machine) *machineDB {
	db := &machineDB{
		machines: make(map[raftyard.GroupID]*Machine),
		index:    make(map[raftyard.GroupID]uint64),
	}
	for _, m := range machines {
		db.machines[m.replica.Group] = m
	}
	return db
}

func (d *machineDB) Propose(_ context.Context, g raftyard.GroupID, cmd []byte) (
	group.Result, error,
) {
	d.proposed++
	d.index[g]++
	results, err := d.machines[g].Apply([]group.Command{{Index: d.index[g], Data: cmd}})
	if err != nil {
		return group.Result{}, err
	}
	return results[0], nil
}

func (d *machineDB) Query(
	_ context.Context, g raftyard.GroupID, _ group.Consistency, q []byte,
) ([]byte, error) {
	return d.machines[g].Query(q)
}
