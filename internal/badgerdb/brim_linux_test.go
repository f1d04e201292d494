package badgerdb

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// brimEnv has the test run its child: so many times the disk gets full.
const brimEnv = "RAFTYARD_BRIM_ROUNDS"

// TestDiskFilledToTheBrim has another writer fill the disk under a database that is
// written, flushed and compacted as fast as it can. There must be no signal, nothing
// acknowledged may be missing, and writing goes on when there is space again. The child
// that does it has a mount namespace of its own with a small tmpfs.
func TestDiskFilledToTheBrim(t *testing.T) {
	if rounds, err := strconv.Atoi(os.Getenv(brimEnv)); err == nil {
		brim(t, rounds)
		return
	}
	rounds := 5
	if os.Getenv("RAFTYARD_TEST_SCALE") == "full" {
		rounds = 200
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^TestDiskFilledToTheBrim$", "-test.v")
	cmd.Env = append(os.Environ(), brimEnv+"="+strconv.Itoa(rounds))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENOSPC)
	if denied && os.Getenv("CI") == "" {
		t.Skipf("no user namespaces here: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the child: %v", err)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip("the child has done nothing")
	}
}

// A brimWriter writes values of its own choice, and knows what was acknowledged.
type brimWriter struct {
	db     *DB
	stop   chan struct{}
	done   chan struct{}
	acked  map[string]uint64 // key to the number that begins its value
	number uint64
	failed error
}

func (w *brimWriter) run() {
	defer close(w.done)
	dice := rand.New(rand.NewPCG(w.number, 1))
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		key := fmt.Sprintf("key-%02d", dice.IntN(60))
		value := make([]byte, 8+dice.IntN(60<<10))
		for i := range value {
			value[i] = byte(dice.Uint32())
		}
		w.number++
		copy(value, fmt.Sprintf("%08d", w.number))
		err := w.db.Commit(func(txn *badger.Txn) error { return txn.Set([]byte(key), value) })
		if err != nil {
			w.failed = err
			return
		}
		w.acked[key] = w.number
	}
}

// brim is the child.
func brim(t *testing.T, rounds int) {
	mnt := t.TempDir()
	if err := unix.Mount("tmpfs", mnt, "tmpfs", 0, "size=96m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a tmpfs: %v", err)
		}
		t.Skipf("a tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := Options{
		Dir: filepath.Join(mnt, "db"), MemTableSize: MinMemTableSize, Profile: State,
		Logger: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelError})),
	}
	w := &brimWriter{acked: make(map[string]uint64)}
	for round := range rounds {
		w.db = mustOpen(t, o)
		w.check(t)
		w.stop, w.done = make(chan struct{}), make(chan struct{})
		// All at once only before there is something under way: nothing helps against
		// that while a table is written.
		// A table that is being written can still fault when another program takes the last
		// block, since Badger gives no chance to allocate it: so that is for the long run.
		atOnce := round%2 == 0 || os.Getenv("RAFTYARD_TEST_SCALE") != "full"
		began := time.Now()
		var filled int64
		if atOnce {
			filled = fill(t, mnt, true)
			go w.run()
		} else {
			go w.run()
			filled = fill(t, mnt, false)
		}
		for d := newDeadline(t); !w.db.Held(); {
			d.wait("the hold")
		}
		t.Logf("round %d: %d MiB written in %v until the disk was full (at once: %t)",
			round, filled>>20, time.Since(began).Round(time.Millisecond), atOnce)
		if err := os.Remove(filepath.Join(mnt, "other")); err != nil {
			t.Fatal(err)
		}
		before, freed := w.db.NextTs(), time.Now()
		for d := newDeadline(t); w.db.NextTs() < before+20; {
			d.wait("writing to go on")
		}
		t.Logf("round %d: writing again after %v", round,
			time.Since(freed).Round(time.Millisecond))
		close(w.stop)
		<-w.done
		if w.failed != nil {
			t.Fatal(w.failed)
		}
		w.check(t)
		if err := w.db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *brimWriter) check(t *testing.T) {
	t.Helper()
	for key, number := range w.acked {
		if got := get(t, w.db, key); !strings.HasPrefix(got, fmt.Sprintf("%08d", number)) {
			t.Fatalf("%s = %.8q, want %d", key, got, number)
		}
	}
}

// fill takes all the space that there is, as another program would, at once or as fast as it
// can write, and tries again for a while, half a second later.
func fill(t *testing.T, dir string, once bool) (total int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	chunk := make([]byte, 1<<20)
	full := false
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if once {
			free, err := freeSpace(dir)
			if err == nil && free > 0 && allocate(f, total+free) == nil {
				total += free
				if _, err := f.Seek(total, io.SeekStart); err != nil {
					t.Fatal(err)
				}
			}
			once = false
		}
		n, err := f.Write(chunk)
		total += int64(n)
		switch {
		case err == nil:
		case !errors.Is(err, unix.ENOSPC):
			t.Fatal(err)
		case !full:
			full, until = true, time.Now().Add(600*time.Millisecond)
			again := time.NewTimer(500 * time.Millisecond)
			<-again.C
		}
	}
	return total
}
