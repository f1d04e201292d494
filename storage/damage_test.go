package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
)

// writeVictim makes a store with groups 1 and 2, whose records are all in Badger.
func writeVictim(t *testing.T) Options {
	t.Helper()
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		for g := range raftyard.GroupID(3) {
			u := Update{Snapshot: snapshotAt(4, 1), Reset: true, Meta: []byte("m")}
			b.Create(testReplica(g), u)
			b.Update(g, Update{Entries: entriesOf(5, 3, 1), HardState: hardStateOf(1, 1, 6)})
			b.Update(g, Update{Entries: entriesOf(8, 3, 2), HardState: hardStateOf(2, 1, 9)})
		}
	})
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(11, 1, 2)}) })
	mustCommit(t, s, func(b *Batch) { b.Update(2, Update{HardState: hardStateOf(3, 1, 9)}) })
	mustClose(t, s)
	return o
}

// txn is a transaction that reads what is committed.
type txn struct {
	kv.Writer
	kv.Snapshot
}

func edit(db kv.DB, fn func(txn) error) error {
	at := db.Snapshot()
	defer at.Discard()
	return db.Commit(func(w kv.Writer) error { return fn(txn{w, at}) })
}

// editLog changes the records of a closed store.
func editLog(t *testing.T, o Options, fn func(txn) error) {
	t.Helper()
	db, err := kv.OpenBadger(badgerdb.Options{
		Dir: filepath.Join(o.Dir, logName), MemTableSize: o.MemTableSize, Profile: badgerdb.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(edit(db, fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// change replaces the record at key.
func change(key []byte, fn func([]byte) []byte) func(txn) error {
	return func(txn txn) error {
		value, err := txn.Get(key)
		if err != nil {
			return err
		}
		return txn.Set(key, fn(value))
	}
}

// flip turns one bit of the byte at i, counted from the end if negative.
func flip(i int) func([]byte) []byte {
	return func(b []byte) []byte {
		if i < 0 {
			i += len(b)
		}
		b[i] ^= 0x10
		return b
	}
}

func remove(key []byte) func(txn) error {
	return func(txn txn) error { return txn.Delete(key) }
}

// put writes a record with a proper checksum.
func put(key, record []byte) func(txn) error {
	sealRecord(key, record)
	return func(txn txn) error { return txn.Set(key, record) }
}

func TestDamagedRecordStopsOneReplica(t *testing.T) {
	log := func(slot uint32) []byte { return appendLogKey(nil, 1, slot) }
	key := func(k kind) []byte { return appendKey(nil, 1, k) }
	p := prefix{incarnation: testIncarnation, replica: 1, batch: 2, seq: 99}
	foreign := p
	foreign.incarnation[0]++
	headWith := func(p prefix, h head) []byte { return h.append(p.append(nil)) }
	good := head{start: 4, startTerm: 1, last: 11, metaSeq: 3, snapshotSeq: 2}
	tests := []struct {
		name string
		edit func(txn) error
		want string
	}{
		{"bit in an entry", change(log(1), flip(-3)), "slot 1: checksum"},
		{"bit in a checksum", change(log(0), flip(0)), "slot 0: checksum"},
		{"bit in the snapshot", change(key(kindSnapshot), flip(-1)), "record S: checksum"},
		{"bit in the meta", change(key(kindMeta), flip(-1)), "record M: checksum"},
		{"bit in the replica record", change(key(kindReplica), flip(-1)), "record R: checksum"},
		{"bit in the head", change(key(kindHead), flip(-1)), "record H: checksum"},
		{"record cut short", change(log(1), func(b []byte) []byte { return b[:9] }), "checksum"},
		{"empty record", change(log(1), func([]byte) []byte { return []byte{} }), "no record"},
		{"record missing", remove(log(1)), "entries 8 to 10 are missing"},
		{"replica record missing", remove(key(kindReplica)), "replica record is missing"},
		{"snapshot missing", remove(key(kindSnapshot)), "snapshot is record 0"},
		{"meta missing", remove(key(kindMeta)), "meta is record 0"},
		{
			"record in another slot", func(txn txn) error {
				value, err := txn.Get(log(1))
				if err != nil {
					return err
				}
				return txn.Set(log(9), value)
			}, "slot 9: checksum",
		},
		{
			"unknown format", put(key(kindHead), []byte{0, 0, 0, 0, 9, 40: 0}),
			"format 9 is unknown",
		},
		{"another incarnation", put(key(kindHead), headWith(foreign, good)), "of replica"},
		{
			"commit beyond the end", put(key(kindHead), headWith(p, head{
				hard: hardState{true, 1, 1, 12}, start: 4, startTerm: 1, last: 11,
			})), "commit index 12 is beyond",
		},
		{
			"commit below the start", put(key(kindHead), headWith(p, head{
				hard: hardState{true, 1, 1, 3}, start: 4, startTerm: 1, last: 11,
			})), "commit index 3 is below",
		},
		{
			"log shorter than it says", put(key(kindHead), headWith(p, head{
				start: 4, startTerm: 1, last: 14, metaSeq: 3, snapshotSeq: 2,
			})), "entries 12 to 14 are missing",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := writeVictim(t)
			editLog(t, o, tt.edit)
			s := mustOpen(t, o)
			defer func() { mustClose(t, s) }()

			r, _ := s.Replica(1)
			if !errors.Is(r.Damage, ErrDamaged) || !strings.Contains(r.Damage.Error(), tt.want) {
				t.Fatalf("Damage = %v, want ErrDamaged with %q", r.Damage, tt.want)
			}
			if s.Log(1) != nil {
				t.Error("a damaged replica has a log")
			}
			err := commit(s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(12, 1, 2)}) })
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("Update = %v, want ErrDamaged", err)
			}
			for _, g := range []raftyard.GroupID{0, 2} {
				if r, _ := s.Replica(g); r.Damage != nil || s.Log(g) == nil {
					t.Errorf("group %d: damage %v", g, r.Damage)
				}
			}
			rebuild(t, s, 1)
			mustClose(t, s)
			s = mustOpen(t, o)
			if _, last := s.Log(1).Bounds(); last != 21 {
				t.Errorf("last of the rebuilt log = %d, want 21", last)
			}
		})
	}
}

// rebuild replaces a damaged replica, as the node does.
func rebuild(t *testing.T, s *Store, g raftyard.GroupID) {
	t.Helper()
	mustCommit(t, s, func(b *Batch) { b.Destroy(g, Tombstone{NextReplica: 2}) })
	r := testReplica(g)
	r.ID = 2
	mustCommit(t, s, func(b *Batch) {
		b.Create(r, Update{Snapshot: snapshotAt(20, 4), Reset: true})
		b.Update(g, Update{Entries: entriesOf(21, 1, 4)})
	})
}

func TestDamageFoundByAReaderStopsOneReplica(t *testing.T) {
	o := writeVictim(t)
	s := mustOpen(t, o)
	defer mustClose(t, s)
	l := s.Log(1)
	if err := edit(s.db, change(appendLogKey(nil, 1, 1), flip(-1))); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Entries(5, 12, 1<<40); !errors.Is(err, ErrDamaged) {
		t.Fatalf("Entries = %v, want ErrDamaged", err)
	}
	if _, err := l.LastIndex(); !errors.Is(err, ErrDamaged) {
		t.Errorf("LastIndex = %v, want ErrDamaged", err)
	}
	if r, _ := s.Replica(1); !errors.Is(r.Damage, ErrDamaged) || s.Log(1) != nil {
		t.Errorf("Damage = %v, Log = %v", r.Damage, s.Log(1))
	}
	err := commit(s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(12, 1, 2)}) })
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("Update = %v, want ErrDamaged", err)
	}
	mustCommit(t, s, func(b *Batch) { b.Update(2, Update{Entries: entriesOf(11, 1, 3)}) })
	rebuild(t, s, 1)
	if _, last := s.Log(1).Bounds(); last != 21 {
		t.Errorf("last of the rebuilt log = %d, want 21", last)
	}
}

// rememberLog copies a store that nobody writes to, and returns what gives the store, when it
// is closed, the database of this moment, with the note and identity of later.
func rememberLog(t *testing.T, o Options) (loseNewest func()) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "old")
	if err := copyStore(o.Dir, copied); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		path := filepath.Join(o.Dir, logName)
		err := errors.Join(os.RemoveAll(path), os.Rename(filepath.Join(copied, logName), path))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLostTailDamagesEveryReplicaForGood(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{})
		b.Create(testReplica(2), Update{})
		b.Create(testReplica(3), Update{})
		b.Destroy(3, Tombstone{NextReplica: 5})
	})
	loseNewest := rememberLog(t, o)
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(1, 3, 1)}) })
	mustClose(t, s)

	loseNewest()
	for range 2 { // the second time the note has nothing to say any more
		s = mustOpen(t, o)
		for _, g := range []raftyard.GroupID{1, 2} {
			r, _ := s.Replica(g)
			want := "lost its newest"
			if g == 1 { // the inventory knows that it is one of those that were lost
				want = "was durable"
			}
			if r.Damage == nil || !strings.Contains(r.Damage.Error(), want) {
				t.Errorf("group %d: Damage = %v", g, r.Damage)
			}
		}
		if r, _ := s.Replica(3); r.Damage != nil || r.Tombstone == nil {
			t.Errorf("tombstone = %+v", r)
		}
		mustCommit(t, s, func(b *Batch) { b.MarkPurged(3) })
		mustClose(t, s)
	}
	s = mustOpen(t, o)
	rebuild(t, s, 1)
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.Damage != nil {
		t.Errorf("rebuilt replica: Damage = %v", r.Damage)
	}
	if r, _ := s.Replica(2); r.Damage == nil {
		t.Error("the other replica has recovered by itself")
	}
}

// TestUnreadableNewestRecordIsNotALostTail: the batch is there, so only the one
// replica is damaged.
func TestUnreadableNewestRecordIsNotALostTail(t *testing.T) {
	o := writeVictim(t)
	// Group 2's head is the only record of the newest batch.
	editLog(t, o, change(appendKey(nil, 2, kindHead), flip(-1)))
	s := mustOpen(t, o)
	defer mustClose(t, s)
	for g := range raftyard.GroupID(3) {
		r, _ := s.Replica(g)
		if damaged := r.Damage != nil; damaged != (g == 2) {
			t.Errorf("group %d: Damage = %v", g, r.Damage)
		}
	}
}

// TestLostTailWithAllReplicas loses the batch that made the only replica, and the
// inventory, which would know it. There is nothing to mark as damaged, and a store without
// replicas looks like one at its first start: whoever opened it would make the replica
// again, without what it has vouched for.
func TestLostTailWithAllReplicas(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustClose(t, s)
	loseNewest := rememberLog(t, o)
	s = mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	mustClose(t, s)
	loseNewest()
	if err := os.Remove(filepath.Join(o.Dir, inventoryName)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := Open(o)
		if err == nil {
			mustClose(t, s)
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("Open = %v, want ErrDamaged", err)
		}
	}
}
