package badgerdb

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestSnapshotStays: what a snapshot shows is kept, though everything is
// overwritten and compacted meanwhile.
func TestSnapshotStays(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	put(t, db, "k", "old")
	snap := db.Snapshot()
	for range 3 {
		fillTables(t, db)
		put(t, db, "k", "new")
	}
	if err := db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	item, err := snap.Get([]byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := item.ValueCopy(nil); err != nil || string(v) != "old" {
		t.Errorf("k = %s, %v, want old", v, err)
	}
	snap.Discard()
	snap.Discard() // again does no harm
	if got := db.readers.oldest(1 << 60); got != 1<<60 {
		t.Errorf("a snapshot at %d is still open", got)
	}
	if got := get(t, db, "k"); got != "new" {
		t.Errorf("k = %s, want new", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCommitErrors(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	refused := errors.New("refused")
	before := db.NextTs()
	if err := db.Commit(func(*Txn) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("Commit = %v, want the error of fn", err)
	}
	if err := db.Commit(func(*Txn) error { return nil }); err != nil {
		t.Errorf("Commit of nothing = %v", err)
	}
	if got := db.NextTs(); got != before {
		t.Errorf("NextTs = %d after nothing was written, want %d", got, before)
	}
	err := db.Commit(func(txn *Txn) error {
		for i := range 1 << 20 {
			if err := txn.Set(fmt.Appendf(nil, "%d", i), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, badger.ErrTxnTooBig) {
		t.Errorf("Commit = %v, want ErrTxnTooBig", err)
	}
	put(t, db, "k", "v") // all these have left the database usable

	db.reclaimer.stop()
	db.collector.stop()
	db.scrubber.stop()
	db.room.leave()
	if err := errors.Join(db.DB.Close(), db.blocks.close()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		db.mover.stop()
		if err := db.journal.close(); err != nil {
			t.Error(err)
		}
	}()
	// The first one is in the journal, and Badger does not take it.
	if err := db.Commit(set("w")); err != nil && !errors.Is(err, ErrFailed) {
		t.Errorf("Commit = %v, want none or ErrFailed", err)
	}
	if err := db.mover.wait(db.NextTs() - 1); !errors.Is(err, ErrFailed) {
		t.Errorf("what Badger does not take has ended with %v, want ErrFailed", err)
	}
	snapshot := db.Snapshot()
	if err := snapshot.Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("a snapshot that lacks the newest commit says %v, want ErrFailed", err)
	}
	snapshot.Discard()
	for range 2 {
		if err := db.Commit(set("x")); !errors.Is(err, ErrFailed) {
			t.Errorf("Commit = %v, want ErrFailed", err)
		}
	}
}

func set(value string) func(*Txn) error {
	return func(txn *Txn) error { return txn.Set([]byte("k"), []byte(value)) }
}

func TestLimitsCanBeReached(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	value := make([]byte, db.MaxValueBytes())
	key := []byte("key")
	room := db.MaxTxnBytes() - int64(len(key)) - EntryOverhead
	if err := db.Commit(func(txn *Txn) error {
		return txn.Set(key, value[:min(room, db.MaxValueBytes())])
	}); err != nil {
		t.Errorf("Commit of a value of the largest size = %v", err)
	}
	if err := db.Commit(func(txn *Txn) error {
		for i := range db.MaxTxnCount() {
			if err := txn.Set(fmt.Appendf(nil, "%d", i), nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Errorf("Commit of the largest number = %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDatabaseIsOpenOnce(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	if _, err := Open(o); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open = %v, want ErrLocked", err)
	}
	put(t, db, "k", "v")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestActiveLogHasRandomAccess looks into what the kernel says about the mapping,
// after opening and after a rotation.
func TestActiveLogHasRandomAccess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the advice is given on Linux only")
	}
	db := mustOpen(t, testOptions(t))
	check := func() {
		t.Helper()
		name := walName(db.wal.active())
		maps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Skip(err)
		}
		_, rest, found := strings.Cut(string(maps), db.wal.dir+"/"+name)
		_, flags, _ := strings.Cut(rest, "VmFlags:")
		flags, _, _ = strings.Cut(flags, "\n")
		if !found || !strings.Contains(flags, " rr") {
			t.Errorf("%s: mapped %t, flags %s, want rr", name, found, flags)
		}
	}
	check()
	before := db.wal.active()
	fillTables(t, db)
	if db.wal.active() == before {
		t.Error("no rotation")
	}
	check()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsAreAllReported(t *testing.T) {
	_, err := Open(Options{MemTableSize: 1, Profile: 9, BlockCacheSize: -1, IndexCacheSize: -1})
	fields := []string{"Dir", "MemTableSize", "Profile", "BlockCacheSize", "IndexCacheSize"}
	for _, field := range fields {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Open = %v, want it to name %s", err, field)
		}
	}
}
