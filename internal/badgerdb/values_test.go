package badgerdb

import (
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// noValues are those of a database that has none, in which nobody reads.
func noValues(dir string) *values {
	return newValues(dir, slog.New(slog.DiscardHandler), new(readers),
		func() uint64 { return math.MaxUint64 })
}

// valueOptions are those of a database that leaves its values in the journal.
func valueOptions(t *testing.T) Options {
	t.Helper()
	o := testOptions(t)
	o.minValue = 0
	return o
}

// valueFiles returns the names of the files that are kept.
func valueFiles(t *testing.T, o Options) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, "*"+valueExt))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// fillJournal overwrites keys with values that stay in the journal, until so many files have
// been begun.
func fillJournal(t *testing.T, db *DB, keys, files int) {
	t.Helper()
	value := strings.Repeat("v", 10<<10)
	for from, n := db.journal.id, 0; db.journal.id < from+uint64(files); n++ {
		put(t, db, fmt.Sprintf("fill-%03d", n%keys), fmt.Sprint(n, value))
	}
}

// awaitFiles waits until a database keeps so many files.
func awaitFiles(t *testing.T, db *DB, want func(n int) bool) {
	t.Helper()
	for d := newDeadline(t); ; {
		n := len(db.values.ids())
		if want(n) {
			return
		}
		d.wait(fmt.Sprintf("the files that are kept: %d", n))
	}
}

func TestTablesDoNotHaveLargeValues(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	defer mustClose(t, db)
	fillJournal(t, db, 600, 20)
	awaitFiles(t, db, func(n int) bool { return n > 0 })
	err := db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if item := it.Item(); !Own(item.Key()) && item.ValueSize() > pointerSize {
				return fmt.Errorf("%s has %d bytes", item.Key(), item.ValueSize())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestShortValuesAreNotNoted: where no value stays in the journal a commit does nothing for it. A
// short value takes the place of one that stays.
func TestShortValuesAreNotNoted(t *testing.T) {
	v := noValues(t.TempDir())
	v.files[1] = new(valueFile)
	db := &DB{minValue: minValue, maxValue: 1 << 20, maxTxnBytes: 1 << 20, maxTxnCount: 10}
	txn := &Txn{db: db, at: place{file: 1}}
	note := func(size int) {
		txn.reset()
		if err := txn.Set([]byte("key"), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		v.note(txn)
	}
	v.mu.Lock() // who waits for it waits for ever
	note(minValue - 1)
	v.mu.Unlock()
	for _, size := range []int{minValue, minValue - 1} {
		note(size)
		if stays := len(v.at) > 0; stays != (size == minValue) {
			t.Errorf("with %d bytes it stays in the journal: %t", size, stays)
		}
	}
}
