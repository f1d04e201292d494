package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// syncNames replaces the sync of logs by one that tells whose turn it was, and does it.
func syncNames(t *testing.T, db *DB) (names *[]string) {
	t.Helper()
	if badgerSyncs {
		t.Skip("Badger syncs its logs here")
	}
	names = new([]string)
	sync := db.wal.sync
	db.wal.sync = func(f *os.File) error {
		*names = append(*names, filepath.Base(f.Name()))
		return sync(f)
	}
	return names
}

// TestCommitSyncsItsLog: when a commit returns its log was synced after the transaction had
// been written to it; the log before, too, when the commit has begun a new one.
func TestCommitSyncsItsLog(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	names := syncNames(t, db)
	synced := make(map[string]uint64) // the last transaction that was in a log when it was synced
	sync := db.wal.sync
	db.wal.sync = func(f *os.File) error {
		// One that is full may be deleted meanwhile, and holds nothing that counts here.
		if c, err := checkWAL(f.Name()); err == nil {
			synced[filepath.Base(f.Name())] = c.last
		}
		return sync(f)
	}
	value := make([]byte, 100<<10)
	rotations := 0
	for range 25 {
		ts, active := db.NextTs(), walName(db.wal.next-1)
		*names = (*names)[:0]
		put(t, db, "k", string(value))
		want := []string{active}
		if now := walName(db.wal.next - 1); now != active {
			rotations++
			want = append(want, now)
		}
		if !slices.Equal(*names, want) {
			t.Fatalf("commit %d: synced %q, want %q", ts, *names, want)
		}
		if got := synced[want[len(want)-1]]; got != ts {
			t.Fatalf("commit %d: %s was synced when transaction %d was its last",
				ts, want[len(want)-1], got)
		}
	}
	if rotations < 2 {
		t.Errorf("%d logs were begun, want some", rotations)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db.wal.active != nil {
		t.Error("a log is open after Close")
	}
}

// TestFailedSyncIsFinal has the sync of a log fail: of the one that is active, of the one that
// a commit leaves, and of the one that it begins. That commit fails, and each one after it,
// without another sync; and what was acknowledged before is there.
func TestFailedSyncIsFinal(t *testing.T) {
	const active, second = "00001.mem", "00002.mem"
	for _, tt := range []struct {
		name  string
		log   string
		begun string // the log that has begun then
	}{
		{"active log", active, active},
		{"log that is full", active, second},
		{"log that is begun", second, second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := mustOpen(t, testOptions(t))
			names := syncNames(t, db)
			if got := walName(db.wal.next - 1); got != active {
				t.Fatalf("the active log is %s, want %s", got, active)
			}
			sync, failed := db.wal.sync, 0
			db.wal.sync = func(f *os.File) error {
				if err := sync(f); err != nil || failed == 0 && !at(t, f, tt.log, tt.begun) {
					return err
				}
				failed++
				return syscall.EIO
			}
			acked := -1
			var err error
			for ; err == nil && acked < 25; acked++ {
				err = db.Commit(func(txn *badger.Txn) error {
					return txn.Set(fmt.Appendf(nil, "key %d", acked+1), make([]byte, 100<<10))
				})
			}
			acked--
			next := db.NextTs()
			for range 2 {
				if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
					t.Errorf("Commit = %v, want ErrFailed and EIO", err)
				}
				err = db.Commit(func(txn *badger.Txn) error { return txn.Set([]byte("k"), nil) })
			}
			if failed != 1 {
				t.Errorf("%d syncs after one has failed: %q", failed-1, *names)
			}
			if got := db.NextTs(); got != next {
				t.Errorf("NextTs = %d after a commit that has failed, want %d", got, next)
			}
			for i := range acked + 2 {
				got := get(t, db, fmt.Sprintf("key %d", i))
				if there := got != "none"; there != (i <= acked) {
					t.Errorf("key %d is there: %t; %d is the last that was acknowledged",
						i, there, acked)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// at reports whether a log of this name is synced when that one has begun, and none after it.
func at(t *testing.T, f *os.File, log, begun string) bool {
	t.Helper()
	if filepath.Base(f.Name()) != log {
		return false
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(f.Name()), "*.mem"))
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			last = filepath.Base(name)
		}
	}
	return last == begun
}

// TestSyncCountsAsSlow: the time of the sync is a part of the time of a commit.
func TestSyncCountsAsSlow(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	syncNames(t, db)
	sync := db.wal.sync
	during := false
	db.wal.sync = func(f *os.File) error {
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
	synced := ""
	w.sync = func(f *os.File) error {
		synced = filepath.Base(f.Name())
		return nil
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	if synced != "100001.mem" || w.next != 100002 {
		t.Errorf("synced %s, the next log is %d; want 100001.mem and 100002", synced, w.next)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}
