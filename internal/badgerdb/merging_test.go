package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// harms are bits of a table: the first one makes a block that cannot be unpacked, where blocks
// are packed, and the second one is in a value.
var harms = map[string]func(size int64) int64{ //nolint:gochecknoglobals // a constant
	"first block": func(int64) int64 { return 0 },
	"middle":      func(n int64) int64 { return n / 2 },
}

// compressible is like burst with values that compress, so that damage shows in the unpacking.
func compressible(t testing.TB, db *DB, n int) {
	t.Helper()
	change(t, db, n, 10, func(txn *Txn, key []byte) error {
		var value strings.Builder
		for i := range 300 {
			fmt.Fprintf(&value, "{%q: %d}", key, i*7919)
		}
		return txn.Set(key, []byte(value.String()))
	})
}

// writeCompressible opens a database that has such values in tables, and changes nothing more.
func writeCompressible(t testing.TB, o Options) *DB {
	t.Helper()
	db := openByHand(t, o)
	compressible(t, db, 1000)
	for d := newDeadline(t); db.room.isFlushing(); {
		d.wait("the flushes")
	}
	return db
}

// TestDamageIsNotMerged: a bit of a table rots, and a compaction comes before a scrub. Badger
// would drop the rest of the table, or give the damage a right checksum. The table must stay,
// the database fail, and the next start say what is damaged.
func TestDamageIsNotMerged(t *testing.T) {
	for _, profile := range []Profile{Log, State} {
		for name, harm := range harms {
			t.Run(fmt.Sprintf("%v/%s", profile, name), func(t *testing.T) {
				o := testOptions(t)
				o.Profile = profile
				db := writeCompressible(t, o)
				release := make(chan struct{})
				db.merges.mu.Lock()
				db.merges.halt = func() { db.broken.stop(); <-release }
				db.merges.mu.Unlock()
				path, info := victim(t, db)
				vfstest.Flip(t, path, harm)

				ended := make(chan struct{})
				err := db.broken.do(func() error { // as mergeLevels
					defer close(ended)
					return db.reclaimer.flatten()
				})
				if !errors.Is(err, ErrFailed) || !errors.Is(err, ErrDamaged) ||
					!strings.Contains(err.Error(), filepath.Base(path)) {
					t.Errorf("merge = %v, want that %s is damaged", err, filepath.Base(path))
				}
				if !db.scrubber.isUsed(info.ID) {
					t.Error("the damaged table was replaced")
				}
				_, err = Open(copied(t, o))
				if !errors.Is(err, ErrDamaged) ||
					!strings.Contains(err.Error(), filepath.Base(path)) {
					t.Errorf("the next start: %v, want that %s is damaged", err, path)
				}
				set := func(txn *Txn) error { return txn.Set([]byte("k"), nil) }
				if err := db.Commit(set); !errors.Is(err, ErrFailed) {
					t.Errorf("Commit = %v, want ErrFailed", err)
				}
				if err := db.Reclaim(); !errors.Is(err, ErrFailed) {
					t.Errorf("Reclaim = %v, want ErrFailed", err)
				}
				if err := db.Close(); !errors.Is(err, ErrFailed) {
					t.Errorf("Close = %v, want ErrFailed", err)
				}
				close(release) // a process would have ended
				<-ended
				if err := db.DB.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// mergeChildEnv names the directory in which a child of [TestMergeOfDamageEndsTheProcess] works.
const mergeChildEnv = "RAFTYARD_BADGERDB_MERGE_DIR"

// TestMergeOfDamageEndsTheProcess: as [TestDamageIsNotMerged], with a process that ends for it.
func TestMergeOfDamageEndsTheProcess(t *testing.T) {
	if dir := os.Getenv(mergeChildEnv); dir != "" {
		mergeDamage(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "db")
	child := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^TestMergeOfDamageEndsTheProcess$")
	child.Env = append(os.Environ(), mergeChildEnv+"="+dir)
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != mergeChildFailed {
		t.Fatalf("the child: %v, want code %d:\n%s", err, mergeChildFailed, out)
	}
	_, err = Open(Options{Dir: dir, MemTableSize: MinMemTableSize})
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("the next start: %v, want ErrDamaged", err)
	}
}

// mergeChildFailed is the code with which a process ends that has been told of the damage.
const mergeChildFailed = 37

func mergeDamage(t *testing.T, dir string) {
	t.Helper()
	o := Options{Dir: dir, MemTableSize: MinMemTableSize, minValue: math.MaxInt}
	db := writeCompressible(t, o)
	path, _ := victim(t, db)
	vfstest.Flip(t, path, harms["middle"])
	err := db.reclaimer.mergeLevels()
	for _, err := range []error{err, db.Close()} {
		if !errors.Is(err, ErrFailed) || !errors.Is(err, ErrDamaged) {
			t.Fatalf("merge and Close: %v, want ErrFailed and ErrDamaged", err)
		}
	}
	os.Exit(mergeChildFailed) // Badger's goroutines will not end
}

// TestReclaimLeavesDamage: what is damaged before all tables are merged is told as by a scrub,
// nothing is merged, and the database goes on.
func TestReclaimLeavesDamage(t *testing.T) {
	f := new(findings)
	db := writeTables(t, Log, f)
	defer mustClose(t, db)
	deleteBurst(t, db, 400)
	path, info := victim(t, db)
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	err := db.Reclaim()
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(path)) {
		t.Errorf("Reclaim = %v, want that %s is damaged", err, filepath.Base(path))
	}
	got, u := f.list(), db.Upkeep()
	if len(got) != 1 || got[0].File != filepath.Base(path) || len(u.Damaged) != 1 {
		t.Errorf("found %v, upkeep tells %v, want %s", got, u.Damaged, filepath.Base(path))
	}
	if !db.scrubber.isUsed(info.ID) {
		t.Error("the damaged table was replaced")
	}
	put(t, db, "k", "v")
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	if err := db.Reclaim(); err != nil || db.scrubber.isUsed(info.ID) {
		t.Errorf("Reclaim of what is sound again = %v; it is in use: %t",
			err, db.scrubber.isUsed(info.ID))
	}
}

// TestMergeWaitsToRead: a table that this process cannot open is not known to be damaged.
func TestMergeWaitsToRead(t *testing.T) {
	db := writeTables(t, Log, new(findings))
	defer mustClose(t, db)
	in := db.merges.in.Load()
	_, info := victim(t, db)
	in.lock.Lock()
	(*in.ids)[info.ID] = struct{}{}
	in.lock.Unlock()
	if got := in.tables(); !slices.Equal(got, []uint64{info.ID}) {
		t.Fatalf("compacted are %v, want %d", got, info.ID)
	}
	var tries atomic.Int32
	c := &mergeCheck{failed: func(err error) { t.Error(err) }}
	c.start(in, func(uint64) error {
		if tries.Add(1) < 3 {
			return &fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}
		}
		return nil
	}, t.Context().Done())
	c.merged()
	c.merged() // it is looked at once
	if n := tries.Load(); n != 3 {
		t.Errorf("it was read %d times, want 3", n)
	}
	in.lock.Lock()
	delete(*in.ids, info.ID)
	in.lock.Unlock()
	if c.merged(); len(c.looked) != 0 {
		t.Errorf("%v are remembered, though nothing is compacted", c.looked)
	}
}

// BenchmarkCheckBeforeMerge is what a compaction costs more by what it is made of being read
// again, in bytes of tables.
func BenchmarkCheckBeforeMerge(b *testing.B) {
	for _, profile := range []Profile{Log, State} {
		b.Run(profile.String(), func(b *testing.B) {
			db := writeCompressible(b, Options{
				Dir: b.TempDir(), MemTableSize: MinMemTableSize, Profile: profile,
				minValue: math.MaxInt,
			})
			path, info := victim(b, db)
			b.SetBytes(int64(info.OnDiskSize))
			for b.Loop() {
				if err := checkMapped(path, db.Opts().Compression); err != nil {
					b.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
