package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
)

// TestReaderFindsRottenIndex: Badger reads the index of a table from its file each time. A bit
// of its filter is gone, and with it, to Badger, the keys. A Reader that has kept the index
// knows what is in the table, and one that has not knows that it is no index any more.
func TestReaderFindsRottenIndex(t *testing.T) {
	for name, limit := range map[string]int64{"kept": 1 << 20, "not kept": 0} {
		t.Run(name, func(t *testing.T) { readRottenIndex(t, limit) })
	}
}

func readRottenIndex(t *testing.T, limit int64) {
	t.Helper()
	f := new(findings)
	db := writeState(t, testOptions(t))
	want := newestValues(t, db)
	db = reopened(t, db, f)
	defer mustClose(t, db)
	db.reads.indexes = newIndexCache(limit)
	if n := answers(t, db, want); n != 0 { // also reads the indexes
		t.Fatalf("%d keys are damaged before", n)
	}
	path, info := newestTable(t, db)
	emptyFilter(t, db, info.ID, path)
	stale := 0
	for i := range 600 {
		key := fmt.Sprintf("burst-%04d", i)
		if got := get(t, db, key); got != want(key) {
			stale++
		}
	}
	if n := answers(t, db, want); n == 0 || n < stale || limit > 0 && n != stale {
		t.Errorf("%d keys are damaged, want the %d of which Badger has another value", n, stale)
	}
	for d := newDeadline(t); len(f.list()) == 0; {
		d.wait("somebody to be told")
	}
	if got := f.list()[0]; got.File != filepath.Base(path) {
		t.Errorf("told is %v, want %s", got, filepath.Base(path))
	}
	err := db.Read(func(r Reader) error { return r.Check([]byte("burst")) })
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("Check = %v", err)
	}
}

// TestReaderLooksTwice: Badger says that a key is not there, and a table that it is. When both say
// the same a moment later there is no damage: one of them may have looked before a merge.
func TestReaderLooksTwice(t *testing.T) {
	db := writeState(t, testOptions(t))
	want := newestValues(t, db)
	defer mustClose(t, db)
	path, info := newestTable(t, db)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := answers(t, db, want); n != 0 { // also reads the indexes
		t.Fatalf("%d keys are damaged before", n)
	}
	told := 0
	db.reads.suspect = func(uint64) {
		told++
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = file.WriteAt(sound, 0)
		if err = errors.Join(err, file.Close()); err != nil {
			t.Error(err)
		}
	}
	emptyFilter(t, db, info.ID, path)
	if n := answers(t, db, want); n != 0 || told != 1 {
		t.Errorf("%d keys are damaged, somebody was told %d times; want none, and once", n, told)
	}
}

// emptyFilter overwrites the bloom filter of a table with zeros, but for the count behind it.
func emptyFilter(t *testing.T, db *DB, id uint64, path string) {
	t.Helper()
	var x *tableIndex
	all := span{first: newestOf(nil)}
	err := db.reads.levels.each(all, 0, func(of *table.Table) (err error) {
		if of.ID() == id {
			x, err = readIndex(of, true)
		}
		return err
	})
	content, rerr := os.ReadFile(path)
	if err = errors.Join(err, rerr); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, x.filter)
	if len(x.filter) < 10 || at < 0 {
		t.Fatalf("the filter of %s is not known", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(make([]byte, len(x.filter)-1), int64(at))
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}
