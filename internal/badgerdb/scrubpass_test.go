package badgerdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/raftyard/raftyard/internal/vfs/vfstest"
)

// TestScrubPassesOver: a table that cannot be opened does not keep the others from being read.
func TestScrubPassesOver(t *testing.T) {
	f := new(findings)
	db := writeTables(t, Log, f)
	defer mustClose(t, db)
	all := db.Tables()
	if len(all) < 2 {
		t.Fatalf("%d tables, want some", len(all))
	}
	path, _ := victim(t, db)
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	refused := 0
	db.scrubber.open = func(p string) (*uncached, error) {
		if p != path {
			refused++
			return nil, &os.PathError{Op: "open", Path: p, Err: syscall.EMFILE}
		}
		return openUncached(p)
	}
	err := db.Scrub()
	if u := db.Upkeep(); !errors.Is(err, syscall.EMFILE) || u.ScrubsFailed != 1 || u.Scrubs != 0 {
		t.Errorf("Scrub = %v, upkeep tells %+v", err, u)
	}
	if got := f.list(); len(got) != 1 || refused != len(all)-1 {
		t.Errorf("found %v, and %d of %d tables could not be opened", got, refused, len(all))
	}
}

// TestCloseEndsScrub: also while what was found is looked into, which it waits for, and for good.
func TestCloseEndsScrub(t *testing.T) {
	o, told, closed := testOptions(t), make(chan struct{}), make(chan struct{})
	early := false
	o.Damaged = func(ctx context.Context, _ Damage) {
		close(told)
		<-ctx.Done()
		select { // the longest that Close would take, if it did not wait
		case <-closed:
			early = true
		case <-time.After(500 * time.Millisecond):
		}
	}
	db := openByHand(t, o)
	burst(t, db, 400)
	awaitTables(t, db, 2<<20)
	path, _ := victim(t, db)
	vfstest.Flip(t, path, func(n int64) int64 { return n / 2 })
	scrubbed := make(chan error, 1)
	go func() { scrubbed <- db.Scrub() }()
	<-told
	mustClose(t, db)
	close(closed)
	if err := <-scrubbed; !errors.Is(err, errInterrupted) || early {
		t.Errorf("Scrub = %v; the database was closed before: %t", err, early)
	}
	if err := db.Scrub(); !errors.Is(err, errInterrupted) {
		t.Errorf("Scrub of a closed database = %v, want that it has ended", err)
	}
}

// TestScrubIsNotHeldUp: who asks for a pass does not wait for a slow or full disk, nor for the
// rate of the background.
func TestScrubIsNotHeldUp(t *testing.T) {
	o := testOptions(t)
	o.ScrubRate = 1
	db := openByHand(t, o)
	burst(t, db, 100)
	db.pace.begin(time.Now().Add(-time.Hour))
	mustScrub(t, db)
	db.pace.end(time.Now())
	mustClose(t, db)
}

// TestUncachedFallsBack: what cannot be read past the cache is read as others do.
func TestUncachedFallsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := openUncached(path)
	if err != nil {
		t.Fatal(err)
	}
	if u.past { // a file that only writes refuses reads: it stands for one that knows no others
		if err = u.File.Close(); err != nil {
			t.Fatal(err)
		}
		if u.File, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			t.Fatal(err)
		}
		if b, err := u.read(0); err != nil || string(b) != "content" || u.direct == nil {
			t.Errorf("read = %q, %v; why past the cache failed: %v", b, err, u.direct)
		}
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}
