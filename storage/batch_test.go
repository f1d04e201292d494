package storage

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

func TestInvalidChangesWriteNothing(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{Snapshot: snapshotAt(4, 1), Reset: true})
		b.Update(1, Update{Entries: entriesOf(5, 4, 2)})
		b.Create(testReplica(2), Update{})
		b.Destroy(2, Tombstone{NextReplica: 5})
	})
	limits := s.Limits()
	older := testReplica(2)
	older.ID = 4
	odd := entriesOf(9, 2, 2)
	odd[1].Index = new(uint64(12))
	strange := entriesOf(9, 1, 2)
	strange[0].Type = raftpb.EntryType(7).Enum()
	big := make([]byte, limits.MaxBatchBytes)
	tests := []struct {
		name string
		fill func(*Batch)
		want error
	}{
		{"gap", func(b *Batch) { b.Update(1, Update{Entries: entriesOf(10, 1, 2)}) }, ErrInvalid},
		{"not consecutive", func(b *Batch) { b.Update(1, Update{Entries: odd}) }, ErrInvalid},
		{
			"entry zero", func(b *Batch) {
				b.Update(1, Update{Entries: entriesOf(0, 1, 2)})
			}, ErrInvalid,
		},
		{"entry type", func(b *Batch) { b.Update(1, Update{Entries: strange}) }, ErrInvalid},
		{
			"commit beyond", func(b *Batch) {
				b.Update(1, Update{HardState: hardStateOf(2, 1, 9)})
			}, ErrInvalid,
		},
		{
			"snapshot beyond", func(b *Batch) {
				b.Update(1, Update{Snapshot: snapshotAt(9, 2)})
			}, ErrInvalid,
		},
		{
			"snapshot of another term", func(b *Batch) {
				b.Update(1, Update{Snapshot: snapshotAt(6, 1)})
			}, ErrInvalid,
		},
		{
			"empty snapshot", func(b *Batch) {
				b.Update(1, Update{Snapshot: &raftpb.Snapshot{}})
			}, ErrInvalid,
		},
		{"reset to nothing", func(b *Batch) { b.Update(1, Update{Reset: true}) }, ErrInvalid},
		{
			"compact beyond the snapshot", func(b *Batch) {
				b.Update(1, Update{CompactTo: 6})
			}, ErrInvalid,
		},
		{
			"snapshot goes back", func(b *Batch) {
				b.Update(1, Update{Snapshot: snapshotAt(6, 2)})
				b.Update(1, Update{Snapshot: snapshotAt(5, 2)})
			}, ErrInvalid,
		},
		{"nothing to destroy", func(b *Batch) { b.Destroy(9, Tombstone{}) }, ErrNotFound},
		{"no replica", func(b *Batch) { b.Update(9, Update{}) }, ErrNotFound},
		{"destroyed replica", func(b *Batch) { b.Update(2, Update{}) }, ErrNotFound},
		{"exists", func(b *Batch) { b.Create(testReplica(1), Update{}) }, ErrExists},
		{"too old", func(b *Batch) { b.Create(older, Update{}) }, ErrDestroyed},
		{
			"no id", func(b *Batch) {
				b.Create(Replica{Group: 3, Incarnation: testIncarnation}, Update{})
			}, ErrInvalid,
		},
		{
			"no incarnation", func(b *Batch) {
				b.Create(Replica{Group: 3, ID: 1}, Update{})
			}, ErrInvalid,
		},
		{"live replica purged", func(b *Batch) { b.MarkPurged(1) }, ErrInvalid},
		{"unknown replica purged", func(b *Batch) { b.MarkPurged(9) }, ErrInvalid},
		{"live replica forgotten", func(b *Batch) { b.Forget(1) }, ErrInvalid},
		{"unknown replica forgotten", func(b *Batch) { b.Forget(9) }, ErrInvalid},
		{"forgotten before it is purged", func(b *Batch) { b.Forget(2) }, ErrRemains},
		{
			"purged and forgotten at once", func(b *Batch) {
				b.MarkPurged(2)
				b.Forget(2)
			}, ErrInvalid,
		},
		{
			"large batch", func(b *Batch) {
				for b.Bytes() <= limits.MaxBatchBytes {
					b.Update(1, Update{Entries: entriesOf(9, 100, 2)})
				}
			}, ErrTooLarge,
		},
		{
			"large entry", func(b *Batch) {
				e := entriesOf(9, 1, 2)
				e[0].Data = big[:limits.MaxEntryBytes+1]
				b.Update(1, Update{Entries: e})
			}, ErrTooLarge,
		},
		{"large meta", func(b *Batch) { b.Update(1, Update{Meta: big}) }, ErrTooLarge},
		{"large tombstone", func(b *Batch) { b.Destroy(1, Tombstone{Data: big}) }, ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := commit(s, func(b *Batch) {
				b.Create(testReplica(8), Update{}) // must not come to be
				tt.fill(b)
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("Commit = %v, want %v", err, tt.want)
			}
			if _, ok := s.Replica(8); ok {
				t.Error("a part of a refused batch was done")
			}
			if first, last := s.Log(1).Bounds(); first != 5 || last != 8 {
				t.Errorf("Bounds = %d, %d, want 5, 8", first, last)
			}
			if err := s.Err(); err != nil {
				t.Errorf("Err = %v", err)
			}
		})
	}
}

// TestLimitsAreWithinBadgers fills batches to the limit in different ways.
func TestLimitsAreWithinBadgers(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	limits := s.Limits()
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })

	t.Run("entry", func(t *testing.T) {
		e := entriesOf(1, 1, 1)
		e[0].Data = bytes.Repeat([]byte("x"), int(limits.MaxEntryBytes))
		u := Update{Entries: e, HardState: hardStateOf(1, 1, 1), Meta: []byte("m")}
		if n := s.UpdateBytes(u); n > limits.MaxUpdateBytes {
			t.Fatalf("UpdateBytes = %d, the limit is %d", n, limits.MaxUpdateBytes)
		}
		mustCommit(t, s, func(b *Batch) { b.Update(1, u) })
		got, err := s.Log(1).Entries(1, 2, 1)
		if err != nil || !bytes.Equal(got[0].GetData(), e[0].GetData()) {
			t.Errorf("Entries = %d, %v", len(got), err)
		}
	})
	for _, size := range []uint64{1, 40, 300} {
		t.Run(fmt.Sprint("entries of ", size), func(t *testing.T) {
			b := s.NewBatch()
			u := Update{Entries: entriesOf(2, size, 1)}
			for n := s.UpdateBytes(u); b.Bytes()+n <= limits.MaxBatchBytes; {
				b.Update(1, u)
			}
			if b.Len() > limits.MaxUpdates {
				t.Errorf("Len = %d, MaxUpdates is %d", b.Len(), limits.MaxUpdates)
			}
			if err := b.Commit(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("groups", func(t *testing.T) {
		b := s.NewBatch()
		for g := raftyard.GroupID(100); b.Bytes() < limits.MaxBatchBytes-3000; g++ {
			u := Update{Snapshot: snapshotAt(1, 1), Reset: true, Meta: []byte("m")}
			b.Create(testReplica(g), u)
		}
		t.Logf("%d groups", b.Len())
		if err := b.Commit(); err != nil {
			t.Error(err)
		}
	})
}

// TestConcurrentCommitsAndReads: commits of several goroutines do not mix, and a
// reader sees whole batches.
func TestConcurrentCommitsAndReads(t *testing.T) {
	o := testOptions(t.TempDir())
	o.CacheBytes = 4000 // most reads go to Badger
	s := mustOpen(t, o)
	defer func() { mustClose(t, s) }()
	const groups, rounds = 4, 60
	mustCommit(t, s, func(b *Batch) {
		for g := range raftyard.GroupID(groups) {
			b.Create(testReplica(g), Update{})
		}
	})
	var wg sync.WaitGroup
	for g := range raftyard.GroupID(groups) {
		wg.Go(func() {
			b := s.NewBatch()
			for i := range uint64(rounds) {
				b.Reset()
				u := Update{Entries: entriesOf(3*i+1, 3, 1), HardState: hardStateOf(1, 1, 3*i+1)}
				if i%20 == 19 {
					u.Snapshot, u.CompactTo = snapshotAt(3*i, 1), 3*i-9
				}
				b.Update(g, u)
				if err := b.Commit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			l := s.Log(g)
			for range rounds {
				first, last := l.Bounds()
				if first > last {
					continue
				}
				entries, err := l.Entries(first, last+1, 1<<40)
				if errors.Is(err, raft.ErrCompacted) {
					continue
				}
				if err != nil || uint64(len(entries)) != last-first+1 {
					t.Errorf("Entries(%d, %d) = %d, %v", first, last+1, len(entries), err)
					return
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, s)
	s = mustOpen(t, o)
	for g := range raftyard.GroupID(groups) {
		if _, last := s.Log(g).Bounds(); last != 3*rounds {
			t.Errorf("group %d: last = %d, want %d", g, last, 3*rounds)
		}
	}
}

func TestCommitFailureIsForGood(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{Entries: entriesOf(1, 2, 1)})
	})
	s.keeper.stop()
	// Badger refuses all writes from now on.
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	write := func(b *Batch) { b.Update(1, Update{Entries: entriesOf(3, 1, 1)}) }
	first := commit(s, write)
	if !errors.Is(first, ErrFailed) {
		t.Fatalf("Commit = %v, want ErrFailed", first)
	}
	if err := commit(s, write); !errors.Is(err, ErrFailed) || err.Error() != first.Error() {
		t.Errorf("second Commit = %v, want %v", err, first)
	}
	if err := s.Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("Err = %v, want ErrFailed", err)
	}
	if _, last := s.Log(1).Bounds(); last != 2 {
		t.Errorf("last = %d, want 2: what is not durable must not be seen", last)
	}
	if err := errors.Join(s.keeper.keep(), s.Close()); err == nil {
		t.Error("keep after a failure = nil")
	}
}

func TestTombstones(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{Entries: entriesOf(1, 9, 1), Meta: []byte("m")})
	})
	l := s.Log(1)
	mustCommit(t, s, func(b *Batch) {
		b.Destroy(1, Tombstone{NextReplica: 4, Epoch: 7, Data: []byte("who")})
	})
	if _, err := l.Entries(1, 3, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("Entries of a destroyed replica = %v, want ErrNotFound", err)
	}
	if s.Log(1) != nil {
		t.Error("a destroyed replica has a log")
	}
	for range 2 {
		r, _ := s.Replica(1)
		if r.ID != 1 || r.Meta != nil || r.Tombstone == nil || r.Tombstone.NextReplica != 4 ||
			r.Tombstone.Epoch != 7 || string(r.Tombstone.Data) != "who" {
			t.Errorf("replica = %+v, %+v", r, r.Tombstone)
		}
		mustClose(t, s)
		s = mustOpen(t, o)
	}
	mustCommit(t, s, func(b *Batch) { b.MarkPurged(1) })
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); !r.Tombstone.Purged || r.Tombstone.Epoch != 7 {
		t.Errorf("tombstone = %+v", r.Tombstone)
	}
	again := testReplica(1)
	again.ID = 4
	mustCommit(t, s, func(b *Batch) { b.Create(again, Update{}) })
	if first, last := s.Log(1).Bounds(); first != 1 || last != 0 {
		t.Errorf("Bounds of the new replica = %d, %d, want 1, 0", first, last)
	}
}
