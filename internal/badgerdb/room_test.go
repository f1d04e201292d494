package badgerdb

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// testRoom is a room in a directory with as much free space as free says.
func testRoom(t *testing.T, free *atomic.Int64) *room {
	t.Helper()
	o := Options{Dir: t.TempDir(), MemTableSize: MinMemTableSize}.withDefaults()
	r := newRoom(o)
	r.free = func(string) (int64, error) { return free.Load(), nil }
	return r
}

func TestHoldHasHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := testRoom(t, &free)
		steps := []struct {
			free     int64
			wantHeld bool
		}{
			{free: 100 * r.need},
			{free: r.need + r.need/10, wantHeld: false},
			{free: r.need - 1, wantHeld: true},
			{free: r.need, wantHeld: true},
			{free: r.need + r.need/4 - 1, wantHeld: true},
			// The reserve is still there, so it need not be made again.
			{free: r.need + r.need/4, wantHeld: false},
			{free: r.need + r.need/10, wantHeld: false},
		}
		for i, st := range steps {
			free.Store(st.free)
			time.Sleep(time.Hour) // nothing shrinks fast
			r.look()
			if got := r.held.Load(); got != st.wantHeld {
				t.Errorf("step %d, %d bytes free, %d needed: held = %t, want %t",
					i, st.free, r.need, got, st.wantHeld)
			}
		}
	})
}

// TestReserveAtTheEnd: the reserve is given back when there is nothing left, however fast that
// has gone, and when the next log has got no blocks, whatever is said to be free.
func TestReserveAtTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		free int64
		next string
	}{
		{"nothing is left", lastSpace - 1, ""},
		{"a quota", 100 * holdSpace(MinMemTableSize), "next"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var free atomic.Int64
			r := testRoom(t, &free)
			free.Store(100 * r.need)
			r.look()
			full := filepath.Join(filepath.Dir(r.reserve.path), walName(1))
			if err := os.WriteFile(full, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			free.Store(tt.free)
			r.reserve.allocate = func(string, int64) error { return syscall.ENOSPC }
			r.rotated(full, tt.next, tt.next == "")
			r.look()
			if _, err := os.Stat(r.reserve.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a flush is under way and the reserve is still there: %v", err)
			}
		})
	}
}

// A disk that fills up fast must end writing while there is still much of it.
func TestHoldFollowsTheSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := testRoom(t, &free)
		free.Store(1000 * r.need)
		r.look()
		time.Sleep(100 * time.Millisecond)
		free.Add(-50 * r.need) // in a second everything would be half gone
		r.look()
		if r.held.Load() {
			t.Error("held with 950 times the space that is needed, going at 500 a second")
		}
		time.Sleep(100 * time.Millisecond)
		free.Store(450 * r.need) // at this speed less than a second is left
		if wait := r.look(); !r.held.Load() {
			t.Errorf("not held 0.1 s before the disk is full; the next look is in %v", wait)
		}
		// The speed is forgotten.
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			r.look()
		}
		if r.held.Load() {
			t.Error("held ten seconds after the disk has stopped to fill up")
		}
	})
}

// TestLateLookIsNoSpeed: the next log gets its blocks slowly, and who commits looks
// meanwhile. What was seen before that is out of date, and makes nothing faster.
func TestLateLookIsNoSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := testRoom(t, &free)
		free.Store(100 * r.need)
		r.look()
		r.reserve.allocate = func(string, int64) error {
			time.Sleep(time.Second)
			r.glance() // 10 times the need in a second
			time.Sleep(3 * time.Second)
			return nil
		}
		r.rotated("", "next", false)
		free.Add(-10 * r.need)
		r.look()
		if got := r.speed.PerSecond(); got > 10*r.need {
			t.Errorf("%d times the need go in a second, want 10 at most", got/r.need)
		}
		if r.seen.Free != free.Load() {
			t.Errorf("%d bytes are seen as free, want %d", r.seen.Free, free.Load())
		}
	})
}

func TestReserveIsForWhatIsUnderWay(t *testing.T) {
	var free atomic.Int64
	r := testRoom(t, &free)
	free.Store(100 * r.need)
	r.look()
	info, err := os.Stat(r.reserve.path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 0 {
		t.Errorf("the reserve is %d bytes long, want an empty file with blocks", info.Size())
	}
	free.Store(r.table - 1)
	r.look()
	if _, err := os.Stat(r.reserve.path); err != nil {
		t.Errorf("the reserve is given back though nothing is under way: %v", err)
	}
	free.Store(r.need / 2)
	full := filepath.Join(filepath.Dir(r.reserve.path), walName(1))
	if err := os.WriteFile(full, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.rotated(full, "", true)
	r.look()
	if _, err := os.Stat(r.reserve.path); err != nil {
		t.Errorf("the reserve is given back, for others to take, while there is space: %v", err)
	}
	for _, shrinking := range []int64{r.table - 1, r.table / 2, lastSpace} {
		free.Store(shrinking)
		r.look()
		if _, err := os.Stat(r.reserve.path); err != nil {
			t.Fatalf("the reserve is given back while others still take what is left: %v", err)
		}
	}
	r.look() // nothing has gone since
	if _, err := os.Stat(r.reserve.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a flush is under way and the reserve is still there: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	free.Store(100 * r.need)
	r.speed.Forget()
	if r.look(); r.held.Load() {
		t.Error("held though there is space again")
	}
	if _, err := os.Stat(r.reserve.path); err != nil {
		t.Errorf("the reserve is not made again: %v", err)
	}
}

func TestCommitWaitsForSpace(t *testing.T) {
	db := mustOpen(t, testOptions(t))
	put(t, db, "before", "x")
	var full atomic.Bool
	real := db.room.free
	db.room.mu.Lock()
	db.room.free = func(dir string) (int64, error) {
		if full.Load() {
			return db.room.need - 1, nil
		}
		return real(dir)
	}
	db.room.mu.Unlock()
	full.Store(true)
	done := make(chan error, 1)
	go func() {
		done <- db.Commit(func(txn *Txn) error { return txn.Set([]byte("held"), nil) })
	}()
	for d := newDeadline(t); !db.Held(); {
		d.wait("the hold")
	}
	select {
	case err := <-done:
		t.Fatalf("Commit on a full disk = %v, want it to wait", err)
	default:
	}
	full.Store(false)
	if err := <-done; err != nil {
		t.Fatalf("Commit when there is space again = %v", err)
	}
	full.Store(true)
	go func() {
		done <- db.Commit(func(txn *Txn) error { return txn.Set([]byte("never"), nil) })
	}()
	for d := newDeadline(t); !db.Held(); {
		d.wait("the hold")
	}
	db.StopWaiting()
	if err := <-done; !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
		t.Errorf("Commit that was ended = %v, want ErrNoSpace alone", err)
	}
	full.Store(false)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log has its blocks before anything is written to it: that one and the next.
func TestLogsHaveTheirBlocks(t *testing.T) {
	o := testOptions(t)
	db := mustOpen(t, o)
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		left, err := filepath.Glob(filepath.Join(o.Dir, "*.mem"))
		if err != nil || len(left) > 0 {
			t.Errorf("left after closing: %q %v", left, err)
		}
	}()
	if db.wal.size == 0 {
		t.Skip("the file system of the test cannot allocate ahead")
	}
	value := string(make([]byte, 100<<10))
	for i := range 25 { // more than one log
		put(t, db, string(rune('a'+i)), value)
		if err := db.mover.wait(db.NextTs() - 1); err != nil {
			t.Fatal(err)
		}
		if got := blocks(t, filepath.Join(o.Dir, db.journal.name)); got < walSize(o.MemTableSize) {
			t.Fatalf("commit %d: %s has %d bytes of blocks, want %d",
				i, db.journal.name, got, walSize(o.MemTableSize))
		}
		for _, id := range []uint64{db.wal.active(), db.wal.active() + 1} {
			path := filepath.Join(o.Dir, walName(id))
			if got := blocks(t, path); got < walSize(o.MemTableSize) {
				t.Fatalf("commit %d: %s has %d bytes of blocks, want %d",
					i, path, got, walSize(o.MemTableSize))
			}
		}
	}
	if db.wal.next.Load() < 4 {
		t.Errorf("the next log is %d: no log was full", db.wal.next.Load())
	}
}

// What Badger's goroutines could not write ends the database, which Badger would not.
func TestFailureInTheBackground(t *testing.T) {
	for _, text := range failTexts {
		db := mustOpen(t, testOptions(t))
		put(t, db, "a", "x")
		log, ok := db.Opts().Logger.(logger)
		if !ok {
			t.Fatalf("Badger logs to a %T", db.Opts().Logger)
		}
		log.halt = nil // it would stop the test
		log.Errorf(text+": %v", "no")
		err := db.Commit(func(txn *Txn) error { return txn.Set([]byte("b"), nil) })
		if !errors.Is(err, ErrFailed) {
			t.Errorf("Commit after %q = %v, want ErrFailed", text, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestQuota: there is free space, and none for us. That is said once, tried again now and
// then, and ends when it is over.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := testRoom(t, &free)
		var said bytes.Buffer
		r.log = slog.New(slog.NewTextHandler(&said, nil))
		tries, quota := 0, error(syscall.EDQUOT)
		r.reserve.allocate = func(path string, size int64) error {
			tries++
			return quota
		}
		free.Store(100 * r.need)
		r.look()
		if !r.held.Load() {
			t.Error("not held, and there is not even space for the reserve")
		}
		r.rotated("", filepath.Join(t.TempDir(), walName(2)), false)
		for range 1000 {
			r.look()
			time.Sleep(nearLook)
		}
		if !r.held.Load() {
			t.Error("not held, and the next log has no blocks")
		}
		if lines := strings.Count(said.String(), "\n"); lines != 2 || tries > 50 {
			t.Errorf("%d tries in 20 s, and %d lines:\n%s", tries, lines, said.String())
		}
		quota = nil
		for range 100 {
			r.look()
			time.Sleep(nearLook)
		}
		if r.held.Load() || !r.reserve.there || r.nextLog() != "" {
			t.Errorf("held: %t, reserve: %t, log without blocks: %q",
				r.held.Load(), r.reserve.there, r.nextLog())
		}
	})
}

// TestNobodyWaitsForBlocks: while the file system takes its time with blocks, who commits
// waits for no lock.
func TestNobodyWaitsForBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		r := testRoom(t, &free)
		asked, answer := make(chan struct{}), make(chan error)
		r.reserve.allocate = func(string, int64) error {
			close(asked)
			return <-answer
		}
		free.Store(100 * r.need)
		done := make(chan struct{})
		go func() {
			r.look()
			close(done)
		}()
		<-asked
		r.build()
		r.rotated("", "", true)
		free.Store(r.need - 1)
		r.glance()
		if !r.held.Load() {
			t.Error("not held with too little space")
		}
		answer <- nil
		<-done
	})
}
