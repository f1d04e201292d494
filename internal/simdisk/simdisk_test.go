package simdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seeded returns an empty disk.
func seeded(seed uint64) *Disk { return New(rand.New(rand.NewPCG(seed, 1)).Uint64) }

// wantOutcomes fails the test unless each of the wanted outcomes has been seen, and no
// other.
func wantOutcomes(t *testing.T, outcomes map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if outcomes[w] == 0 || len(outcomes) != len(want) {
			t.Errorf("outcomes are %v, want each of %q and no other", outcomes, want)
		}
	}
}

// check fails the test at the first error.
func check(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mustOpenDB(t testing.TB, d *Disk) kv.DB {
	t.Helper()
	db, err := d.OpenDB(badgerdb.Options{Dir: "/db"})
	check(t, err)
	return db
}

func set(db kv.DB, pairs ...string) error {
	return db.Commit(func(w kv.Writer) error {
		var errs []error
		for i := 0; i < len(pairs); i += 2 {
			errs = append(errs, w.Set([]byte(pairs[i]), []byte(pairs[i+1])))
		}
		return errors.Join(errs...)
	})
}

func remove(db kv.DB, key string) error {
	return db.Commit(func(w kv.Writer) error { return w.Delete([]byte(key)) })
}

// dump returns all that a snapshot shows.
func dump(t testing.TB, s kv.Snapshot) string {
	t.Helper()
	var out string
	check(t, s.Scan(func(key, value []byte, version uint64) error {
		got, err := s.Get(key)
		if !bytes.Equal(got, value) {
			t.Errorf("Get(%s) = %q, Scan shows %q", key, got, value)
		}
		out += fmt.Sprintf("%s=%s@%d ", key, value, version)
		return err
	}))
	return out
}

func contents(t testing.TB, db kv.DB) string {
	t.Helper()
	s := db.Snapshot()
	defer s.Discard()
	return dump(t, s)
}

func TestSnapshotStaysAsItWas(t *testing.T) {
	db := mustOpenDB(t, seeded(1))
	check(t, set(db, "a", "1", "b", "1"))
	old := db.Snapshot()
	check(t, set(db, "a", "2", "c", "2"), remove(db, "b"))
	mid := db.Snapshot()
	check(t, set(db, "b", "3"), remove(db, "a"))
	for range 3 {
		if got := dump(t, old); got != "a=1@2 b=1@2 " {
			t.Errorf("the first snapshot shows %s", got)
		}
		if got := dump(t, mid); got != "a=2@3 c=2@3 " {
			t.Errorf("the second snapshot shows %s", got)
		}
		check(t, set(db, "d", "4")) // forgets nothing of that
	}
	old.Discard()
	if got := dump(t, mid); got != "a=2@3 c=2@3 " {
		t.Errorf("the second snapshot shows %s when the first is discarded", got)
	}
	mid.Discard()
	mid.Discard() // no harm
	if got := contents(t, db); got != "b=3@5 c=2@3 d=4@8 " && got != "b=3@5 c=2@3 d=4@9 " {
		t.Errorf("the newest is %s", got)
	}
	if _, err := mid.Get([]byte("c")); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Discard = %v, want ErrClosed", err)
	}
	base := db.(*handle).base //nolint:errcheck // it is one
	for _, c := range base.cells {
		if len(c.values) != 1 {
			t.Errorf("%s has %d values that nobody sees", c.key, len(c.values)-1)
		}
	}
}

func TestTransactionHasLimits(t *testing.T) {
	d := seeded(1)
	db, err := d.OpenDB(badgerdb.Options{Dir: "/db", MemTableSize: badgerdb.MinMemTableSize})
	check(t, err)
	check(t, set(db, "k", "old"))
	err = db.Commit(func(w kv.Writer) error {
		return errors.Join(w.Set([]byte("k"), []byte("new")),
			w.Set([]byte("l"), make([]byte, db.MaxTxnBytes()-20)))
	})
	if !errors.Is(err, kv.ErrTooBig) {
		t.Errorf("Commit = %v, want ErrTooBig", err)
	}
	if got := contents(t, db); got != "k=old@2 " {
		t.Errorf("after a transaction that was too big: %s", got)
	}
	check(t, db.Commit(func(kv.Writer) error { return nil }), set(db, "k", "next"))
	if got := contents(t, db); got != "k=next@3 " {
		t.Errorf("an empty transaction took a version: %s", got)
	}
}

func TestFailedSyncIsForGood(t *testing.T) {
	outcomes := make(map[string]int)
	for seed := range uint64(50) {
		d := seeded(seed)
		db := mustOpenDB(t, d)
		check(t, set(db, "k", "1"), d.Files().SyncDir("/"))
		broken := errors.New("broken")
		d.BeforeSync = func(string) error { return broken }
		err := set(db, "k", "2", "l", "2")
		if !errors.Is(err, badgerdb.ErrFailed) || !errors.Is(err, broken) {
			t.Fatalf("Commit = %v, want ErrFailed", err)
		}
		d.BeforeSync = nil
		if again := set(db, "k", "3"); !errors.Is(again, badgerdb.ErrFailed) {
			t.Fatalf("Commit after a failed one = %v, want ErrFailed", again)
		}
		if got := contents(t, db); got != "k=1@2 " {
			t.Fatalf("a failed commit is visible: %s", got)
		}
		if seed%2 == 0 {
			check(t, db.Close())
		} else {
			d.Crash()
		}
		outcomes[fmt.Sprint(seed%2, contents(t, mustOpenDB(t, d)))]++
	}
	wantOutcomes(t, outcomes, "0k=1@2 ", "0k=2@3 l=2@3 ", "1k=1@2 ", "1k=2@3 l=2@3 ")
}

// TestKillLosesNothing: what a killed process has written stays, and what the next
// start shows survives a power failure.
func TestKillLosesNothing(t *testing.T) {
	for seed := range uint64(20) {
		d := seeded(seed)
		db := mustOpenDB(t, d)
		check(t, set(db, "k", "1"), d.Files().SyncDir("/"))
		killed := errors.New("killed")
		d.BeforeSync = func(string) error { d.Kill(); return killed }
		if err := set(db, "k", "2"); !errors.Is(err, ErrCrashed) {
			t.Fatalf("Commit = %v, want ErrCrashed", err)
		}
		d.BeforeSync = nil
		shown := contents(t, mustOpenDB(t, d))
		if shown != "k=2@3 " {
			t.Fatalf("after a kill: %s", shown)
		}
		d.Crash()
		if got := contents(t, mustOpenDB(t, d)); got != shown {
			t.Fatalf("was %s before the crash, is %s", shown, got)
		}
	}
}

// TestProcessThatIsUnwound: a goroutine ends inside of a sync.
func TestProcessThatIsUnwound(t *testing.T) {
	d := seeded(3)
	db := mustOpenDB(t, d)
	check(t, set(db, "k", "1"))
	d.BeforeSync = func(string) error { panic("unwound") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Commit returned")
			}
		}()
		_ = set(db, "k", "2") // does not return
	}()
	d.BeforeSync = nil
	if err := set(db, "k", "3"); err == nil {
		t.Error("a commit went past one that has not returned")
	}
	if got := d.Stats(); got.Failed != 0 || got.Syncs != 1 {
		t.Errorf("Stats = %+v, want one sync", got)
	}
}

// TestCommitsWaitForEachOther: one that comes while another waits for its sync waits
// in Until, without a lock.
func TestCommitsWaitForEachOther(t *testing.T) {
	d := seeded(1)
	db := mustOpenDB(t, d)
	d.Until = func(ready func() bool) {
		if !ready() {
			panic("waits")
		}
	}
	waited := false
	d.BeforeSync = func(string) error {
		defer func() { waited = recover() != nil }()
		return set(db, "k", "2") // another process, while this one waits
	}
	check(t, set(db, "k", "1"))
	if !waited {
		t.Error("the second commit did not wait")
	}
	d.BeforeSync = nil
	check(t, set(db, "k", "3"))
}

func TestWhatWasOpenIsDead(t *testing.T) {
	stops := map[string]func(*Disk){
		"crash": (*Disk).Crash, "kill": (*Disk).Kill, "wipe": (*Disk).Wipe,
		"lost tail": func(d *Disk) { d.LoseTail(1) },
	}
	for name, stop := range stops {
		d := seeded(1)
		files := d.Files()
		f, err := files.Create("/f")
		check(t, err)
		held, err := files.Lock("/LOCK")
		check(t, err)
		if _, err = files.Lock("/LOCK"); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("second Lock = %v, want ErrLocked", err)
		}
		db := mustOpenDB(t, d)
		if _, err = d.OpenDB(badgerdb.Options{Dir: "/db"}); !errors.Is(err, badgerdb.ErrLocked) {
			t.Errorf("second OpenDB = %v, want ErrLocked", err)
		}
		s := db.Snapshot()
		stop(d)
		_, werr := f.Write([]byte("x"))
		_, rerr := f.Read(make([]byte, 1))
		_, gerr := s.Get([]byte("k"))
		for i, err := range []error{
			werr, rerr, f.Sync(), f.Close(), held.Close(), gerr, set(db, "k", "v"), db.Close(),
			s.Scan(func(_, _ []byte, _ uint64) error { return nil }),
		} {
			if !errors.Is(err, ErrCrashed) {
				t.Errorf("%s: operation %d of the start before = %v, want ErrCrashed", name, i, err)
			}
		}
		s.Discard()
		again, err := files.Lock("/LOCK")
		check(t, err, again.Close())
		check(t, set(mustOpenDB(t, d), "k", "v"))
	}
}

// TestLoseTail: the newest commits of all databases vanish, the newest first.
func TestLoseTail(t *testing.T) {
	d := seeded(1)
	a := mustOpenDB(t, d)
	b, err := d.OpenDB(badgerdb.Options{Dir: "/b"})
	check(t, err, d.Files().SyncDir("/"))
	check(t, set(a, "k", "1"), set(b, "k", "1"), set(a, "k", "2", "l", "2"), remove(a, "k"))
	check(t, set(b, "k", "2"), set(a, "m", "3"))
	want := []string{
		"l=2@3 m=3@5 |k=2@3 ", "l=2@3 |k=2@3 ", "l=2@3 |k=1@2 ", "k=2@3 l=2@3 |k=1@2 ",
		"k=1@2 |k=1@2 ", "k=1@2 |", "|",
	}
	for i, want := range want {
		if i > 0 {
			if got := d.LoseTail(1); got != 1 {
				t.Fatalf("LoseTail = %d, want 1", got)
			}
		} else {
			d.Crash()
		}
		b, err = d.OpenDB(badgerdb.Options{Dir: "/b"})
		check(t, err)
		if got := contents(t, mustOpenDB(t, d)) + "|" + contents(t, b); got != want {
			t.Errorf("without %d: %s, want %s", i, got, want)
		}
	}
	if got := d.LoseTail(1); got != 0 {
		t.Errorf("LoseTail of nothing = %d", got)
	}
	db := mustOpenDB(t, d)
	for range keepCommits + 10 {
		check(t, set(db, "k", "v"))
	}
	if got := d.LoseTail(1000); got != keepCommits {
		t.Errorf("LoseTail = %d, want all that is remembered, %d", got, keepCommits)
	}
}

func TestCorruption(t *testing.T) {
	d := seeded(1)
	db := mustOpenDB(t, d)
	check(t, set(db, "a", "value a", "b", "value b", "c", "value c"))
	onlyB := func(key []byte) bool { return string(key) == "b" }
	key, err := d.CorruptRecord("/db", onlyB)
	check(t, err)
	s := db.Snapshot()
	got, err := s.Get(key)
	check(t, err)
	if string(key) != "b" || string(got) == "value b" || len(got) != len("value b") {
		t.Errorf("%s is %q", key, got)
	}
	s.Discard()
	check(t, db.Close())
	if key, err = d.LoseRecord("/db", onlyB); err != nil || string(key) != "b" {
		t.Errorf("LoseRecord = %s, %v", key, err)
	}
	if got := contents(t, mustOpenDB(t, d)); got != "a=value a@2 c=value c@2 " {
		t.Errorf("without b: %s", got)
	}
	if _, err = d.CorruptRecord("/db", onlyB); err == nil {
		t.Error("a record that is not there was corrupted")
	}
	d.Kill()
	check(t, d.DamageDB("/db", "bad table"))
	if _, err = d.OpenDB(badgerdb.Options{Dir: "/db"}); !errors.Is(err, badgerdb.ErrDamaged) {
		t.Errorf("OpenDB = %v, want ErrDamaged", err)
	}

	f, err := d.Files().Create("/f")
	check(t, err)
	if err = d.CorruptFile("/f"); err == nil {
		t.Error("an empty file was corrupted")
	}
	_, err = io.WriteString(f, "content")
	check(t, err, f.Sync(), d.CorruptFile("/f"))
	b, err := d.Files().ReadFile("/f")
	if err != nil || string(b) == "content" || len(b) != 7 {
		t.Errorf("ReadFile = %q, %v", b, err)
	}
	if err = d.CorruptFile("/g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CorruptFile = %v, want ErrNotExist", err)
	}
}
