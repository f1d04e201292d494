package storage

import (
	"errors"
	"strings"
	"testing"
)

// TestMarkDamaged: a replica that is marked is damaged at once and after a restart, and
// only that one. Destroyed, it leaves nothing behind.
func TestMarkDamaged(t *testing.T) {
	o := writeVictim(t)
	s := mustOpen(t, o)
	log := s.Log(1)
	mustCommit(t, s, func(b *Batch) {
		b.Update(1, Update{Entries: entriesOf(12, 2, 2)}) // gone with the same batch
		b.MarkDamaged(1, "somebody knows better")
	})
	check := func(s *Store) {
		t.Helper()
		r, _ := s.Replica(1)
		if !errors.Is(r.Damage, ErrDamaged) || !strings.Contains(r.Damage.Error(), "knows better") {
			t.Errorf("its damage is %v", r.Damage)
		}
		if s.Log(1) != nil || string(r.Meta) != "m" {
			t.Errorf("it has log %v, and meta %q", s.Log(1), r.Meta)
		}
		if s.Log(2) == nil {
			t.Error("the other one has no log")
		}
		b := s.NewBatch()
		b.Update(1, Update{HardState: hardStateOf(4, 1, 9)})
		if err := b.Commit(); !errors.Is(err, ErrDamaged) {
			t.Errorf("it is updated: %v", err)
		}
	}
	check(s)
	if _, err := log.LastIndex(); !errors.Is(err, ErrDamaged) {
		t.Errorf("its log still answers: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, o)
	check(s)
	mustCommit(t, s, func(b *Batch) { b.Destroy(1, Tombstone{NextReplica: 2}) })
	for s.garbage.size.Load() > 0 {
		if err := s.collect(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Remains(1) {
		t.Error("something of its log is left")
	}
	mustClose(t, s)
}

// TestMarkDamagedNobody: there must be a live replica.
func TestMarkDamagedNobody(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{})
		b.Destroy(1, Tombstone{NextReplica: 2})
	})
	for _, g := range []groupID{1, 2} {
		b := s.NewBatch()
		b.MarkDamaged(g, "why not")
		if err := b.Commit(); !errors.Is(err, ErrNotFound) {
			t.Errorf("group %d: %v, want ErrNotFound", g, err)
		}
	}
}

// TestMarkDamagedOnceFound: damage that a reader has found is not on the disk; it is when
// it is marked.
func TestMarkDamagedOnceFound(t *testing.T) {
	o := writeVictim(t)
	s := mustOpen(t, o)
	s.damage(s.Log(1), errors.Join(ErrDamaged, errors.New("found while reading")))
	mustCommit(t, s, func(b *Batch) { b.MarkDamaged(1, "found while reading") })
	mustClose(t, s)
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.Damage == nil {
		t.Error("after a restart nothing is known of the damage")
	}
}
