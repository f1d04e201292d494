package storage

import (
	"errors"
	"sync"
	"testing"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
)

// heldDB has commits wait for space, once hold is closed, until waiting is over.
type heldDB struct {
	kv.DB

	hold    chan struct{}
	waiting chan struct{} // closed when a commit waits
	over    chan struct{}
	once    sync.Once
}

func (h *heldDB) Commit(fn func(kv.Writer) error) error {
	select {
	case <-h.hold:
		close(h.waiting)
		<-h.over
		return badgerdb.ErrNoSpace
	default:
		return h.DB.Commit(fn)
	}
}

func (h *heldDB) Held() bool   { return true }
func (h *heldDB) StopWaiting() { h.once.Do(func() { close(h.over) }) }

// openHeld opens a store whose commits wait once h.hold is closed.
func openHeld(t *testing.T, o Options) (*Store, *heldDB) {
	t.Helper()
	h := &heldDB{
		hold: make(chan struct{}), waiting: make(chan struct{}), over: make(chan struct{}),
	}
	on := Real()
	on.OpenDB = func(o badgerdb.Options) (kv.DB, error) {
		db, err := kv.OpenBadger(o)
		h.DB = db
		return h, err
	}
	s, err := OpenOn(o, on)
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

// TestForgetThatWasNotWritten: a group is to be forgotten when there is no space, and the
// store is closed. Its tombstone is there, and the inventory knows of it as before.
func TestForgetThatWasNotWritten(t *testing.T) {
	o := testOptions(t.TempDir())
	s, h := openHeld(t, o)
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	mustCommit(t, s, func(b *Batch) {
		b.Destroy(1, Tombstone{NextReplica: 5})
		b.MarkPurged(1)
	})
	collectAll(t, s)
	if err := s.noteNumbers(); err != nil {
		t.Fatal(err)
	}
	want := s.inventory.entries[1]
	close(h.hold)
	ended := make(chan error, 1)
	go func() { ended <- commit(s, func(b *Batch) { b.Forget(1) }) }()
	<-h.waiting
	mustClose(t, s)
	if err := <-ended; !errors.Is(err, ErrNoSpace) {
		t.Fatalf("the commit ends with %v, want ErrNoSpace", err)
	}
	// A start would add what is missing, unless the log store has lost it as well.
	got, ok := s.inventory.entries[1]
	if !ok || want.dead == nil || got.dead == nil ||
		got.dead.NextReplica != want.dead.NextReplica {
		t.Errorf("the inventory has %+v of the group, %t; want %+v", got, ok, want)
	}
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, ok := s.Replica(1); !ok || r.Tombstone == nil || r.Damage != nil {
		t.Errorf("Replica(1) = %+v, %t; want its tombstone", r, ok)
	}
}

// TestCloseWaitsForNoSpace: a commit waits for space that does not come, and the owner of
// the store closes it without a word.
func TestCloseWaitsForNoSpace(t *testing.T) {
	s, h := openHeld(t, testOptions(t.TempDir()))
	mustCommit(t, s, func(b *Batch) { b.Create(testReplica(1), Update{}) })
	close(h.hold)
	ended := make(chan error, 1)
	go func() {
		ended <- commit(s, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(1, 1, 1)}) })
	}()
	<-h.waiting
	mustClose(t, s)
	if err := <-ended; !errors.Is(err, ErrNoSpace) {
		t.Errorf("the commit ends with %v, want ErrNoSpace", err)
	}
}
