package badgerdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// findings is what Options.Damaged has heard.
type findings struct {
	mu  sync.Mutex
	all []Damage
}

func (f *findings) damaged(_ context.Context, d Damage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, d)
}

func (f *findings) list() []Damage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// writeTables opens a database that has the keys burst-0000 to burst-0399 in tables.
func writeTables(t *testing.T, p Profile, f *findings) *DB {
	t.Helper()
	o := testOptions(t)
	o.Profile, o.Damaged = p, f.damaged
	db := openByHand(t, o)
	burst(t, db, 400)
	awaitTables(t, db, 2<<20)
	return db
}

// victim returns the path of the largest table, and its keys.
func victim(t testing.TB, db *DB) (path string, of badger.TableInfo) {
	t.Helper()
	for _, info := range db.Tables() {
		if info.OnDiskSize >= of.OnDiskSize {
			of = info
		}
	}
	if of.ID == 0 {
		t.Fatal("there are no tables")
	}
	return table.NewFilename(of.ID, db.Opts().Dir), of
}

// TestScrubFinds: damage to a table of an open database of which nobody reads a key.
func TestScrubFinds(t *testing.T) {
	flipAt := func(part func(int64) int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			vfstest.Flip(t, path, part)
		}
	}
	kinds := []struct {
		name, want string
		harm       func(*testing.T, string)
	}{
		{"start", "checksum is wrong", flipAt(func(int64) int64 { return 20 })},
		{"middle", "checksum is wrong", flipAt(func(n int64) int64 { return n / 2 })},
		{"end", "is unreadable", flipAt(func(n int64) int64 { return n - 1 })},
		{"half", "is unreadable", func(t *testing.T, path string) {
			t.Helper()
			// Not in its place: Badger itself would not survive that.
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".half", b[:len(b)/2], 0o600)
			}
			if err == nil {
				err = os.Rename(path+".half", path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"unreadable", "is unreadable", func(t *testing.T, path string) {
			t.Helper()
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o750)); err != nil {
				t.Fatal(err)
			}
		}},
		{"deleted", "is missing", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, profile := range []Profile{Log, State} {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v/%s", profile, kind.name), func(t *testing.T) {
				f := new(findings)
				db := writeTables(t, profile, f)
				path, info := victim(t, db)
				mustScrub(t, db)
				if u := db.Upkeep(); len(f.list()) != 0 || len(u.Damaged) != 0 || u.Scrubs != 1 ||
					u.ScrubbedBytes < uint64(info.OnDiskSize) || u.Scrubbed.IsZero() {
					t.Fatalf("before: %v, %+v", f.list(), u)
				}
				keep, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				kind.harm(t, path)
				mustScrub(t, db)
				mustScrub(t, db) // it is told again, to whom could not find out all about it
				got := f.list()
				if len(got) != 2 || got[0].Finding != got[1].Finding ||
					got[0].File != filepath.Base(path) ||
					!strings.Contains(got[0].What, kind.want) {
					t.Fatalf("found %v, want that %s %s", got, filepath.Base(path), kind.want)
				}
				if !got[0].Has([]byte("burst-0")) || got[0].Has([]byte("zz")) {
					t.Errorf("its keys are %q to %q", got[0].First, got[0].Last)
				}
				if u := db.Upkeep(); len(u.Damaged) != 1 || u.Damaged[0] != got[0].Finding {
					t.Errorf("upkeep tells %v, want %v", u.Damaged, got[0].Finding)
				}
				// To be closed.
				err = errors.Join(os.RemoveAll(path), os.WriteFile(path, keep, 0o600))
				if err != nil {
					t.Fatal(err)
				}
				mustClose(t, db)
			})
		}
	}
}

func mustScrub(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Scrub(); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestScrubForgets: a table that is not in use any more is not damaged.
func TestScrubForgets(t *testing.T) {
	f := new(findings)
	db := writeTables(t, Log, f)
	defer mustClose(t, db)
	path, _ := victim(t, db)
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 }) // within a value
	mustScrub(t, db)
	if n := len(db.Upkeep().Damaged); n != 1 {
		t.Fatalf("%d tables are damaged, want 1", n)
	}
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	deleteBurst(t, db, 400)
	if err := db.Reclaim(); err != nil {
		t.Fatal(err)
	}
	u := db.Upkeep()
	if len(u.Damaged) != 0 || u.Reclaims != 1 || u.ReclaimedBytes < 1<<20 || u.Reclaimed.IsZero() {
		t.Errorf("upkeep tells %+v", u)
	}
}

// TestScrubBesideCompactions: tables that are deleted while they are read are no finding.
func TestScrubBesideCompactions(t *testing.T) {
	f := new(findings)
	db := writeTables(t, Log, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 4 {
			burst(t, db, 400)
			deleteBurst(t, db, 400)
			if err := db.Reclaim(); err != nil {
				t.Error(err)
			}
		}
	}()
	for going := true; going; {
		mustScrub(t, db)
		select {
		case <-done:
			going = false
		default:
		}
	}
	if got := f.list(); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	mustClose(t, db)
}

// TestDeletedTableIsNoFinding: as [TestScrubBesideCompactions], but always at the same moment.
func TestDeletedTableIsNoFinding(t *testing.T) {
	db := writeTables(t, Log, new(findings))
	defer mustClose(t, db)
	path, info := victim(t, db)
	burst(t, db, 400)
	deleteBurst(t, db, 400)
	if err := db.Reclaim(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as Badger leaves it for a moment
		t.Fatal(err)
	}
	v, used := db.scrubber.look(info.ID), db.scrubber.isUsed(info.ID)
	if v.damage == nil || v.err != nil || v.whole || used {
		t.Errorf("it is %+v, in use %t", v, used)
	}
	if damage, err := db.scrubber.twice(info.ID); damage != nil || err != nil {
		t.Errorf("damage %v, error %v", damage, err)
	}
}

// TestWholeTableIsAFinding: what was read to its end is not excused by the table's being
// deleted meanwhile, as other things are.
func TestWholeTableIsAFinding(t *testing.T) {
	bad, worse := errors.New("bad"), errors.New("worse")
	whole, part := view{damage: bad, whole: true}, view{damage: worse}
	closed := view{err: syscall.EMFILE}
	for _, tt := range []struct {
		name         string
		first, again view
		used         bool
		want, err    error
	}{
		{name: "still there", first: whole, again: whole, used: true, want: bad},
		{name: "replaced after that", first: whole, again: whole, want: bad},
		{name: "replaced between", first: whole, again: part, want: bad},
		{name: "replaced before", first: part, again: part},
		{name: "missing and in use", first: part, again: part, used: true, want: worse},
		{name: "misread", first: whole, again: view{whole: true}, used: true},
		{name: "not opened again", first: whole, again: closed, used: true, want: bad},
		{name: "part, not opened again", first: part, again: closed, err: syscall.EMFILE},
		{name: "closing", first: whole, again: view{err: errInterrupted}, err: errInterrupted},
	} {
		damage, err := judge(tt.first, tt.again, tt.used)
		if !errors.Is(damage, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v, want %v, %v", tt.name, damage, err, tt.want, tt.err)
		}
	}
}

// TestScrubGoesByItself: an hour after the start, at its rate.
func TestScrubGoesByItself(t *testing.T) {
	f := new(findings)
	db := writeTables(t, State, f)
	defer mustClose(t, db)
	path, _ := victim(t, db)
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	size := tableBytes(db)
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(Options{
			ScrubRate: 64 << 10, Damaged: f.damaged, Logger: db.scrubber.log,
		})
		s.start(db)
		time.Sleep(scrubPause + time.Second)
		var u Upkeep
		if s.tell(&u); u.ScrubbedBytes == 0 || u.ScrubbedBytes > scrubPiece {
			t.Errorf("%d bytes were read after a second, want some, %d at most",
				u.ScrubbedBytes, scrubPiece)
		}
		time.Sleep(2 * time.Duration(size>>16) * time.Second) // the damaged one counts twice
		if s.tell(&u); u.Scrubs != 1 || len(f.list()) != 1 {
			t.Errorf("%d passes with %v", u.Scrubs, f.list())
		}
		s.stop()
	})
}

// TestScrubRests: while commits are slow, or wait for space.
func TestScrubRests(t *testing.T) {
	now := time.Now()
	var p pace
	want := func(at time.Duration, slow bool) {
		t.Helper()
		if p.isSlow(now.Add(at)) != slow {
			t.Errorf("after %v it is slow: %t, want %t", at, !slow, slow)
		}
	}
	want(0, false)
	p.begin(now)
	want(slowCommit-1, false)
	want(slowCommit, true)
	p.end(now.Add(slowCommit))
	want(slowCommit+slowFor-1, true)
	want(slowCommit+slowFor, false)
	p.begin(now.Add(time.Minute))
	p.end(now.Add(time.Minute + slowCommit - 1))
	want(time.Minute+slowCommit, false)

	db := mustOpen(t, testOptions(t))
	defer mustClose(t, db)
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(Options{})
		s.db = &DB{DB: db.DB, parts: parts{room: &room{}}}
		s.db.room.held.Store(true)
		read := make(chan error, 1)
		go func() { read <- s.mayRead() }()
		time.Sleep(time.Minute)
		select {
		case err := <-read:
			t.Errorf("it reads on a full disk: %v", err)
		default:
		}
		s.cancel()
		if err := <-read; !errors.Is(err, errInterrupted) {
			t.Error(err)
		}
	})
}

// TestGuard: a page of a table that cannot be read, and a panic, are errors.
func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := z.OpenMmapFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	sum := byte(0)
	for name, fn := range map[string]func() error{
		"page":  func() error { sum += file.Data[1<<15]; return nil },
		"panic": func() error { panic("a block is none") },
	} {
		if err := Guard(fn); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(z.Munmap(file.Data), file.Fd.Close()); err != nil {
		t.Error(err)
	}
}
