package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// testOptions are those of a database that has all its values in tables.
func testOptions(t *testing.T) Options {
	t.Helper()
	return Options{Dir: t.TempDir(), MemTableSize: MinMemTableSize, minValue: math.MaxInt}
}

func fullScale() bool { return os.Getenv("RAFTYARD_TEST_SCALE") == "full" }

// bothWays runs a test with the options of a database that has its values in tables, and with
// those of one that leaves them in the journal.
func bothWays(t *testing.T, test func(t *testing.T, options func(*testing.T) Options)) {
	t.Helper()
	t.Run("values in tables", func(t *testing.T) { test(t, testOptions) })
	t.Run("values in the journal", func(t *testing.T) { test(t, valueOptions) })
}

func mustOpen(t testing.TB, o Options) *DB {
	t.Helper()
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func put(t *testing.T, db *DB, key, value string) {
	t.Helper()
	err := db.Commit(func(txn *Txn) error { return txn.Set([]byte(key), []byte(value)) })
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, db *DB, key string) string {
	t.Helper()
	s := db.Snapshot()
	defer s.Discard()
	value, err := s.read([]byte(key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// read returns the value of a key.
func (s *Snapshot) read(key []byte) (value []byte, err error) {
	if err = s.Err(); err != nil {
		return nil, err
	}
	item, err := s.Get(key)
	if err != nil {
		return nil, err
	}
	err = s.Value(item, func(b []byte) error {
		value = bytes.Clone(b)
		return nil
	})
	return value, err
}

func TestCommitIsThereAfterReopen(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		t.Run(profile.String(), func(t *testing.T) {
			bothWays(t, func(t *testing.T, options func(*testing.T) Options) {
				o := options(t)
				o.Profile = profile
				testCommitIsThereAfterReopen(t, o)
			})
		})
	}
}

func testCommitIsThereAfterReopen(t *testing.T, o Options) {
	long := func(round int) string { return strings.Repeat(fmt.Sprint(round), 5000) }
	for round := range 3 {
		start := time.Now()
		db := mustOpen(t, o)
		t.Logf("opened in %v, timestamp %d", time.Since(start), db.NextTs())
		if round > 0 {
			if got, want := get(t, db, "k"), fmt.Sprint(round-1); got != want {
				t.Errorf("after reopening k = %s, want %s", got, want)
			}
			if got, want := get(t, db, "long"), long(round-1); got != want {
				t.Errorf("after reopening long = %.20q (%d), want %.20q", got, len(got), want)
			}
		}
		put(t, db, "k", fmt.Sprint(round))
		put(t, db, "long", long(round))
		mustClose(t, db)
	}
}

// deadline bounds the waiting for something that Badger does in the background.
type deadline struct {
	t     testing.TB
	until time.Time
	clock *time.Ticker
}

func newDeadline(t testing.TB) *deadline {
	t.Helper()
	d := &deadline{
		t: t, until: time.Now().Add(time.Minute), clock: time.NewTicker(5 * time.Millisecond),
	}
	t.Cleanup(d.clock.Stop)
	return d
}

func (d *deadline) wait(what string) {
	d.t.Helper()
	if time.Now().After(d.until) {
		d.t.Fatalf("waited in vain for %s", what)
	}
	<-d.clock.C
}
