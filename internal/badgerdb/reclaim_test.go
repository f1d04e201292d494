package badgerdb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// openByHand opens a database of which the test alone drives the reclaimer.
func openByHand(t testing.TB, o Options) *DB {
	t.Helper()
	db := mustOpen(t, o)
	db.reclaimer.stop()
	db.reclaimer.quit = make(chan struct{})
	return db
}

func tableBytes(db *DB) (n int64) {
	for _, l := range db.Levels() {
		n += l.Size
	}
	return n
}

// awaitTables waits until memtables have become tables of so many bytes: Badger does
// that in the background.
func awaitTables(t *testing.T, db *DB, want int64) (have int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if have = tableBytes(db); have >= want {
			return have
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes in tables, want %d", have, want)
		}
		runtime.Gosched()
	}
}

// burst writes n values of 10 kB of random bytes, which do not compress.
func burst(t *testing.T, db *DB, n int) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{1})
	change(t, db, n, 10, func(txn *Txn, key []byte) error {
		value := make([]byte, 10_000)
		if _, err := random.Read(value); err != nil {
			return err
		}
		return txn.Set(key, value)
	})
}

func deleteBurst(t *testing.T, db *DB, n int) {
	t.Helper()
	change(t, db, n, 400, func(txn *Txn, key []byte) error { return txn.Delete(key) })
}

// change calls fn for n keys, so many in a transaction.
func change(t testing.TB, db *DB, n, each int, fn func(*Txn, []byte) error) {
	t.Helper()
	for i := 0; i < n; i += each {
		err := db.Commit(func(txn *Txn) error {
			var errs []error
			for k := i; k < min(n, i+each); k++ {
				errs = append(errs, fn(txn, fmt.Appendf(nil, "burst-%04d", k)))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReclaimReturnsWhatWasDeleted: the deletions are in memory and what they
// delete is in tables, of level 0 alone or of more.
func TestReclaimReturnsWhatWasDeleted(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		for _, n := range []int{400, 1500} {
			t.Run(fmt.Sprintf("%v/%d", profile, n), func(t *testing.T) {
				o := testOptions(t)
				o.Profile = profile
				db := openByHand(t, o)
				put(t, db, "kept", "1")
				burst(t, db, n)
				deleteBurst(t, db, n)
				put(t, db, "after", "2")
				before := awaitTables(t, db, int64(n)*10_000-o.MemTableSize*3/2)
				if err := db.reclaimer.judge(); err != nil {
					t.Fatal(err)
				}
				if after := tableBytes(db); after > 100_000 {
					t.Errorf("%d bytes in tables, before it were %d", after, before)
				}
				e, err := db.reclaimer.estimate()
				if err != nil || e.worth(o.MemTableSize) {
					t.Errorf("estimate after that = %+v, %v, want that it is not worth it", e, err)
				}
				for range 2 {
					for key, want := range map[string]string{
						"kept": "1", "after": "2", scratchKey: "none", "burst-0007": "none",
					} {
						if got := get(t, db, key); got != want {
							t.Errorf("%s = %s, want %s", key, got, want)
						}
					}
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db = openByHand(t, o)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestReclaimIsNotWorthIt: what is live is not written again for nothing.
func TestReclaimIsNotWorthIt(t *testing.T) {
	db := openByHand(t, testOptions(t))
	burst(t, db, 1000)
	if err := db.reclaimer.mergeLevels(); err != nil {
		t.Fatal(err)
	}
	// A tenth is deleted.
	deleteBurst(t, db, 100)
	newest := db.NextTs()
	if err := db.reclaimer.judge(); err != nil {
		t.Fatal(err)
	}
	if got := db.NextTs(); got != newest {
		t.Errorf("%d commits of the reclaimer's own", got-newest)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReclaimWaitsForSnapshots(t *testing.T) {
	db := openByHand(t, testOptions(t))
	burst(t, db, 800)
	snapshot := db.Snapshot()
	deleteBurst(t, db, 800)
	if err := db.reclaimer.judge(); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("judge = %v, want that a snapshot is in the way", err)
	}
	if _, err := snapshot.Get([]byte("burst-0001")); err != nil {
		t.Errorf("the snapshot does not see what was there: %v", err)
	}
	snapshot.Discard()
	if err := db.reclaimer.judge(); err != nil {
		t.Fatal(err)
	}
	if n := tableBytes(db); n > 100_000 {
		t.Errorf("%d bytes in tables", n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReclaimIsInterrupted pins what Badger says before each step of Flatten: if
// it says that no more, a merge under load has no end.
func TestReclaimIsInterrupted(t *testing.T) {
	db := openByHand(t, testOptions(t))
	burst(t, db, 400)
	if n := db.Levels()[0].NumTables; n == 0 {
		t.Fatal("nothing to merge")
	}
	close(db.reclaimer.quit)
	if err := db.reclaimer.mergeLevels(); !errors.Is(err, errInterrupted) {
		t.Errorf("merge of a database that is being closed = %v", err)
	}
	db.reclaimer.quit = make(chan struct{})

	// The compactions of the usual kind run again.
	burst(t, db, 1500)
	deadline := newDeadline(t)
	for db.Levels()[0].NumTables >= db.Opts().NumLevelZeroTables {
		deadline.wait("level 0 to be compacted")
	}

	db.reclaimer.fill = func(int) error { // the load comes back meanwhile
		for i := range quietCommits + 2 {
			put(t, db, "load", fmt.Sprint(i))
		}
		return nil
	}
	deleteBurst(t, db, 1500)
	if err := db.reclaimer.judge(); !errors.Is(err, errInterrupted) {
		t.Errorf("judge under load = %v", err)
	}
	broken := errors.New("broken")
	db.reclaimer.fill = func(int) error { return broken }
	if err := db.reclaimer.judge(); !errors.Is(err, broken) {
		t.Errorf("judge with a commit that fails = %v", err)
	}
	if u := db.Upkeep(); u.ReclaimsEnded != 1 || u.ReclaimsFailed != 1 || u.Reclaims != 0 ||
		!u.Reclaimed.IsZero() {
		t.Errorf("upkeep tells %+v, want one that was ended and one that has failed", u)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReclaimNeedsQuiet(t *testing.T) {
	db := openByHand(t, testOptions(t))
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := db.reclaimer
	looks := func(n, commits int) {
		for range n {
			for i := range commits {
				put(t, db, "k", fmt.Sprint(i))
			}
			r.look()
		}
	}
	looks(1, 0)
	looks(3, quietCommits+1)
	if r.judged != 0 {
		t.Error("judged under load")
	}
	looks(quietLooks-1, 1)
	if r.judged != 0 {
		t.Errorf("judged after %d quiet looks", quietLooks-1)
	}
	looks(1, 0)
	if r.judged != r.db.durable.Load() {
		t.Error("not judged when quiet")
	}
	looks(2*quietLooks, 0)
	if r.quiet < quietLooks {
		t.Error("judged again though nothing was committed")
	}
}
