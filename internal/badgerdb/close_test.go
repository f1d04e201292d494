package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCloseIsInterrupted kills the process after each step of Close. What is left holds the same
// as before, also when Badger has merged away what was deleted: the journal, or what is left of
// it, does not bring it back.
func TestCloseIsInterrupted(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	db.journal.limit /= 8
	value := strings.Repeat("v", 40_000)
	for i := range 12 {
		put(t, db, fmt.Sprint("key-", i), fmt.Sprint(i, value))
	}
	for i := range 12 {
		err := db.Commit(func(txn *Txn) error {
			if i%3 == 0 {
				return txn.Delete(fmt.Appendf(nil, "key-%d", i))
			}
			return txn.Set(fmt.Appendf(nil, "key-%d", i), fmt.Append(nil, "new", i))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := openContent(t, db)
	check := func(when string) {
		t.Helper()
		left := copied(t, o)
		checkContent(t, when, left, want)
		for round := range 2 {
			left = killed(t, left, func(db *DB) {
				if got := openContent(t, db); !slices.Equal(got, want) {
					t.Errorf("%s, and %d kills, it holds other things: %s",
						when, round, cmp.Diff(want, got))
				}
			})
		}
	}
	db.reclaimer.stop()
	db.scrubber.cancel()
	db.collector.stop()
	db.scrubber.stop()
	db.mover.stop()
	check("with all in memtables")
	db.room.leave()
	db.memtables.close()
	if err := errors.Join(db.journal.close(), db.broken.close(db.DB)); err != nil {
		t.Fatal(err)
	}
	check("with Badger closed")
	if err := errors.Join(db.wal.remove(), db.blocks.close()); err != nil {
		t.Fatal(err)
	}
	logs := glob(t, o, "*"+journalExt)
	if len(logs) < 4 {
		t.Fatalf("%q, want more files", logs)
	}
	mergeAll(t, o)
	for i, path := range logs { // see TestRemovedFromTheOldest
		check(fmt.Sprintf("with %d files of the journal removed", i))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	check("with the journal removed")
}

// mergeAll has Badger merge away whatever is hidden, in a database that is not open.
func mergeAll(t *testing.T, o Options) {
	t.Helper()
	bopts := o.withDefaults().badger()
	bopts.Logger = nil
	b := newBroken()
	bdb, err := b.open(bopts)
	if err != nil {
		t.Fatal(err)
	}
	bdb.SetDiscardTs(bdb.MaxVersion() - 1)
	if err = errors.Join(bdb.Flatten(1), b.close(bdb)); err != nil {
		t.Fatal(err)
	}
}
