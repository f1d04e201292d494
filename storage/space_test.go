package storage

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// countKeys returns how many log records there are in Badger, by group.
func countKeys(t *testing.T, s *Store) map[raftyard.GroupID]int {
	t.Helper()
	n := make(map[raftyard.GroupID]int)
	at := s.db.Snapshot()
	defer at.Discard()
	err := at.Scan(func(key, _ []byte, _ uint64) error {
		if k, ok := parseGroupKey(key); ok && k.kind == kindLog {
			n[k.group]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fillAndCut appends n records to group 1 and cuts all but the last keep.
func fillAndCut(t *testing.T, s *Store, n, keep uint64) {
	t.Helper()
	_, last := s.Log(1).Bounds()
	for i := last + 1; i <= last+n; i++ {
		mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(i, 1, 1)}) })
	}
	mustCommit(t, s, func(b *Batch) {
		b.Update(1, Update{Snapshot: snapshotAt(last+n, 1), CompactTo: last + n - keep})
	})
}

// TestSteadyStateDeletesNothing: a log that grows and is cut again and again
// overwrites its slots, which become neither more nor fewer.
func TestSteadyStateDeletesNothing(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	defer func() { mustClose(t, s) }()
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	for round := range 5 {
		fillAndCut(t, s, 150, 20)
		if got := countKeys(t, s)[1]; got > 171 {
			t.Errorf("round %d: %d slots, want at most 171", round, got)
		}
		if round == 2 {
			mustClose(t, s)
			s = mustOpen(t, o) // recovery finds the free slots again
		}
	}
	if n := s.Stats().Deletes; n != 0 {
		t.Errorf("%d keys were deleted", n)
	}
}

func TestSlotsOfABurstAreGivenBack(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	fillAndCut(t, s, 600, 0)
	for range 40 {
		fillAndCut(t, s, 10, 0)
	}
	if got := countKeys(t, s)[1]; got > 2*minSlots {
		t.Errorf("%d slots are left of 600, want at most %d", got, 2*minSlots)
	}
}

func TestDestroyedLogsAreDeletedInTheBackground(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	fillAndCut(t, s, 100, 100)
	s.keeper.stop()
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	if got := s.Stats().Garbage; got != 100 {
		t.Errorf("garbage = %d, want 100", got)
	}
	// A kill before they are deleted: the next start finds them.
	to := t.TempDir() + "/copy"
	if err := copyStore(o.Dir, to); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	o.Dir = to
	s = mustOpen(t, o)
	s.keeper.stop()

	// The slots of the one before must not be written by the one after, which
	// would be deleted with them.
	again := testReplica(1)
	again.ID = 2
	mustCommit(t, s, func(b *Batch) {
		b.Create(again, Update{Entries: entriesOf(1, 3, 5)})
	})
	for s.Stats().Garbage > 0 {
		if err := s.collect(); err != nil {
			t.Fatal(err)
		}
	}
	if got := countKeys(t, s)[1]; got != 1 {
		t.Errorf("%d records are left, want 1", got)
	}
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.Damage != nil {
		t.Fatal(r.Damage)
	}
	if _, last := s.Log(1).Bounds(); last != 3 {
		t.Errorf("last = %d, want 3", last)
	}
}

func TestCacheIsBoundedForAllGroupsTogether(t *testing.T) {
	o := testOptions(t.TempDir())
	o.CacheBytes = 40 * (entryCharge + 100)
	s := mustOpen(t, o)
	defer mustClose(t, s)
	const groups = 10
	mustCommit(t, s, func(b *Batch) {
		for g := range raftyard.GroupID(groups) {
			b.Create(testReplica(g), Update{})
		}
	})
	for i := uint64(1); i <= 30; i++ {
		mustCommit(t, s, func(b *Batch) {
			for g := range raftyard.GroupID(groups) {
				e := &raftpb.Entry{Index: new(i), Term: new(uint64(1)), Data: make([]byte, 100)}
				b.Update(g, Update{Entries: []*raftpb.Entry{e}})
			}
		})
		if used := s.Stats().CacheBytes; used > o.CacheBytes {
			t.Fatalf("cache holds %d bytes, the budget is %d", used, o.CacheBytes)
		}
	}
	before := s.Stats()
	for g := range raftyard.GroupID(groups) {
		// The newest four of each group are in memory, the fifth is not.
		if _, err := s.Log(g).Entries(27, 31, 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	after := s.Stats()
	hits, read := after.CacheHits-before.CacheHits, after.RecordsRead-before.RecordsRead
	if hits != groups || read != 0 {
		t.Errorf("%d hits, %d records read, want %d and 0", hits, read, groups)
	}
	if _, err := s.Log(3).Entries(26, 31, 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.CacheMisses != 1 || got.RecordsRead != 1 {
		t.Errorf("%d misses, %d records read, want 1 and 1", got.CacheMisses, got.RecordsRead)
	}
	// What is compacted or destroyed leaves the cache.
	mustCommit(t, s, func(b *Batch) {
		for g := range raftyard.GroupID(groups) {
			if g%2 == 0 {
				b.Destroy(g, Tombstone{})
			} else {
				b.Update(g, Update{Snapshot: snapshotAt(30, 1), CompactTo: 30})
			}
		}
	})
	if used := s.Stats().CacheBytes; used != 0 {
		t.Errorf("cache holds %d bytes of nothing", used)
	}
}

// TestReadsFromBadgerKeepToTheLimit: a read of a long log takes no more than what
// it was asked for.
func TestReadsFromBadgerKeepToTheLimit(t *testing.T) {
	o := testOptions(t.TempDir())
	o.CacheBytes = 1
	s := mustOpen(t, o)
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	fillAndCut(t, s, 200, 200)
	entries, err := s.Log(1).Entries(5, 201, 100)
	if err != nil || len(entries) == 0 || len(entries) > 10 {
		t.Errorf("Entries = %d, %v", len(entries), err)
	}
	if n := s.Stats().RecordsRead; n > 10 {
		t.Errorf("%d records were read for %d entries", n, len(entries))
	}
}

// BenchmarkCommit measures one commit that spans many groups. Its cost per entry
// must fall as more groups share the sync.
func BenchmarkCommit(b *testing.B) {
	for _, groups := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			o := testOptions(b.TempDir())
			o.MemTableSize, o.CacheBytes = 0, 0
			s := mustOpen(b, o)
			defer mustClose(b, s)
			mustCommit(b, s, func(batch *Batch) {
				for g := range raftyard.GroupID(groups) {
					batch.Create(testReplica(g), Update{})
				}
			})
			data := make([]byte, 128)
			batch := s.NewBatch()
			b.ReportAllocs()
			index := uint64(0)
			for b.Loop() {
				index++
				batch.Reset()
				for g := range raftyard.GroupID(groups) {
					e := &raftpb.Entry{Index: new(index), Term: new(uint64(1)), Data: data}
					u := Update{
						Entries:   []*raftpb.Entry{e},
						HardState: hardStateOf(1, 1, index-1),
					}
					if index%200 == 0 {
						u.Snapshot, u.CompactTo = snapshotAt(index, 1), index-100
					}
					batch.Update(g, u)
				}
				if err := batch.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			perEntry := float64(b.Elapsed().Nanoseconds()) / float64(b.N*groups)
			b.ReportMetric(perEntry, "ns/entry")
		})
	}
}

// BenchmarkOpen measures recovery: one scan over all groups.
func BenchmarkOpen(b *testing.B) {
	const groups = 10_000
	o := testOptions(b.TempDir())
	o.MemTableSize = 0
	s := mustOpen(b, o)
	for g := raftyard.GroupID(0); g < groups; {
		mustCommit(b, s, func(batch *Batch) {
			for range 1000 {
				batch.Create(testReplica(g), Update{
					Snapshot: snapshotAt(1, 1), Reset: true, Entries: entriesOf(2, 3, 1),
					HardState: hardStateOf(1, 1, 2), Meta: make([]byte, 100),
				})
				g++
			}
		})
	}
	mustClose(b, s)
	for b.Loop() {
		s := mustOpen(b, o)
		if n := len(s.Replicas()); n != groups {
			b.Fatal(n)
		}
		mustClose(b, s)
	}
}

// TestBytesOfAPartOfTheLog: what is behind an index, and what goes into a number of bytes.
func TestBytesOfAPartOfTheLog(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	for i := uint64(1); i <= 20; i++ {
		mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(i, 1, 1)}) })
	}
	mustCommit(t, s, func(b *Batch) {
		b.Update(1, Update{Snapshot: snapshotAt(8, 1), CompactTo: 4})
	})
	l := s.Log(1)
	each := l.BytesAfter(19)
	if each == 0 || l.BytesAfter(10) != 10*each || l.BytesAfter(4) != l.Bytes() ||
		l.BytesAfter(20) != 0 || l.BytesAfter(0) != l.Bytes() {
		t.Errorf("the last entry takes %d bytes, the last ten %d, all %d",
			each, l.BytesAfter(10), l.Bytes())
	}
	for _, c := range []struct {
		index uint64
		bytes int64
		want  uint64
	}{
		{20, 0, 20},
		{20, each - 1, 20},
		{20, each, 19},
		{20, 5*each + 1, 15},
		{12, 3 * each, 9},
		{20, 100 * each, 4},
		{12, 100 * each, 4},
		{2, each, 2},
	} {
		if got := l.Within(c.index, c.bytes); got != c.want {
			t.Errorf("up to %d within %d bytes: behind %d, want %d", c.index, c.bytes, got, c.want)
		}
	}
}
