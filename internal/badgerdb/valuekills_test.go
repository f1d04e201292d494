package badgerdb

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReplayedValuesHidePointers: after a kill pairs are replayed that are in tables, too. They
// must be one, also when they are merged.
func TestReplayedValuesHidePointers(t *testing.T) {
	var want []string
	o := killed(t, valueOptions(t), func(db *DB) {
		db.room.leave() // so that no file is let go of
		fillJournal(t, db, 100, 12)
		for d := newDeadline(t); len(db.Tables()) < 2; {
			d.wait("tables")
		}
		want = openContent(t, db)
	})
	for _, name := range []string{"after a kill", "merged", "at last"} {
		db := mustOpen(t, o)
		if name == "merged" {
			if err := db.reclaimer.mergeLevels(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		mustClose(t, db)
		if diff := cmp.Diff(want, imageContent(t, o)); diff != "" {
			t.Errorf("the image %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestClosingIsInterrupted kills the process at each step of letting go of the journal, when all
// is in tables.
func TestClosingIsInterrupted(t *testing.T) {
	whole := valueOptions(t)
	db := mustOpen(t, whole)
	fillJournal(t, db, 150, 2) // files with values that count, and without
	for n := range 50 {
		put(t, db, fmt.Sprintf("fill-%03d", n), "short")
	}
	fillJournal(t, db, 20, 1)
	want := openContent(t, db)
	var states []string
	db.journal.removed = func() {
		to := filepath.Join(t.TempDir(), "db")
		if err := os.CopyFS(to, os.DirFS(whole.Dir)); err != nil {
			t.Fatal(err)
		}
		states = append(states, to)
	}
	mustClose(t, db)
	if len(states) < 4 {
		t.Fatalf("%d steps, want more to interrupt", len(states))
	}
	for n, dir := range states {
		o := whole
		o.Dir = dir
		checkContent(t, fmt.Sprintf("after %d steps", n), o, want)
		db := mustOpen(t, o)
		if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
			t.Errorf("opened after %d steps (-want +got):\n%s", n, diff)
		}
		mustClose(t, db)
	}
}

// TestKilledWhileFilesAreKept kills the process after it has given some of the files that are in
// tables the names of such that are kept, and others not yet.
func TestKilledWhileFilesAreKept(t *testing.T) {
	var want []string
	var done []fullJournal
	whole := killed(t, valueOptions(t), func(db *DB) {
		db.room.leave() // so that no file is let go of
		fillJournal(t, db, 900, 12)
		inTables := func() (files []fullJournal) {
			db.journal.mu.Lock()
			defer db.journal.mu.Unlock()
			for _, f := range db.journal.full {
				if !db.journal.inTables(f.log, db.journal.active) {
					break
				}
				files = append(files, f)
			}
			return files
		}
		for d := newDeadline(t); len(done) < maxWaiting; done = inTables() {
			d.wait("files to be in tables")
		}
		want = openContent(t, db)
	})
	for n := 1; n <= len(done); n++ {
		o := copied(t, whole)
		for _, f := range done[:n] {
			from, to := filepath.Join(o.Dir, f.name), filepath.Join(o.Dir, valueName(uint32(f.id)))
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		checkContent(t, fmt.Sprintf("with %d files kept", n), o, want)
		for range 2 { // the second time all is in tables
			db := mustOpen(t, o)
			if diff := cmp.Diff(want, openContent(t, db)); diff != "" {
				t.Errorf("opened with %d files kept (-want +got):\n%s", n, diff)
			}
			mustClose(t, db)
		}
	}
}
