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

// TestCloseWaitsForNoSpace: a commit waits for space that does not come, and the owner of
// the store closes it without a word.
func TestCloseWaitsForNoSpace(t *testing.T) {
	h := &heldDB{
		hold: make(chan struct{}), waiting: make(chan struct{}), over: make(chan struct{}),
	}
	on := Real()
	on.OpenDB = func(o badgerdb.Options) (kv.DB, error) {
		db, err := kv.OpenBadger(o)
		h.DB = db
		return h, err
	}
	s, err := OpenOn(testOptions(t.TempDir()), on)
	if err != nil {
		t.Fatal(err)
	}
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
