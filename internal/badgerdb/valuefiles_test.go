package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesGoWhenNothingCounts: files that are kept are no more than what counts, and none are
// when nothing does. Nor are there descriptors of others.
func TestFilesGoWhenNothingCounts(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	const keys = 600
	fillJournal(t, db, keys, 40)
	awaitFiles(t, db, func(n int) bool { return n > 0 && n <= keys*10/1000+1 })
	for n := range keys {
		err := db.Commit(func(txn *Txn) error {
			return txn.Delete(fmt.Appendf(nil, "fill-%03d", n))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, db, "next", "x") // a reader of the newest commit sees the deletions
	if err := db.settle(); err != nil {
		t.Fatal(err)
	}
	awaitFiles(t, db, func(n int) bool { return n == 0 })
	mustClose(t, db)
	if names := valueFiles(t, o); len(names) != 0 {
		t.Errorf("there are %q", names)
	}
}

// TestColdValuesAmongHotOnes: each file has a value that stays, and many that do not. The files
// that are kept must not become more and more, and nothing may be lost.
func TestColdValuesAmongHotOnes(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	cold := strings.Repeat("c", 5000)
	const files = 60
	for n := range files {
		put(t, db, fmt.Sprintf("cold-%02d", n), fmt.Sprint(n, cold))
		fillJournal(t, db, 20, 1)
	}
	all, live := db.values.bytes()
	for d := newDeadline(t); all > 2*live+(valueSlack+maxWaiting)*db.collector.file; {
		d.wait(fmt.Sprintf("%d bytes are kept for %d that count", all, live))
		all, live = db.values.bytes()
	}
	check := func() {
		for n := range files {
			if got := get(t, db, fmt.Sprintf("cold-%02d", n)); got != fmt.Sprint(n, cold) {
				t.Errorf("cold-%02d = %.20q (%d)", n, got, len(got))
			}
		}
	}
	check()
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	check()
}

// TestSnapshotKeepsItsFiles: what a snapshot shows stays, though everything was overwritten and
// merged, and goes after it.
func TestSnapshotKeepsItsFiles(t *testing.T) {
	db := mustOpen(t, valueOptions(t))
	defer mustClose(t, db)
	fillJournal(t, db, 50, 3)
	s := db.Snapshot()
	first, err := s.read([]byte("fill-007"))
	if err != nil {
		t.Fatal(err)
	}
	fillJournal(t, db, 50, 20)
	awaitFiles(t, db, func(n int) bool { return n > 3 })
	again, err := s.read([]byte("fill-007"))
	if err != nil || !bytes.Equal(again, first) {
		t.Errorf("then %.20q, now %.20q, %v", first, again, err)
	}
	before := len(db.values.ids())
	s.Discard()
	awaitFiles(t, db, func(n int) bool { return n < before })
}

// TestFilesOfValuesAreClosed: of files that are used again or removed no descriptor stays, and
// none of any when the database is closed.
func TestFilesOfValuesAreClosed(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	fillJournal(t, db, 50, 30)
	settle(t, db)
	count := func() (open []string, known int) {
		db.values.mu.Lock() // so that none is let go of meanwhile
		defer db.values.mu.Unlock()
		return openFiles(t, o.Dir, journalExt, spareExt, valueExt), len(db.values.files)
	}
	for d := newDeadline(t); ; {
		open, known := count()
		if len(open) == known+1 { // and the one that is written
			break
		}
		d.wait(fmt.Sprintf("%d files are open, of %d that are known: %q", len(open), known, open))
	}
	mustClose(t, db)
	if open := openFiles(t, o.Dir, ""); len(open) > 0 {
		t.Errorf("closed it has %q open", open)
	}
}

// openFiles returns the files in a directory that this process has open, with one of some
// extensions.
func openFiles(t *testing.T, dir string, exts ...string) (paths []string) {
	t.Helper()
	const own = "/proc/self/fd"
	fds, err := os.ReadDir(own)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the system does not tell which files are open")
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		path, err := os.Readlink(filepath.Join(own, fd.Name()))
		if err != nil || filepath.Dir(path) != dir {
			continue // it is closed by now, or another one
		}
		path = strings.TrimSuffix(path, " (deleted)")
		has := func(ext string) bool { return strings.HasSuffix(path, ext) }
		if slices.ContainsFunc(exts, has) {
			paths = append(paths, path)
		}
	}
	return paths
}
