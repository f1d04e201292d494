package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// victimOf makes a store in which replica 1 of group 1 is destroyed, and that was noted.
func victimOf(t *testing.T, tomb Tombstone) (o Options, early map[string][]byte) {
	t.Helper()
	o = testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(0), Update{})
		b.Create(testReplica(1), Update{Entries: entriesOf(1, 3, 1), Meta: []byte("m")})
	})
	early = make(map[string][]byte)
	for _, k := range []kind{kindReplica, kindMeta} {
		key := appendKey(nil, 1, k)
		value, err := readKey(s, key)
		if err != nil {
			t.Fatal(err)
		}
		early[string(key)] = value
	}
	value, err := readKey(s, appendLogKey(nil, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	early[string(appendLogKey(nil, 1, 0))] = value
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, tomb) })
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	mustCommit(t, s, func(b *Batch) { b.Update(0, Update{HardState: hardStateOf(1, 1, 0)}) })
	mustClose(t, s)
	return o, early
}

// TestTombstoneIsPutBack: whatever has become of a tombstone in the database, it is there,
// with all that it says, and lets nobody come again who has been here.
func TestTombstoneIsPutBack(t *testing.T) {
	tomb := Tombstone{NextReplica: 7, Epoch: 12, Data: []byte("members")}
	for name, edit := range map[string]func(early map[string][]byte) func(txn) error{
		"all is gone": func(map[string][]byte) func(txn) error { return wipeGroup(1) },
		"its replica is there": func(early map[string][]byte) func(txn) error {
			return func(txn txn) error {
				err := wipeGroup(1)(txn)
				for key, value := range early {
					err = errors.Join(err, txn.Set([]byte(key), value))
				}
				return err
			}
		},
		"it cannot be read": func(map[string][]byte) func(txn) error {
			return change(appendKey(nil, 1, kindReplica), flip(-1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, early := victimOf(t, tomb)
			editLog(t, o, edit(early))
			for range 2 {
				s := mustOpen(t, o)
				r, ok := s.Replica(1)
				got := r.Tombstone
				if !ok || r.ID != 1 || r.Incarnation != testIncarnation || r.Damage != nil ||
					got == nil || got.NextReplica != tomb.NextReplica || got.Epoch != tomb.Epoch ||
					!bytes.Equal(got.Data, tomb.Data) || got.Purged || s.Log(1) != nil {
					t.Errorf("there is %+v, tombstone %+v, want %+v, not purged", r, got, tomb)
				}
				b := s.NewBatch()
				b.Create(testReplica(1), Update{})
				if err := b.Commit(); !errors.Is(err, ErrDestroyed) {
					t.Errorf("its replica is made again: %v", err)
				}
				if r, _ := s.Replica(0); r.Damage != nil {
					t.Errorf("nothing of group 0 is lost: %v", r.Damage)
				}
				mustClose(t, s)
				// The first start has written it, and needs no inventory for it any more.
				if err := os.Remove(filepath.Join(o.Dir, inventoryName)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestTombstoneIsPutBackForGood: it can be purged and forgotten like any other, and a later
// replica may come.
func TestTombstoneIsPutBackForGood(t *testing.T) {
	o, _ := victimOf(t, Tombstone{NextReplica: 2})
	editLog(t, o, wipeGroup(1))
	s := mustOpen(t, o)
	later := testReplica(1)
	later.ID = 2
	mustCommit(t, s, func(b *Batch) { b.Create(later, Update{}) })
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 3}) })
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	mustCommit(t, s, func(b *Batch) { b.Forget(1) })
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, ok := s.Replica(1); ok {
		t.Errorf("it was forgotten, and there is %+v", r)
	}
}

// TestInventoryOfLongTombstones: data that would fill a frame is left out, and nothing else
// suffers; the file stays as short as what it has allows.
func TestInventoryOfLongTombstones(t *testing.T) {
	o := testOptions(t.TempDir())
	o.MemTableSize = 8 << 20
	s := mustOpen(t, o)
	s.keeper.stop()
	const groups = 8
	sizes := [groups]int{0, 1, maxInventoryData, maxInventoryData + 1, 1000, 60000, 70000, 80000}
	for g := range groupID(groups) {
		mustCommit(t, s, func(b *Batch) { b.Create(testReplica(g), Update{}) })
		mustCommit(t, s, func(b *Batch) {
			b.Destroy(g, Tombstone{NextReplica: 2, Data: make([]byte, sizes[g])})
		})
	}
	for n := range 20 {
		mustCommit(t, s, func(b *Batch) { b.MarkPurged(groupID(n % groups)) })
		if err := s.noteNumbers(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(o.Dir, inventoryName))
		if err != nil {
			t.Fatal(err)
		}
		in := decodeInventory(b)
		if in.size != len(b) || len(in.entries) != groups {
			t.Fatalf("%d groups in %d of %d bytes", len(in.entries), in.size, len(b))
		}
		for g, size := range sizes {
			if size > maxInventoryData {
				size = 0
			}
			if e := in.entries[groupID(g)]; e.dead == nil || len(e.dead.Data) != size {
				t.Fatalf("group %d: %+v, want %d bytes", g, e, size)
			}
		}
		if most := 2*s.inventory.needs + inventorySlack; int64(len(b)) > most {
			t.Fatalf("the file is %d bytes long, want %d at most", len(b), most)
		}
	}
	mustClose(t, s)
}

// oldStoreFrame is the first frame of an inventory of format 1 or 2.
func oldStoreFrame(in readInventory, format byte) []byte {
	frame := appendFrame(nil, frameStore, func(b []byte) []byte {
		return wire.AppendUvarint(wire.AppendID(b, in.store), in.boot)
	})
	frame[frameFront] = format
	binary.LittleEndian.PutUint32(frame, frameSum(frame))
	return frame
}

// TestLostTailWithoutInventory: the newest batches are gone, and nothing says who has been
// here in them: the inventory is missing, or is an older one without tombstones. The store
// does not open, however often that is tried.
func TestLostTailWithoutInventory(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"missing": os.Remove,
		"format 1": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			in := decodeInventory(b)
			return os.WriteFile(path, oldStoreFrame(in, 1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t.TempDir())
			s := mustOpen(t, o)
			mustCommit(t, s, func(b *Batch) { b.Create(testReplica(0), Update{}) })
			mustClose(t, s)
			loseNewest := rememberLog(t, o)
			s = mustOpen(t, o)
			mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
			mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
			mustClose(t, s)
			loseNewest()
			if err := spoil(filepath.Join(o.Dir, inventoryName)); err != nil {
				t.Fatal(err)
			}
			inspect(t, o.Dir, func(i *Inspection) {
				if !slices.ContainsFunc(i.Findings, func(f Finding) bool {
					return f.Scope == ScopeStore && strings.Contains(f.What, "newest batches")
				}) {
					t.Errorf("found is %+v, want that the store does not open", i.Findings)
				}
			})
			for range 2 {
				s, err := Open(o)
				if err == nil {
					_, there := s.Replica(raftyard.GroupID(1))
					t.Errorf("it opens; group 1 was here, and is known: %t", there)
					mustClose(t, s)
				}
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("Open = %v, want ErrDamaged", err)
				}
			}
		})
	}
}

// TestForgottenComesBack: the newest batches are gone, those in which a replica was destroyed
// and forgotten among them. It is known for what it is, at every start, until it is destroyed
// again; and only it.
func TestForgottenComesBack(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(0), Update{})
		b.Create(testReplica(1), Update{Meta: []byte("m")})
	})
	mustClose(t, s)
	loseNewest := rememberLog(t, o)
	s = mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	mustCommit(t, s, func(b *Batch) { b.Forget(1) })
	mustClose(t, s)
	loseNewest()
	for range 3 {
		s = mustOpen(t, o)
		if r, ok := s.Replica(1); !ok || !r.Forgotten || r.Damage == nil || string(r.Meta) != "m" {
			t.Errorf("group 1 had been forgotten, and is now %v: %+v", ok, r)
		}
		if r, _ := s.Replica(0); r.Forgotten || r.Damage == nil {
			t.Errorf("group 0 is damaged, and is now %+v", r)
		}
		if err := s.noteNumbers(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
	}
	s = mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.Forgotten || r.Tombstone == nil {
		t.Errorf("it is destroyed, and is now %+v", r)
	}
}
