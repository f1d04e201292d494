package badgerdb

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestSnapshotSeesTheCommit: who has committed reads it, though Badger gets it later than that
// returns.
func TestSnapshotSeesTheCommit(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			o := testOptions(t)
			o.Profile = profile
			db := mustOpen(t, o)
			value := make([]byte, 1000)
			for i := range 500 {
				err := db.Commit(func(txn *Txn) error {
					for j := range 20 {
						if err := txn.Set(fmt.Appendf(nil, "key-%d", j), value); err != nil {
							return err
						}
					}
					return txn.Set([]byte("k"), fmt.Append(nil, i))
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := get(t, db, "k"); got != fmt.Sprint(i) {
					t.Fatalf("after commit %d k = %s", i, got)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBadgerGetsCommitsInOrder has many commit at once, and some read. A snapshot shows
// everything up to one commit, and nothing of later ones.
func TestBadgerGetsCommitsInOrder(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	var n int // under the lock that a commit has
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				err := db.Commit(func(txn *Txn) error {
					n++
					value := fmt.Append(nil, n)
					return errors.Join(txn.Set([]byte("a"), value), txn.Set([]byte("b"), value),
						txn.Set(fmt.Appendf(nil, "key-%d", n), value))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 200 {
				checkOrder(t, db)
			}
		})
	}
	all.Wait()
	for i := range n {
		if got, want := get(t, db, fmt.Sprint("key-", i+1)), fmt.Sprint(i+1); got != want {
			t.Errorf("key-%d = %s", i+1, got)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkOrder looks whether a snapshot shows whole commits, and all of those before.
func checkOrder(t *testing.T, db *DB) {
	t.Helper()
	s := db.Snapshot()
	defer s.Discard()
	a, b := shown(t, s, "a"), shown(t, s, "b")
	if a != b || a != "" && shown(t, s, "key-"+a) != a {
		t.Errorf("a snapshot shows %s, %s and %q", a, b, shown(t, s, "key-"+a))
	}
}

func shown(t *testing.T, s *Snapshot, key string) string {
	t.Helper()
	item, err := s.Get([]byte(key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return ""
	}
	var value []byte
	if err == nil {
		value, err = item.ValueCopy(nil)
	}
	if err != nil {
		t.Error(err)
	}
	return string(value)
}

// TestNothingIsReadBeforeItsSync: Badger may have a commit before it is durable, and nobody sees
// it there; nor when the sync has failed.
func TestNothingIsReadBeforeItsSync(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	put(t, db, "k", "old")
	begun, end := make(chan struct{}), make(chan error)
	db.journal.sync = func(*os.File) error {
		close(begun)
		return <-end
	}
	done := make(chan error, 1)
	go func() {
		done <- db.Commit(func(txn *Txn) error { return txn.Set([]byte("k"), []byte("new")) })
	}()
	<-begun
	if err := db.mover.wait(db.NextTs()); err != nil { // Badger has it
		t.Error(err)
	}
	if got := get(t, db, "k"); got != "old" {
		t.Errorf("k = %s before the sync has ended", got)
	}
	end <- errors.New("no")
	if err := <-done; !errors.Is(err, ErrFailed) {
		t.Errorf("Commit = %v, want %v", err, ErrFailed)
	}
	if got := get(t, db, "k"); got != "old" {
		t.Errorf("k = %s after the sync has failed", got)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestCommitWaitsForBadger: what Badger has not got yet is bounded; who commits waits then, and
// goes on when Badger does.
func TestCommitWaitsForBadger(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	db.mover.stop() // Badger takes nothing
	m := newMover(db)
	db.mover = m
	value := make([]byte, db.MaxTxnBytes()/2)
	var mu sync.Mutex
	acked := 0
	done := make(chan error)
	go func() {
		for i := range 20 {
			err := db.Commit(func(txn *Txn) error {
				return txn.Set(fmt.Appendf(nil, "key-%d", i), value)
			})
			if err != nil {
				done <- err
				return
			}
			mu.Lock()
			acked++
			mu.Unlock()
		}
		done <- nil
	}()
	waiting := func() (bytes int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.bytes
	}
	for d := newDeadline(t); waiting() <= m.limit; d.wait("the queue to be full") {
	}
	for d := newDeadline(t); db.commitMu.TryLock(); d.wait("the next commit to wait") {
		db.commitMu.Unlock()
	}
	mu.Lock()
	n := acked
	mu.Unlock()
	if bytes := waiting(); bytes > m.limit+db.MaxTxnBytes() || n > 6 {
		t.Errorf("%d commits, and %d bytes wait, want %d at most and one more transaction",
			n, bytes, m.limit)
	}
	m.start()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if got := get(t, db, fmt.Sprint("key-", i)); len(got) != len(value) {
			t.Errorf("key-%d has %d bytes", i, len(got))
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBadgerDoesNotTakeIt has Badger fail: commits do from then on, also one that waits, whoever
// reads or closes does not wait for ever, and what was acknowledged is there after that.
func TestBadgerDoesNotTakeIt(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			o := testOptions(t)
			o.Profile = profile
			db := mustOpen(t, o)
			put(t, db, "before", "x")
			if err := db.settle(); err != nil {
				t.Fatal(err)
			}
			db.mover.db = brokenDB(t, db)
			acked, err := commitUntilItFails(db, 10_000)
			for range 3 {
				if !errors.Is(err, ErrFailed) {
					t.Errorf("Commit = %v, want ErrFailed", err)
				}
				err = db.Commit(set("x"))
			}
			if err = db.settle(); !errors.Is(err, ErrFailed) {
				t.Errorf("settle = %v, want ErrFailed", err)
			}
			checkNoView(t, db)
			if err := db.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(o.Dir, "*"+journalExt)); len(left) == 0 {
				t.Error("the journal is gone, and not all of it is in tables")
			}
			db = mustOpen(t, o)
			checkAcked(t, db, acked)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			checkNoJournal(t, o)
		})
	}
}

// commitUntilItFails commits keys with values of a size, and returns how many were acknowledged and
// why the next one was not.
func commitUntilItFails(db *DB, size int) (acked int, err error) {
	for ; ; acked++ {
		err = db.Commit(func(txn *Txn) error {
			return txn.Set(fmt.Appendf(nil, "key-%d", acked), make([]byte, size))
		})
		if err != nil {
			return acked, err
		}
	}
}

// checkAcked looks whether all keys are there that were acknowledged.
func checkAcked(t *testing.T, db *DB, acked int) {
	t.Helper()
	for i := range acked {
		if get(t, db, fmt.Sprint("key-", i)) == "none" {
			t.Errorf("key-%d is gone; %d were acknowledged", i, acked)
		}
	}
}

// checkNoView looks whether who reads is told that Badger has failed.
func checkNoView(t *testing.T, db *DB) {
	t.Helper()
	err := db.View(func(*badger.Txn) error { return nil })
	if !errors.Is(err, ErrFailed) {
		t.Errorf("View = %v, want ErrFailed: it may not show what is durable", err)
	}
}

// brokenDB is what a mover sees as its database, in which nothing can be written.
func brokenDB(t *testing.T, db *DB) *DB {
	t.Helper()
	other := mustOpen(t, testOptions(t))
	bdb := other.DB
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	broken := &DB{
		DB: bdb, parts: db.parts, wal: db.wal, journal: db.journal,
		maxTxnBytes: db.maxTxnBytes, maxTxnCount: db.maxTxnCount, maxValue: db.maxValue,
	}
	broken.committed.Store(db.committed.Load())
	return broken
}

// TestMemtableCannotBeMade has Badger fail to begin a memtable, after which it has none: commits
// fail, whoever reads or closes does not wait, and what was acknowledged is there after that.
func TestMemtableCannotBeMade(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			o := testOptions(t)
			o.Profile = profile
			db := mustOpen(t, o)
			next := filepath.Join(o.Dir, walName(db.wal.next.Load()))
			if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join("none", "log"), next); err != nil {
				t.Skip(err)
			}
			acked, err := commitUntilItFails(db, 50_000)
			if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), filepath.Base(next)) {
				t.Errorf("Commit = %v, want ErrFailed with %s", err, filepath.Base(next))
			}
			checkNoView(t, db)
			db.Memory() // it reads where Badger has its memtables
			if err := db.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if err := os.Remove(next); err != nil {
				t.Fatal(err)
			}
			db = mustOpen(t, o)
			checkAcked(t, db, acked)
			mustClose(t, db)
		})
	}
}

// TestBatchesAreNotSplit: what the mover takes at once is one request of Badger's, up to the last
// byte and the last pair, and each transaction is whole in it.
func TestBatchesAreNotSplit(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	maxBytes, maxCount := db.MaxTxnBytes(), db.MaxTxnCount()
	for _, tt := range []struct {
		name  string
		sizes []int64 // of values; zero: as many pairs as may be, without values
		rest  int64   // how many transactions come later
	}{
		{"as much as may be", []int64{maxBytes / 2, maxBytes - maxBytes/2}, 0},
		{"a byte more", []int64{maxBytes / 2, maxBytes - maxBytes/2 + 1}, 1},
		{"as many as may be", []int64{0}, 0},
		{"a pair more", []int64{0, 200}, 1},
		{"a pair more before", []int64{200, 0}, 1},
		{"the largest ones", []int64{maxBytes, maxBytes, maxBytes}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMover(db)
			for i, size := range tt.sizes {
				txn := &Txn{db: db, version: db.NextTs() + uint64(i)}
				var err error
				for n := int64(0); err == nil && n < maxCount && (size == 0 || n < 10); n++ {
					key := fmt.Appendf(nil, "%04d", n%1000) // those of the others, and its own
					length := int64(0)
					if size > 0 {
						length = size/10 - int64(len(key)) - EntryOverhead
						if n == 9 {
							length += size % 10
						}
					}
					err = txn.Set(key, make([]byte, length))
				}
				if err != nil {
					t.Fatal(err)
				}
				m.queue = append(m.queue, txn)
			}
			batch, _ := m.next(nil)
			if got := int64(len(m.queue)); got != tt.rest {
				t.Errorf("%d transactions come later, want %d", got, tt.rest)
			}
			// A write batch splits where its transaction says that it is too big.
			to := db.NewTransactionAt(math.MaxUint64, true)
			defer to.Discard()
			for _, txn := range batch {
				for _, p := range txn.pairs {
					key, value := txn.pair(p)
					if err := to.SetEntry(badger.NewEntry(key, value)); err != nil {
						t.Fatalf("Badger splits %d transactions: %v", len(batch), err)
					}
				}
			}
		})
	}
	mustClose(t, db)
}
