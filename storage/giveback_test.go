package storage

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// grow appends n entries of so many bytes to a group, one record each.
func grow(t *testing.T, s *Store, g raftyard.GroupID, n, size int) {
	t.Helper()
	_, last := s.Log(g).Bounds()
	for i := range uint64(n) {
		e := &raftpb.Entry{
			Index: new(last + 1 + i), Term: new(uint64(1)), Data: bytes.Repeat([]byte{7}, size),
		}
		mustCommit(t, s, func(b *Batch) { b.Update(g, Update{Entries: []*raftpb.Entry{e}}) })
	}
}

// cut drops all but the last keep entries of a group.
func cut(t *testing.T, s *Store, g raftyard.GroupID, keep uint64) {
	t.Helper()
	_, last := s.Log(g).Bounds()
	mustCommit(t, s, func(b *Batch) {
		b.Update(g, Update{Snapshot: snapshotAt(last, 1), CompactTo: last - keep})
	})
}

// giveBackAll does what the keeper does over two intervals.
func giveBackAll(t *testing.T, s *Store, limits spaceLimits) {
	t.Helper()
	for range 3 {
		if err := s.giveBack(limits); err != nil {
			t.Fatal(err)
		}
	}
	for s.Stats().Garbage > 0 {
		if err := s.collect(); err != nil {
			t.Fatal(err)
		}
	}
}

// recount demands that what is counted of the slots is what is there.
func recount(t *testing.T, s *Store) {
	t.Helper()
	keys := countKeys(t, s)
	for g, r := range s.replicas {
		var live, dead int64
		var held int
		if r.log == nil {
			continue
		}
		for _, ref := range r.log.refs {
			live += ref.charge(r.log.parts[ref.seq])
			held += 1 + len(r.log.parts[ref.seq])
		}
		for _, f := range r.slots.free {
			dead += int64(f.bytes)
			held++
		}
		if r.slots.live != live || r.slots.dead != dead || int(r.slots.held) != held {
			t.Errorf("group %d: counted live %d, dead %d, held %d, there are %d, %d, %d", g,
				r.slots.live, r.slots.dead, r.slots.held, live, dead, held)
		}
		if want := held + int(r.slots.doomed); keys[g] != want {
			t.Errorf("group %d: %d keys, want %d", g, keys[g], want)
		}
	}
}

func deadBytes(s *Store) (n int64) {
	for _, r := range s.replicas {
		n += r.slots.dead
	}
	return n
}

// TestBytesOfABurstAreGivenBack: after a burst of large values the slots hold no
// more than the limits of a group and of the store, also after a restart.
func TestBytesOfABurstAreGivenBack(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	defer func() { mustClose(t, s) }()
	s.keeper.stop()
	const groups, limit = 3, 100_000
	mustCommit(t, s, func(b *Batch) {
		for g := range raftyard.GroupID(groups) {
			b.Create(testReplica(g), Update{})
		}
	})
	for round := range 2 {
		limits := spaceLimits{group: limit, store: 1 << 30}
		for g := range raftyard.GroupID(groups) {
			grow(t, s, g, 20, 30_000)
			grow(t, s, g, 50, 100)
			cut(t, s, g, 0)
		}
		if round == 1 {
			mustClose(t, s)
			s = mustOpen(t, o)
			s.keeper.stop()
		}
		recount(t, s)
		if got := deadBytes(s); got < groups*20*30_000 {
			t.Fatalf("%d bytes are dead", got)
		}
		giveBackAll(t, s, limits)
		recount(t, s)
		if got := deadBytes(s); got > groups*limit {
			t.Errorf("round %d: %d bytes are dead, want at most %d", round, got, groups*limit)
		}
		// The large ones went, the small ones are kept: 50 of each group, and 3.
		if got := countKeys(t, s)[1]; got < 50 || got > 53 {
			t.Errorf("round %d: %d slots are left", round, got)
		}
		limits.store = groups * 9000
		giveBackAll(t, s, limits)
		if got := deadBytes(s); got > limits.store {
			t.Errorf("round %d: %d bytes are dead, want at most %d", round, got, limits.store)
		}
	}
}

// TestSteadyStateOfLargeValuesDeletesNothing: the bytes that come and go with
// every cut are kept, however many they are.
func TestSteadyStateOfLargeValuesDeletesNothing(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	s.keeper.stop()
	limits := spaceLimits{group: 1000, store: 1 << 30}
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	for range 6 {
		grow(t, s, 1, 12, 20_000)
		cut(t, s, 1, 3)
		if err := s.giveBack(limits); err != nil {
			t.Fatal(err)
		}
	}
	recount(t, s)
	if st := s.Stats(); st.Deletes != 0 || st.Garbage != 0 {
		t.Errorf("%d keys were deleted, %d will be", st.Deletes, st.Garbage)
	}
}

// TestSlotNumbersAreUsedAgain: bursts that are given back, again and again, must
// not use up the 32 bits of slot numbers.
func TestSlotNumbersAreUsedAgain(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	s.keeper.stop()
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{})
		b.Create(testReplica(2), Update{})
	})
	for range 5 {
		grow(t, s, 1, 10, 1000)
		grow(t, s, 2, 10, 1000)
		cut(t, s, 1, 0)
		cut(t, s, 2, 2)
		giveBackAll(t, s, spaceLimits{group: 1, store: 1 << 20})
		recount(t, s)
	}
	if got := s.replicas[1].slots; got.next != 0 || got.held != 0 {
		t.Errorf("of the empty log: %+v", got)
	}
	if got := s.replicas[2].slots; got.next > 12 {
		t.Errorf("next slot is %d, want at most 12", got.next)
	}
}

// TestFillIsABatchLikeAnyOther: what the reclaimer writes keeps the numbers of
// batches and versions in step.
func TestFillIsABatchLikeAnyOther(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	before := s.Stats().Sequence
	for _, size := range []int{10_000, 70_000, 0} {
		if err := s.fill(size); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if got := s.Stats().Sequence; got != before+3 {
		t.Errorf("came back with batch %d, want %d", got, before+3)
	}
	if r, _ := s.Replica(1); r.Damage != nil {
		t.Error(r.Damage)
	}
}
