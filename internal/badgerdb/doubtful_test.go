package badgerdb

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFailedSyncLeavesNoPointers: a commit whose sync has failed comes to a table when the
// database is closed. What the journal had of it may be gone then, and it is whole all the same.
func TestFailedSyncLeavesNoPointers(t *testing.T) {
	o := valueOptions(t)
	db := mustOpen(t, o)
	before, after := strings.Repeat("1", 8<<10), strings.Repeat("2", 8<<10)
	put(t, db, "key", before)
	path, end, sync := filepath.Join(o.Dir, db.journal.name), db.journal.end, db.journal.sync
	db.journal.sync = func(*os.File) error { return syscall.EIO }
	err := db.Commit(func(txn *Txn) error {
		return errors.Join(txn.Set([]byte("key"), []byte(after)), txn.Set([]byte("l"), nil))
	})
	if !errors.Is(err, ErrFailed) {
		t.Fatalf("Commit = %v, want ErrFailed", err)
	}
	db.journal.sync = sync
	mustClose(t, db)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b[end:], []byte(after)) {
		t.Fatal("the journal has not got what failed")
	}
	clear(b[end:])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, o)
	value, got := get(t, db, "key"), get(t, db, "l")
	if whole := got != "none"; value != after && (whole || value != before) {
		t.Errorf("key = %.10q, l = %q: want one transaction or the other", value, got)
	}
	mustClose(t, db)
}
