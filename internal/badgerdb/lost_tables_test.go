package badgerdb

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4/table"
)

// TestLostTableIsFound has a table of a compaction not be written, as when there is no file
// descriptor left: a file of its name is there already. Badger says nothing and goes on
// without what was in it. The database must fail, and refuse to be opened.
func TestLostTableIsFound(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	db.lost.mu.Lock()
	db.lost.patience = 10 * time.Millisecond
	db.lost.mu.Unlock()
	value := make([]byte, 100<<10)
	for i := range 100 {
		_, _ = rand.Read(value) // it never fails
		put(t, db, fmt.Sprintf("key-%d", i%60), string(value))
	}
	for d := newDeadline(t); db.room.isFlushing(); {
		d.wait("the flushes")
	}
	highest := slices.Max(db.tableIDs())
	path := filepath.Join(o.Dir, table.IDToFilename(highest+2))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	for d := newDeadline(t); db.broken.err() == nil; {
		d.wait("the loss to be found")
	}
	t.Log(db.broken.err())
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(o); !errors.Is(err, ErrDamaged) {
		t.Errorf("Open of a database that has lost a table = %v, want ErrDamaged", err)
	}
}

func TestMissingNumberMustStayMissing(t *testing.T) {
	ids := []uint64{3, 5}
	var failed error
	l := &lostTables{
		path: filepath.Join(t.TempDir(), lostName), log: slog.New(slog.DiscardHandler),
		failed: func(err error) { failed = err },
	}
	l.start(func() []uint64 { return ids })
	now := time.Unix(1000, 0)
	look := func(after time.Duration, flushing bool) {
		now = now.Add(after)
		l.check(now, flushing)
	}
	look(time.Hour, false)
	ids = []uint64{3, 5, 7} // 6 is being flushed
	l.wrote(1)
	look(time.Hour, true)
	look(time.Hour, true)
	if failed != nil {
		t.Fatalf("failed in a flush: %v", failed)
	}
	ids = []uint64{3, 5, 6, 7}
	look(time.Second, false)
	look(time.Hour, false)
	if failed != nil || l.base != 7 {
		t.Fatalf("failed though all are there: %v; base is %d, want 7", failed, l.base)
	}
	l.writing(1)
	ids = []uint64{7, 9} // 8 is not there, and 3, 5, 6 have become 9
	l.wrote(1)
	look(time.Second, false)
	look(lostPatience-1, false)
	if failed != nil {
		t.Fatalf("failed too early: %v", failed)
	}
	look(time.Second, false)
	if failed == nil {
		t.Fatal("a table that was lost is not found")
	}
	if err := checkLost(filepath.Dir(l.path)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a database that has lost a table: %v, want ErrDamaged", err)
	}
}
