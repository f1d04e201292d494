package badgerdb

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestReserveCountsLogs has Badger stop to merge tables, so that all memtables fill up, and
// commits wait. There are not more logs and files of the journal at any time, and Reserve counts
// them all.
func TestReserveCountsLogs(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	merge, check := make(chan struct{}), db.merges.check
	db.merges.check = func(id uint64) error {
		<-merge
		return check(id)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- putUntil(db, stop) }()
	full := func() bool {
		db.mover.mu.Lock()
		defer db.mover.mu.Unlock()
		return db.mover.bytes > db.mover.limit
	}
	looks := 0
	for d := newDeadline(t); looks < 50; d.wait("Badger to take no more") {
		if looks++; !full() {
			looks = 0
		}
	}
	files, taken := 0, int64(0)
	for _, pattern := range []string{"*.mem", "*" + journalExt, "*" + spareExt} {
		names, err := filepath.Glob(filepath.Join(o.Dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			files, taken = files+1, taken+blocks(t, name)
		}
	}
	const block = 4096 // what is taken is whole blocks
	limit := logSpace(o.MemTableSize) + int64(files)*block
	if files <= 10 || taken > limit || limit > db.Reserve()/2 {
		t.Errorf("%d files take %d bytes, want more than 10, and %d bytes at most", files, taken,
			limit)
	}
	close(merge)
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	mustClose(t, db)
}

// putUntil commits one value after the other.
func putUntil(db *DB, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		err := db.Commit(func(txn *Txn) error {
			return txn.Set(fmt.Appendf(nil, "key-%d", i), make([]byte, 50_000))
		})
		if err != nil {
			return err
		}
	}
}
