package storage

import (
	"errors"
	"testing"
)

// TestForgottenGroupLeavesNoKey destroys a replica with a log and forgets it: there is
// no key of the group any more, also after a restart, and it can be created again
// under an id that was there before.
func TestForgottenGroupLeavesNoKey(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{Entries: entriesOf(1, 50, 1)})
		b.Create(testReplica(2), Update{})
	})
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(51, 50, 1)}) })
	mustCommit(t, s, func(b *Batch) {
		b.Destroy(1, Tombstone{NextReplica: 5})
		b.MarkPurged(1)
	})
	forget := func() error {
		b := s.NewBatch()
		b.Forget(1)
		return b.Commit()
	}
	err, remains := forget(), s.Remains(1)
	if err != nil && !errors.Is(err, ErrRemains) || remains != (err != nil) {
		t.Fatalf("Forget = %v, Remains = %t", err, remains)
	}
	collectAll(t, s)
	if s.Remains(1) || s.Remains(2) || s.Remains(3) {
		t.Error("something remains of what is deleted, is live, or never was")
	}
	if err := forget(); err != nil {
		t.Fatalf("Forget when the log is deleted = %v", err)
	}
	for range 2 {
		if r, ok := s.Replica(1); ok {
			t.Errorf("Replica(1) = %+v, want none", r)
		}
		if n := keysOf(t, s, 1); n != 0 {
			t.Errorf("%d keys of the group are left", n)
		}
		mustClose(t, s)
		s = mustOpen(t, o)
	}
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{Entries: entriesOf(1, 3, 7)})
	})
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if last, err := s.Log(1).LastIndex(); err != nil || last != 3 {
		t.Errorf("the new log ends at %d, %v; want 3", last, err)
	}
}

func keysOf(t *testing.T, s *Store, g groupID) (n int) {
	t.Helper()
	view := s.db.Snapshot()
	defer view.Discard()
	err := view.Scan(func(key, _ []byte, _ uint64) error {
		if k, ok := parseGroupKey(key); ok && k.group == g {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
