package badgerdb

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// lastID is a number that no table of these tests gets by itself.
const lastID = 999_999

// manifestOf returns which tables the MANIFEST of a database names.
func manifestOf(t *testing.T, o Options) tableSet {
	t.Helper()
	m, err := readManifest(files{dir: o.Dir}, o.withDefaults().badger())
	if err != nil {
		t.Fatal(err)
	}
	return m.Tables
}

// appendChange has the MANIFEST name other tables, as Badger does before it syncs it.
func appendChange(t *testing.T, o Options, change func(tableSet) tableSet) {
	t.Helper()
	named := manifestOf(t, o)
	tables := change(named)
	if err := takeBack(o.Dir, named, tables, o.withDefaults().Logger); err != nil {
		t.Fatal(err)
	}
}

// compacted is what a compaction makes of all tables of level 0.
func compacted(named tableSet) tableSet {
	to := tableSet{lastID: {Level: 6}, lastID + 1: {Level: 6}}
	for id, tm := range named {
		if tm.Level != 0 {
			to[id] = tm
		}
	}
	return to
}

// flushed is what a flush adds.
func flushed(id uint64) func(tableSet) tableSet {
	return func(named tableSet) tableSet {
		to := maps.Clone(named)
		to[id] = badger.TableManifest{Level: 0}
		return to
	}
}

// copyTable makes a table of another one.
func copyTable(t *testing.T, o Options, from, to uint64) {
	t.Helper()
	b, err := os.ReadFile(table.NewFilename(from, o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table.NewFilename(to, o.Dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestUnsyncedManifest: a change of the MANIFEST whose sync has failed names tables that
// Badger has removed at once. Nothing is lost then, unless it was another that removed them.
func TestUnsyncedManifest(t *testing.T) {
	value := strings.Repeat("v", 10_000)
	both := func(db *DB) { // tables in level 0, and something in the log that goes on there
		db.journal.limit /= 4 // or else it would have all of the flushed table
		for n := 0; len(db.Tables()) < 4; n++ {
			put(t, db, fmt.Sprintf("key-%04d", n), value)
		}
		waitForCut(t, db)
		put(t, db, "newer", "x")
	}
	newest := func(t *testing.T, o Options) uint64 {
		var newest uint64
		for id := range manifestOf(t, o) {
			newest = max(newest, id)
		}
		return newest
	}
	remove := func(t *testing.T, o Options, id uint64) {
		if err := os.Remove(table.NewFilename(id, o.Dir)); err != nil {
			t.Fatal(err)
		}
	}
	removeLogs := func(t *testing.T, o Options) {
		for _, path := range append(glob(t, o, "*.mem"), glob(t, o, "*.jnl")...) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		do   func(t *testing.T, o Options)
		want error
	}{
		{"compaction", func(t *testing.T, o Options) { appendChange(t, o, compacted) }, nil},
		{"compaction, a table not removed yet", func(t *testing.T, o Options) {
			id := newest(t, o)
			appendChange(t, o, compacted)
			copyTable(t, o, id, lastID)
		}, nil},
		{"compaction, a table about to be removed", func(t *testing.T, o Options) {
			appendChange(t, o, compacted)
			// Badger leaves an empty file for a moment.
			if err := os.WriteFile(table.NewFilename(lastID, o.Dir), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"compaction, and a flush that was under way", func(t *testing.T, o Options) {
			id := newest(t, o)
			appendChange(t, o, compacted)
			appendChange(t, o, flushed(lastID+2))
			copyTable(t, o, id, lastID+2)
		}, nil},
		{"flush", func(t *testing.T, o Options) { appendChange(t, o, flushed(lastID)) }, nil},
		{"flush, then compaction", func(t *testing.T, o Options) {
			appendChange(t, o, flushed(lastID+5))
			appendChange(t, o, func(named tableSet) tableSet {
				to := compacted(named)
				to[lastID+5] = badger.TableManifest{}
				return to
			})
		}, nil},
		{"a table of a flush is lost", func(t *testing.T, o Options) {
			remove(t, o, newest(t, o))
		}, ErrDamaged},
		{"the log of a flush is lost", func(t *testing.T, o Options) {
			appendChange(t, o, flushed(lastID))
			removeLogs(t, o)
		}, ErrDamaged},
		{"what a compaction was made of is gone", func(t *testing.T, o Options) {
			id := newest(t, o)
			appendChange(t, o, compacted)
			remove(t, o, id)
		}, ErrDamaged},
		{"another flush has followed", func(t *testing.T, o Options) {
			id := newest(t, o)
			appendChange(t, o, flushed(lastID))
			appendChange(t, o, flushed(lastID+1))
			copyTable(t, o, id, lastID+1)
		}, ErrDamaged},
	}
	whole := killed(t, testOptions(t), both)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := copied(t, whole)
			tt.do(t, o)
			checkImage(t, o, tt.want == nil)
			db, err := Open(o)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Open = %v, want %v", err, tt.want)
			}
			if err != nil {
				return
			}
			if got := get(t, db, "key-0000") + get(t, db, "newer"); got != value+"x" {
				t.Error("what was committed is not there")
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = mustOpen(t, o) // what Badger has made of it is sound
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// checkImage compares what is said of a database that is not open with what Open does.
func checkImage(t *testing.T, o Options, whole bool) {
	t.Helper()
	m, found, err := OpenImage(o.Dir, o.Profile)
	if err != nil {
		t.Fatal(err)
	}
	if (m != nil) != whole {
		t.Errorf("OpenImage: %t, want %t: %v", m != nil, whole, found)
	}
	if m == nil {
		return
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFailedFlushStops: who waits for a goroutine of Badger's that goes no further after a
// failure hears of the failure.
func TestFailedFlushStops(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	put(t, db, "k", "v")
	db.broken.note(errors.New("sync failed"))
	db.broken.stop()
	never := make(chan struct{})
	err := db.broken.do(func() error { <-never; return nil })
	if !errors.Is(err, ErrFailed) {
		t.Errorf("do = %v, want ErrFailed", err)
	}
	close(never)
	for range 100 { // also if what was waited for has ended
		done := make(chan error, 1)
		done <- nil
		if err = db.broken.wait(done); !errors.Is(err, ErrFailed) {
			t.Fatalf("wait = %v, want ErrFailed", err)
		}
	}
	err = db.Commit(func(txn *Txn) error { return txn.Set([]byte("k"), nil) })
	if !errors.Is(err, ErrFailed) {
		t.Errorf("Commit = %v, want ErrFailed", err)
	}
	db.reclaimer.stop()
	if err := db.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("Close = %v, want ErrFailed", err)
	}
	if err := db.DB.Close(); err != nil {
		t.Error(err)
	}
}
