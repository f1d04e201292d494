package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test runs itself twice: brimRoundsEnv says to the first child, which has a mount namespace
// of its own, how often the disk gets full; brimDiskEnv and brimLedgerEnv say to its children,
// which do that, where the disk is that it has made for them, and their ledger.
const (
	brimRoundsEnv = "RAFTYARD_BRIM_ROUNDS"
	brimDiskEnv   = "RAFTYARD_BRIM_DISK"
	brimLedgerEnv = "RAFTYARD_BRIM_LEDGER"
)

// TestDiskFilledToTheBrim has another writer fill the disk under a database that is
// written, flushed and compacted as fast as it can. Nothing acknowledged may be missing,
// and writing goes on when there is space again.
//
// The process must not end. At full scale it is started again when it has ended by the signal
// for a table without blocks, which can still come, see tableBlocks, and came in none of 1,000
// rounds: so it is told what that costs, and how often it was.
func TestDiskFilledToTheBrim(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(brimRoundsEnv))
	switch disk := os.Getenv(brimDiskEnv); {
	case disk != "":
		brim(t, disk, openLedger(t, os.Getenv(brimLedgerEnv)), rounds)
		return
	case err == nil:
		keepBrim(t, rounds)
		return
	}
	rounds = 5
	if fullScale() {
		rounds = 200
	}
	cmd := brimCommand(t, brimRoundsEnv+"="+strconv.Itoa(rounds))
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
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

// brimCommand is this test in a process of its own, which ends with this one.
func brimCommand(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^TestDiskFilledToTheBrim$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// keepBrim makes a small tmpfs and has others work on it until all rounds are done.
func keepBrim(t *testing.T, rounds int) {
	// A child is ended when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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
	path := filepath.Join(t.TempDir(), "ledger")
	ledger, faults := openLedger(t, path), 0
	for {
		out, err := brimCommand(t, brimDiskEnv+"="+mnt, brimLedgerEnv+"="+path).CombinedOutput()
		if err == nil && ledger.rounds(t) == rounds {
			break
		}
		t.Logf("%s", out)
		if !fullScale() || !faultedInTable(out) {
			t.Fatalf("a child that has come to round %d: %v", ledger.rounds(t), err)
		}
		if faults++; faults > rounds/20 {
			t.Fatalf("%d ends by a signal in %d rounds", faults, ledger.rounds(t))
		}
	}
	if faults > 0 {
		t.Errorf("%d ends by a signal while a table was written, in %d rounds, want none; "+
			"nothing is missing after it", faults, rounds)
	}
}

// faultedInTable reports whether a process has ended by the signal for a page that has no
// block, as a table was copied into its file.
func faultedInTable(out []byte) bool {
	_, trace, ok := bytes.Cut(out, []byte("[signal SIGBUS: bus error"))
	if !ok {
		return false
	}
	// The signal, an empty line, and the goroutine that it was sent to, until an empty line.
	parts := bytes.SplitN(trace, []byte("\n\n"), 3)
	return len(parts) > 1 && bytes.HasPrefix(parts[1], []byte("goroutine ")) &&
		bytes.Contains(parts[1], []byte("badger/v4/table.(*buildData).Copy("))
}

// A brimWriter writes values of its own choice.
type brimWriter struct {
	db     *DB
	ledger *brimLedger
	stop   chan struct{}
	done   chan struct{}
	failed error
}

func (w *brimWriter) run() {
	defer close(w.done)
	dice := rand.New(rand.NewPCG(w.ledger.last, 1))
	for w.failed == nil {
		select {
		case <-w.stop:
			return
		default:
		}
		value := make([]byte, 8+dice.IntN(60<<10))
		for i := range value {
			value[i] = byte(dice.Uint32())
		}
		w.failed = w.write(dice.IntN(brimKeys), value)
	}
}

func (w *brimWriter) write(key int, value []byte) error {
	number, err := w.ledger.begin(key)
	if err != nil {
		return err
	}
	copy(value, fmt.Sprintf("%08d", number))
	err = w.db.Commit(func(txn *Txn) error {
		return txn.Set([]byte(brimKey(key)), value)
	})
	if err != nil {
		return err
	}
	return w.ledger.acknowledge(key, number)
}

// brim does the rounds that are not done yet.
func brim(t *testing.T, disk string, ledger *brimLedger, rounds int) {
	o := Options{
		Dir: filepath.Join(disk, "db"), MemTableSize: MinMemTableSize, Profile: State,
		Logger: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelError})),
	}
	other := filepath.Join(disk, "other")
	if err := os.Remove(other); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for round := ledger.rounds(t); round < rounds; round++ {
		w := &brimWriter{
			db: mustOpen(t, o), ledger: ledger,
			stop: make(chan struct{}), done: make(chan struct{}),
		}
		ledger.check(t, w.db)
		// All at once only before there is something under way: nothing helps against that
		// while a table is written. What can still fault is for the long run.
		atOnce := round%4 == 0 || !fullScale()
		began := time.Now()
		var filled int64
		if atOnce {
			filled = fill(t, other, true)
			go w.run()
		} else {
			go w.run()
			filled = fill(t, other, false)
		}
		for d := newDeadline(t); !w.db.Held(); {
			d.wait("the hold")
		}
		t.Logf("round %d: %d MiB written in %v until the disk was full (at once: %t)",
			round, filled>>20, time.Since(began).Round(time.Millisecond), atOnce)
		if err := os.Remove(other); err != nil {
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
		ledger.check(t, w.db)
		if err := w.db.Close(); err != nil {
			t.Fatal(err)
		}
		ledger.roundDone(t)
	}
}

// fill takes all the space that there is, as another program would, at once or as fast as it
// can write, and tries again for a while, half a second later.
func fill(t *testing.T, path string, once bool) (total int64) {
	t.Helper()
	f, err := os.Create(path)
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
			free, err := freeSpace(filepath.Dir(path))
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
