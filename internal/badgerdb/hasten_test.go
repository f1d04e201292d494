package badgerdb

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHastenedTableHasOnlyWhatIsDurable cuts the power before the sync of a commit, whose batch
// is the one at which Badger is told to make a table because many files of the journal wait for
// it. What is not durable must not be in the table: a pointer there would stand for nothing, and
// hide what was acknowledged before.
func TestHastenedTableHasOnlyWhatIsDurable(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	value := strings.Repeat("v", 10<<10)
	for n := 0; db.journal.waiting(db.wal.active()) < maxWaiting; n++ {
		put(t, db, fmt.Sprintf("key-%02d", n%20), fmt.Sprint(n, value))
		if err := db.settle(); err != nil {
			t.Fatal(err)
		}
	}
	want := openContent(t, db)
	log, end := db.wal.active(), db.journal.end
	name, version := filepath.Base(db.journal.path()), db.NextTs()
	goOn := make(chan struct{})
	sync := db.journal.sync
	db.journal.sync = func(f *os.File) error {
		<-goOn
		return sync(f)
	}
	done := make(chan error, 1)
	go func() {
		done <- db.Commit(func(txn *Txn) error { return txn.Set([]byte("key-07"), []byte(value)) })
	}()
	for d := newDeadline(t); db.committed.Load() < version; {
		d.wait("the memtable to have it")
	}
	for d := newDeadline(t); !isGone(filepath.Join(o.Dir, walName(log))); {
		d.wait("the memtable to become a table")
	}
	cut := o
	cut.Dir = filepath.Join(t.TempDir(), "cut")
	copyKilled(t, o.Dir, cut.Dir)
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	mustClose(t, db)
	edit(t, filepath.Join(cut.Dir, name), func(b []byte) []byte { clear(b[end:]); return b })
	checkContent(t, "after the cut", cut, want)
	db = mustOpen(t, cut)
	defer mustClose(t, db)
	if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
		t.Errorf("opened after the cut (-want +got):\n%s", diff)
	}
}
