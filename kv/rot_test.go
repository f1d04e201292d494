package kv

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// rotKeys is how many keys a rotten state has, each of which was written twice: the older
// values are in an older table.
const rotKeys = 1500

func rotKey(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }

// rotValue is longer than a hash and compresses, so that its block has to be unpacked.
func rotValue(i, version int) string {
	return strings.Repeat(fmt.Sprintf("%d of key %d, ", version, i), 20)
}

// rottenStore opens a store with one machine, whose newest values are all in one table, and
// whose older ones are in another. Then one byte of that table is changed, beneath Badger.
func rottenStore(t *testing.T, at func(size int64) int64) (s *Store, m *Machine, table string) {
	t.Helper()
	dir := t.TempDir()
	for version := 1; version <= 2; version++ {
		var err error
		if s, err = OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")}); err != nil {
			t.Fatal(err)
		}
		m = openMachine(t, s, testReplica(1))
		var puts [][]byte
		for i := range rotKeys {
			puts = append(puts, encodePut(rotKey(i), []byte(rotValue(i, version)), Cond{}))
		}
		apply(t, m, uint64((version-1)*rotKeys+1), puts...)
		if err = s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s = openTestStore(t, dir)
	m = openMachine(t, s, testReplica(1))
	var newest badger.TableInfo
	for _, info := range s.db.Tables() {
		if info.MaxVersion > newest.MaxVersion && info.KeyCount > rotKeys/2 {
			newest = info
		}
	}
	table = filepath.Join(dir, "state", fmt.Sprintf("%06d.sst", newest.ID))
	vfstest.Flip(t, table, at)
	return s, m, table
}

// rots are places in the blocks of a table. With the first one a block cannot be unpacked; with
// others it can, and something in it is not what was written.
var rots = map[string]func(size int64) int64{ //nolint:gochecknoglobals // a constant
	"first block": func(int64) int64 { return 0 },
	"early":       func(n int64) int64 { return n / 5 },
	"middle":      func(n int64) int64 { return n / 2 },
}

// TestRotIsNotServed: a table rots after it was opened. What was in it is neither absent nor as
// it was before: each answer is right, or an error that says that the state is damaged. No
// snapshot is taken of it.
func TestRotIsNotServed(t *testing.T) {
	for name, at := range rots {
		t.Run(name, func(t *testing.T) {
			_, m, table := rottenStore(t, at)
			getRotten(t, m)
			listRotten(t, m)
			sendRotten(t, m, table)
		})
	}
}

func getRotten(t *testing.T, m *Machine) {
	t.Helper()
	damaged := 0
	for i := range rotKeys {
		v, err := m.Get(rotKey(i))
		switch {
		case errors.Is(err, ErrDamaged):
			damaged++
		case err != nil:
			t.Errorf("%s: %v", rotKey(i), err)
		case string(v.Data) != rotValue(i, 2):
			t.Errorf("%s is %.20q", rotKey(i), v.Data)
		}
	}
	if damaged == 0 || damaged > rotKeys/10 {
		t.Errorf("%d of %d keys are damaged, want some", damaged, rotKeys)
	}
}

func listRotten(t *testing.T, m *Machine) {
	t.Helper()
	damaged := 0
	for i := 0; i < rotKeys; i += 10 {
		l, err := m.List(ListRequest{Start: rotKey(i), Limit: 10})
		if errors.Is(err, ErrDamaged) {
			damaged++
			continue
		}
		if err != nil || len(l.Items) != min(10, rotKeys-i) {
			t.Fatalf("from %s: %d items, %v", rotKey(i), len(l.Items), err)
		}
		for j, item := range l.Items {
			if !bytes.Equal(item.Key, rotKey(i+j)) || string(item.Data) != rotValue(i+j, 2) {
				t.Errorf("from %s: %s is %.20q", rotKey(i), item.Key, item.Data)
			}
		}
	}
	if damaged == 0 || damaged > rotKeys/100 {
		t.Errorf("%d of %d lists are damaged, want some", damaged, rotKeys/10)
	}
	if _, err := m.List(ListRequest{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a list of all is %v", err)
	}
}

func sendRotten(t *testing.T, m *Machine, table string) {
	t.Helper()
	from, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	_, err = from.WriteTo(&stream)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(table)) {
		t.Errorf("WriteTo = %v, want that %s is damaged", err, table)
	}
	if err = from.Close(); err != nil {
		t.Error(err)
	}
	if m.Damage() == nil {
		t.Error("the machine is not known to be damaged")
	}
	to := openMachine(t, openTestStore(t, t.TempDir()), testReplica(1))
	if err = to.Restore(&stream); !errors.Is(err, ErrSnapshotFormat) {
		t.Errorf("Restore of what was written = %v", err)
	}
}

// TestRotIsNotApplied: a command that looks at what has rotted has no result.
func TestRotIsNotApplied(t *testing.T) {
	_, m, _ := rottenStore(t, rots["first block"])
	damaged, index := 0, uint64(2*rotKeys)
	for i := range rotKeys {
		cond := Cond{Revision: uint64(rotKeys + i + 1)}
		cmd := group.Command{Index: index + 1, Data: encodePut(rotKey(i), []byte("x"), cond)}
		results, err := m.Apply([]group.Command{cmd})
		if errors.Is(err, ErrDamaged) {
			damaged++
			continue
		}
		index++
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeResult(results[0].Data, commandPut); err != nil {
			t.Errorf("%s: %v", rotKey(i), err)
		}
	}
	if damaged == 0 || damaged > rotKeys/10 {
		t.Errorf("%d of %d commands found damage, want some", damaged, rotKeys)
	}
}

// TestRotIsToldByWhoReads: damage that a read finds is told like that which a scrub finds: the
// replica is damaged, for as long as it has that state, no other one is, and the table is named.
func TestRotIsToldByWhoReads(t *testing.T) {
	s, m, table := rottenStore(t, rots["first block"])
	other := openMachine(t, s, testReplica(2))
	apply(t, other, 1, put("a", "1"))
	if err := errors.Join(m.Damage(), other.Damage()); err != nil {
		t.Fatalf("before anybody reads: %v", err)
	}
	good := openMachine(t, openTestStore(t, t.TempDir()), testReplica(1))
	apply(t, good, 1, put("a", "1"))
	if _, err := m.Get(rotKey(0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("Get = %v", err)
	}
	if !errors.Is(m.Damage(), ErrDamaged) || other.Damage() != nil {
		t.Errorf("damage: %v, and of the other machine %v", m.Damage(), other.Damage())
	}
	eventually(t, "the table is named", func() bool {
		u := s.Upkeep()
		return len(u.Damaged) == 1 && u.Damaged[0].File == filepath.Base(table)
	})
	if other.Damage() != nil {
		t.Errorf("the other machine is damaged: %v", other.Damage())
	}
	if err := m.Restore(bytes.NewReader(snapshotBytes(t, good))); err != nil {
		t.Fatal(err)
	}
	if v, err := m.Get([]byte("a")); err != nil || string(v.Data) != "1" || m.Damage() != nil {
		t.Errorf("with another state: %q, %v, damage %v", v.Data, err, m.Damage())
	}
}

// TestDestroyedRotIsForgotten: what was found of a state is not kept when the state is gone.
func TestDestroyedRotIsForgotten(t *testing.T) {
	s, m, _ := rottenStore(t, rots["first block"])
	if _, err := m.Get(rotKey(0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("Get = %v", err)
	}
	if err := m.Destroy(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rotten) != 0 {
		t.Errorf("%d damaged states are kept in mind, and none is there", len(s.rotten))
	}
}
