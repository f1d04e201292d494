package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestCommitSyncsItsLog: when a commit returns the journal was synced once after the transaction
// had been written to it; also with the first one of a file, and in a file that is used again.
func TestCommitSyncsItsLog(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	sync := db.journal.sync
	var last []uint64
	db.journal.sync = func(f *os.File) error {
		if c, err := checkWAL(filepath.Join(db.journal.dir, db.journal.name)); err != nil {
			t.Error(err)
		} else {
			last = append(last, c.last)
		}
		return sync(f)
	}
	value := make([]byte, 100<<10)
	begun, again := 0, 0
	for range 60 {
		ts, name := db.NextTs(), db.journal.name
		last = last[:0]
		put(t, db, "k", string(value))
		if len(last) == 0 || last[0] != ts {
			t.Fatalf("commit %d: synced with transactions up to %d", ts, last)
		}
		if db.journal.name == name {
			continue
		}
		begun++
		b, err := os.ReadFile(filepath.Join(db.journal.dir, db.journal.name))
		if err != nil {
			t.Fatal(err)
		}
		if len(strings.Trim(string(b[walHeaderSize:]), "\x00")) > 0 {
			again++ // there is something of before in it
		}
		settle(t, db)
	}
	if begun < 4 || again == 0 {
		t.Errorf("%d files were begun, %d of them for another time; want some", begun, again)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(db.journal.dir, "*.[jf]*")); len(left) > 0 {
		t.Errorf("%q is left after Close: %v", left, err)
	}
}

// settle waits until no full file of the journal is left.
func settle(t *testing.T, db *DB) {
	t.Helper()
	for d := newDeadline(t); ; d.wait("the journal to be let go of") {
		db.journal.mu.Lock()
		n := len(db.journal.full)
		db.journal.mu.Unlock()
		if n <= 2 { // Badger's log that has the newest need not be full
			return
		}
	}
}

// TestFailedSyncIsFinal has the sync of the journal fail: after a commit, and as a file is begun.
// That commit fails, and each one after it, without another sync; and what was acknowledged
// before is there.
func TestFailedSyncIsFinal(t *testing.T) {
	for _, ext := range []string{journalExt, spareExt} {
		t.Run(ext, func(t *testing.T) {
			o := testOptions(t)
			db := mustOpen(t, o)
			sync, failed := db.journal.sync, 0
			acked := -1
			db.journal.sync = func(f *os.File) error {
				if failed == 0 && acked >= 3 && strings.HasSuffix(f.Name(), ext) || failed > 0 {
					failed++
					return syscall.EIO
				}
				return sync(f)
			}
			var err error
			for ; err == nil && acked < 25; acked++ {
				err = db.Commit(func(txn *Txn) error {
					return txn.Set(fmt.Appendf(nil, "key %d", acked+1), make([]byte, 100<<10))
				})
			}
			acked--
			next := db.NextTs()
			for range 2 {
				if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
					t.Errorf("Commit = %v, want ErrFailed and EIO", err)
				}
				err = db.Commit(func(txn *Txn) error { return txn.Set([]byte("k"), nil) })
			}
			if failed != 1 {
				t.Errorf("%d syncs after one has failed", failed-1)
			}
			if got := db.NextTs(); got != next {
				t.Errorf("NextTs = %d after a commit that has failed, want %d", got, next)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = mustOpen(t, o)
			for i := range acked + 1 {
				if get(t, db, fmt.Sprintf("key %d", i)) == "none" {
					t.Errorf("key %d is gone; %d is the last that was acknowledged", i, acked)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestSyncCountsAsSlow: the time of the sync is a part of the time of a commit.
func TestSyncCountsAsSlow(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	sync := db.journal.sync
	during := false
	db.journal.sync = func(f *os.File) error {
		during = db.pace.isSlow(time.Now().Add(slowCommit))
		return sync(f)
	}
	put(t, db, "k", "v")
	if !during {
		t.Error("a sync that takes long does not count")
	}
	if db.pace.isSlow(time.Now().Add(slowCommit)) {
		t.Error("a commit counts that is over")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNewestLogIsFound: the log that is written to is the newest one, also where an older one
// has a greater name, and the one between them is gone.
func TestNewestLogIsFound(t *testing.T) {
	var free atomic.Int64
	r := testRoom(t, &free)
	dir := t.TempDir()
	for _, name := range []string{"99999.mem", "100001.mem"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWALWatch(dir, Options{MemTableSize: MinMemTableSize}.withDefaults(), r)
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	if got := w.active(); got != 100001 {
		t.Errorf("the log that is written to is %d, want 100001", got)
	}
}
