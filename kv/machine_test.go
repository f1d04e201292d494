package kv

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// A batch larger than a write set is several transactions, and the results are
// those of one.
func TestApplySplitsLargeBatches(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	value := make([]byte, MaxValueBytes)
	var batch []group.Command
	for i := range 8 {
		value[0] = byte(i)
		cmd := encodePut(fmt.Appendf(nil, "key%d", i), value, Cond{Absent: true})
		batch = append(batch, group.Command{Index: 1 + uint64(i/4), Offset: i % 4, Data: cmd})
	}
	results, err := m.Apply(batch)
	if err != nil || len(results) != len(batch) {
		t.Fatalf("Apply: %d results, %v", len(results), err)
	}
	for i, r := range results {
		res, err := decodeResult(r.Data, commandPut)
		if err != nil || res.revision != uint64(i+1) || !res.flag {
			t.Errorf("result %d: %+v, %v", i, res, err)
		}
	}
	flushAll(t, s)
	if sets := s.Stats().WriteSets; sets < 4 {
		t.Errorf("%d write sets, want several", sets)
	}
	if got, want := m.state.position, (position{index: 2, offset: 3}); got != want {
		t.Errorf("position %+v, want %+v", got, want)
	}
	verify(t, m)
}

// A write set of many tiny records is bounded by Badger's count.
func TestApplySplitsByCount(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	n := int(s.db.MaxTxnCount()) + 1000
	batch := make([]group.Command, 0, n)
	for i := range n {
		cmd := put(fmt.Sprint(i), "")
		batch = append(batch, group.Command{Index: 1, Offset: i, Data: cmd})
	}
	if _, err := m.Apply(batch); err != nil {
		t.Fatal(err)
	}
	if m.state.content.count != uint64(n) {
		t.Errorf("%d items, want %d", m.state.content.count, n)
	}
	verify(t, m)
}

func TestApplied(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	want := func(index uint64) {
		t.Helper()
		if got, err := m.Applied(); err != nil || got != index {
			t.Errorf("Applied = %d, %v; want %d", got, err, index)
		}
	}
	want(0)
	if results, err := m.Apply(nil); err != nil || len(results) != 0 {
		t.Errorf("Apply of nothing: %v, %v", results, err)
	}
	apply(t, m, 5, put("a", "1"), []byte("garbage"))
	want(6)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Applied(); !errors.Is(err, ErrClosed) {
		t.Errorf("Applied of a closed machine: %v", err)
	}
	m = openMachine(t, s, testReplica(1))
	want(6)
}

// Lists see one state, whatever commands and restores go on beside them.
func TestReadsAreConsistent(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	pair := func(v string) []byte {
		return encodeTxn(Txn{Then: []Op{
			{Kind: OpPut, Key: []byte("a"), Value: []byte(v)},
			{Kind: OpPut, Key: []byte("b"), Value: []byte(v)},
		}})
	}
	apply(t, m, 1, pair("0"))
	stream := snapshotBytes(t, m)

	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l, err := m.List(ListRequest{})
				if err != nil || len(l.Items) != 2 || l.Items[0].Revision != l.Revision ||
					!bytes.Equal(l.Items[0].Data, l.Items[1].Data) {
					t.Errorf("List = %+v, %v", l, err)
					return
				}
			}
		})
	}
	for i := range uint64(400) {
		apply(t, m, 2+i, pair(fmt.Sprint(i)))
		if i%20 == 0 {
			if err := m.Restore(bytes.NewReader(stream)); err != nil {
				t.Error(err)
			}
		}
	}
	close(stop)
	readers.Wait()
	verify(t, m)
}

// A snapshot shows the same state however much is written, deleted, compacted
// and restored meanwhile.
func TestSnapshotIsolation(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	const keys = 50
	index := uint64(0)
	writeAll := func(value string) {
		for i := range keys {
			index++
			apply(t, m, index, put(fmt.Sprintf("key%03d", i), value))
		}
	}
	writeAll("old")
	want := snapshotBytes(t, m)
	snap, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	// Enough commits that Badger is told to discard old versions, repeatedly.
	for round := range 10 {
		writeAll(fmt.Sprint("new", round))
	}
	for i := range keys {
		index++
		apply(t, m, index, del(fmt.Sprintf("key%03d", i)))
	}
	if err := m.Destroy(); err != nil {
		t.Fatal(err)
	}
	waitCleaned(t, s)
	if err := s.db.Flatten(2); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := snap.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("WriteTo: %v, equal %t", err, bytes.Equal(got.Bytes(), want))
	}
	if n := s.Stats().Snapshots; n != 1 {
		t.Errorf("%d snapshots are open, want 1", n)
	}
	for range 2 { // closing again does no harm
		if err := snap.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := s.Stats().Snapshots; n != 0 {
		t.Errorf("%d snapshots are open, want 0", n)
	}
	if _, err := snap.WriteTo(&got); !errors.Is(err, ErrClosed) {
		t.Errorf("WriteTo after Close: %v, want ErrClosed", err)
	}
}

// Keys that were deleted since a snapshot's receiver saw them do not come back.
func TestRestoreForgetsOldKeys(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	leader := openMachine(t, s, testReplica(1))
	r := testReplica(1)
	r.ID = 2
	follower := openMachine(t, s, r)

	apply(t, leader, 1, put("stays", "1"), put("goes", "2"))
	apply(t, follower, 1, put("stays", "1"), put("goes", "2"))
	apply(t, leader, 3, del("goes"), put("new", "3"))
	if err := follower.Restore(bytes.NewReader(snapshotBytes(t, leader))); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"stays": "1", "new": "3"}
	if got := dump(t, follower); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("items %v, want %v", got, want)
	}
	if !bytes.Equal(hashOf(t, leader), hashOf(t, follower)) {
		t.Error("hashes differ")
	}
	if applied, err := follower.Applied(); err != nil || applied != 4 {
		t.Errorf("Applied = %d, %v; want 4", applied, err)
	}
	verify(t, follower)
	checkNothingElse(t, s, 4)
}

// damage changes a stored record behind the store's back.
func damage(t *testing.T, s *Store, key []byte, change func(record []byte) []byte) {
	t.Helper()
	flushAll(t, s)
	err := s.db.Read(func(at badgerdb.Reader) error {
		record, err := get(at, key)
		if err != nil {
			return err
		}
		return s.db.Commit(func(txn *badgerdb.Txn) error {
			if record = change(record); record == nil {
				return txn.Delete(key)
			}
			return txn.Set(key, record)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedItem(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m, other := openMachine(t, s, testReplica(1)), openMachine(t, s, testReplica(2))
	apply(t, m, 1, put("a", "1"), put("b", "2"))
	apply(t, other, 1, put("a", "1"))
	good := snapshotBytes(t, m)
	hash := hashOf(t, m)

	key := itemKey(m.state.generation, []byte("a"))
	changes := map[string]func([]byte) []byte{
		"flipped bit": func(r []byte) []byte { r[len(r)-1] ^= 4; return r },
		"cut":         func(r []byte) []byte { return r[:3] },
		"empty":       func([]byte) []byte { return []byte{} },
		"another key's record": func([]byte) []byte {
			return encodeItem(1, itemKey(m.state.generation, []byte("b")), item{create: 1, mod: 1})
		},
		"another group's record": func([]byte) []byte {
			return encodeItem(2, key, item{create: 1, mod: 1})
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			var record []byte
			damage(t, s, key, func(r []byte) []byte {
				record = bytes.Clone(r)
				return change(r)
			})
			check := func(what string, err error) {
				t.Helper()
				d, ok := errors.AsType[*DamageError](err)
				if !ok || string(d.Key) != "a" || !errors.Is(err, ErrDamaged) {
					t.Errorf("%s: %v, want a DamageError of key a", what, err)
				}
			}
			_, err := m.Get([]byte("a"))
			check("Get", err)
			_, err = m.List(ListRequest{KeysOnly: true})
			check("List", err)
			_, err = m.Query(encodeGetQuery([]byte("a")))
			check("Query", err)
			_, err = m.Apply([]group.Command{
				{Index: 3, Data: put("x", "")},
				{Index: 3, Offset: 1, Data: del("a")},
			})
			check("Apply", err)
			check("Verify", m.Verify())
			snap, err := m.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			_, err = snap.WriteTo(&bytes.Buffer{})
			check("WriteTo", err)
			if err := snap.Close(); err != nil {
				t.Error(err)
			}

			// Nothing was changed, and the others do not notice.
			if !bytes.Equal(hashOf(t, m), hash) || m.state.position.index != 2 {
				t.Error("a failed Apply changed the state")
			}
			verify(t, other)
			damage(t, s, key, func([]byte) []byte { return record })
			verify(t, m)
		})
	}

	// An item that is not there at all is found where all of them are read, and
	// a restore repairs it.
	damage(t, s, key, func([]byte) []byte { return nil })
	if err := m.Verify(); !errors.Is(err, ErrDamaged) {
		t.Errorf("Verify with a lost item: %v, want ErrDamaged", err)
	}
	if err := m.Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	verify(t, m)
}

func TestDamagedMachine(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	r := testReplica(1)
	m := openMachine(t, s, r)
	apply(t, m, 1, put("a", "1"))
	g := m.state.generation
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	state := m.state
	tests := []struct {
		name   string
		key    []byte
		change func([]byte) []byte
	}{
		{"machine record", machineKey(r), func(b []byte) []byte { b[7] ^= 1; return b }},
		{"machine without generation", machineKey(r), func([]byte) []byte {
			other := state
			other.generation += 5
			return encodeMachine(r, other)
		}},
		{"generation record", generationKey(g), func(b []byte) []byte { b[2] ^= 1; return b }},
		{"generation of another", generationKey(g), func([]byte) []byte {
			return encodeGeneration(g, generationRecord{state: live, owner: testReplica(2)})
		}},
		{"generation not live", generationKey(g), func([]byte) []byte {
			return encodeGeneration(g, generationRecord{state: dropping, owner: r})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var record []byte
			damage(t, s, tt.key, func(b []byte) []byte {
				record = bytes.Clone(b)
				return tt.change(b)
			})
			if _, err := s.Open(r); !errors.Is(err, ErrDamaged) {
				t.Errorf("Open: %v, want ErrDamaged", err)
			}
			damage(t, s, tt.key, func([]byte) []byte { return record })
		})
	}
	verify(t, openMachine(t, s, r))
}
