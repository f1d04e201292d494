package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNewLogThatIsAHole: a power cut, or a kill in the wrong moment, leaves a
// write-ahead log that was just begun with its name and size, but without a page.
func TestNewLogThatIsAHole(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	put(t, db, "k", "v")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(o.Dir, "09999.mem"))
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(f.Truncate(2*o.MemTableSize), f.Close()); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	if got := get(t, db, "k"); got != "v" {
		t.Errorf("k = %s, want v", got)
	}
	if err = db.Close(); err != nil {
		t.Error(err)
	}
}

// waitForCut waits until the journal has let go of all that is in tables.
func waitForCut(t *testing.T, db *DB) {
	t.Helper()
	if err := db.settle(); err != nil {
		t.Fatal(err)
	}
	for d := newDeadline(t); ; d.wait("the journal to be cut") {
		db.journal.mu.Lock()
		full := slices.Clone(db.journal.full)
		db.journal.mu.Unlock()
		behind := slices.ContainsFunc(full, func(f fullJournal) bool {
			return isGone(filepath.Join(db.journal.dir, walName(f.log)))
		})
		if !behind && !db.room.isFlushing() {
			return
		}
	}
}

// TestManifestCutWithActiveLog: the MANIFEST loses its last change, which named a
// flushed table, while the active log holds newer transactions. Badger would
// delete the table.
func TestManifestCutWithActiveLog(t *testing.T) {
	value := strings.Repeat("v", 10_000)
	o := killed(t, testOptions(t), func(db *DB) {
		before := len(db.Tables())
		db.journal.limit /= 4 // or else it would have all of the flushed table
		for n := 0; len(db.Tables()) == before; n++ {
			put(t, db, fmt.Sprintf("key-%04d", n), value)
		}
		waitForCut(t, db)
		put(t, db, "newer", "x")
	})
	edit(t, filepath.Join(o.Dir, "MANIFEST"), func(b []byte) []byte { return b[:len(b)-3] })
	db, err := Open(o)
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("Open = %v, want ErrDamaged: acknowledged keys would be gone", err)
	}
	if err == nil {
		_ = db.Close() // the test has failed already
	}
}

// TestFirstCommitLost: a power cut before the sync of the first commit in a file of the journal,
// which Badger has in its log already. Nobody was told of it, and the rest is in tables.
func TestFirstCommitLost(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	for _, key := range []string{"a", "b", "c"} {
		put(t, db, key, "x")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	o = killed(t, o, func(db *DB) {
		put(t, db, "lost", "x")
		if err := db.settle(); err != nil {
			t.Error(err)
		}
	})
	edit(t, glob(t, o, "*.jnl")[0], func(b []byte) []byte {
		clear(b[walHeaderSize:])
		return b
	})
	db = mustOpen(t, o)
	if got := get(t, db, "c"); got != "x" {
		t.Errorf("c = %s, want x", got)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
