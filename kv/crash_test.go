package kv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

const (
	crashChildEnv  = "RAFTYARD_KV_CRASH_CHILD"  // mode and directory, in the child
	crashRoundsEnv = "RAFTYARD_KV_CRASH_ROUNDS" // how many kills, default 20
)

// crashChild is the process that is killed. It prints a line when it is ready,
// and one for each thing that is durable.
func crashChild() int {
	mode, dir, _ := strings.Cut(os.Getenv(crashChildEnv), ":")
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if err == nil {
		smallWriteSets(s)
		fmt.Println("ready 0")
		switch mode {
		case "apply":
			err = crashApply(s)
		case "restore":
			err = crashRestore(s, dir)
		case "destroy":
			err = crashDestroy(s, dir)
		}
	}
	fmt.Fprintln(os.Stderr, "child ended:", err)
	return 1
}

// crashEntry is the commands of the entry at an index: a function of the index.
func crashEntry(index uint64) []group.Command {
	rng := rand.New(rand.NewPCG(index, 7))
	var batch []group.Command
	key := func() []byte { return fmt.Appendf(nil, "key%03d", rng.IntN(300)) }
	for offset := range 1 + rng.IntN(6) {
		var data []byte
		value := binary.BigEndian.AppendUint64(nil, rng.Uint64())
		switch rng.IntN(6) {
		case 0:
			data = encodeDelete(key(), Cond{})
		case 1:
			data = encodeTxn(Txn{
				Compares: []Compare{{Key: key(), Target: TargetRevision, Is: Greater}},
				Then: []Op{
					{Kind: OpPut, Key: key(), Value: value},
					{Kind: OpDelete, Key: key()},
				},
				Else: []Op{{Kind: OpPut, Key: key(), Value: value}, {Kind: OpGet, Key: key()}},
			})
		default:
			data = encodePut(key(), bytes.Repeat(value, rng.IntN(20)), Cond{})
		}
		batch = append(batch, group.Command{Index: index, Offset: offset, Data: data})
	}
	return batch
}

// crashModel is the state after all commands up to a position.
func crashModel(tb testing.TB, upTo position) *model {
	tb.Helper()
	m := newModel()
	for index := uint64(1); index <= upTo.index; index++ {
		for _, c := range crashEntry(index) {
			if !upTo.covers(c.Index, uint64(c.Offset)) {
				continue
			}
			cmd, err := decodeCommand(c.Data)
			if err != nil {
				tb.Fatal(err)
			}
			// A precondition that fails is a result, too.
			_, _ = m.run(cmd)
		}
	}
	m.position = upTo
	return m
}

// crashApply goes on from where the store is, as a node does after a restart.
func crashApply(s *Store) error {
	m, err := s.Open(testReplica(1))
	if err != nil {
		return err
	}
	applied, err := m.Applied()
	if err != nil {
		return err
	}
	for index := applied + 1; ; {
		var batch []group.Command
		for range 3 {
			batch = append(batch, crashEntry(index)...)
			index++
		}
		if _, err = m.Apply(batch); err != nil {
			return err
		}
		if index%5 != 0 {
			continue // the next ones come before it is written, or while it is
		}
		if applied, err = m.Applied(); err != nil {
			return err
		}
		fmt.Println("applied", applied)
	}
}

// crashRestore installs two snapshots in turn.
func crashRestore(s *Store, dir string) error {
	m, err := s.Open(testReplica(1))
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := restoreFile(m, filepath.Join(dir, "snapshot"+strconv.Itoa(i%2))); err != nil {
			return err
		}
		fmt.Println("restored", i%2)
	}
}

func restoreFile(m *Machine, path string) error {
	stream, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return m.Restore(bytes.NewReader(stream))
}

// crashDestroy fills one group after the other and destroys it.
func crashDestroy(s *Store, dir string) error {
	replicas, err := s.Replicas()
	if err != nil {
		return err
	}
	next := raftyard.GroupID(1)
	for _, r := range replicas {
		next = max(next, r.Group+1)
	}
	for ; ; next++ {
		m, err := s.Open(testReplica(next))
		if err != nil {
			return err
		}
		if err := restoreFile(m, filepath.Join(dir, "snapshot0")); err != nil {
			return err
		}
		if err := m.Destroy(); err != nil {
			return err
		}
		fmt.Println("destroyed", next)
	}
}

// runAndKill runs a child and kills it some time after it is ready. It returns
// the number of the last thing that the child said is durable, or zero.
func runAndKill(t *testing.T, mode, dir string, delay time.Duration) uint64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), crashChildEnv+"="+mode+":"+dir)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	last := uint64(0)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		if word == "ready" {
			// exec kills with SIGKILL when the context ends.
			timer = time.AfterFunc(delay, cancel)
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("child said %q", lines.Text())
		}
		last = n
	}
	if timer != nil {
		timer.Stop()
	}
	if err := child.Wait(); err == nil || stderr.Len() > 0 {
		t.Fatalf("child ended by itself: %v\n%s", err, stderr.String())
	}
	return last
}

func crashRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv(crashRoundsEnv)
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", crashRoundsEnv, err)
	}
	return n
}

// TestCrash kills a process with SIGKILL again and again, and checks what is left.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	rounds := crashRounds(t)
	for _, mode := range []struct {
		name  string
		check func(t *testing.T, dir string, last uint64)
	}{
		{"apply", checkCrashedApply},
		{"restore", checkCrashedRestore},
		{"destroy", checkCrashedDestroy},
	} {
		t.Run(mode.name, func(t *testing.T) {
			dir := t.TempDir()
			writeCrashSnapshots(t, dir)
			for round := range (rounds + 2) / 3 {
				delay := time.Duration(rand.IntN(60)) * time.Millisecond
				last := runAndKill(t, mode.name, dir, delay)
				t.Logf("round %d: killed after %v, last was %d", round, delay, last)
				mode.check(t, dir, last)
			}
		})
	}
}

// writeCrashSnapshots makes two snapshots, with different keys, at the indexes 100
// and 400.
func writeCrashSnapshots(t *testing.T, dir string) {
	t.Helper()
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	index := uint64(1)
	for i, upTo := range []uint64{100, 400} {
		var batch []group.Command
		for ; index <= upTo; index++ {
			batch = append(batch, crashEntry(index)...)
		}
		if _, err := m.Apply(batch); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "snapshot"+strconv.Itoa(i))
		if err := os.WriteFile(path, snapshotBytes(t, m), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkCrashedApply(t *testing.T, dir string, last uint64) {
	s := openCrashed(t, dir)
	defer closeCrashed(t, s)
	m := openMachine(t, s, testReplica(1))
	if m.state.position.applied() < last {
		t.Fatalf("applied %d, but %d was acknowledged", m.state.position.applied(), last)
	}
	t.Logf("position %+v", m.state.position)
	want := crashModel(t, m.state.position)
	checkState(t, m, want)
	checkNothingElse(t, s, uint64(len(want.items)))

	// Replaying from Applied leads to the same state as never having crashed.
	applied, err := m.Applied()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(crashEntry(applied + 1)); err != nil {
		t.Fatal(err)
	}
	checkState(t, m, crashModel(t, m.state.position))
}

func checkCrashedRestore(t *testing.T, dir string, _ uint64) {
	s := openCrashed(t, dir)
	defer closeCrashed(t, s)
	m := openMachine(t, s, testReplica(1))
	want := newModel()
	if p := m.state.position; p != (position{}) {
		if p.index != 100 && p.index != 400 {
			t.Fatalf("position %+v is that of no snapshot", p)
		}
		want = crashModel(t, p)
	}
	checkState(t, m, want)
	checkNothingElse(t, s, uint64(len(want.items)))
}

func checkCrashedDestroy(t *testing.T, dir string, last uint64) {
	s := openCrashed(t, dir)
	defer closeCrashed(t, s)
	replicas, err := s.Replicas()
	if err != nil {
		t.Fatal(err)
	}
	items := uint64(0)
	for _, r := range replicas {
		if uint64(r.Group) <= last {
			t.Errorf("%v is there, but was destroyed", r)
		}
		m := openMachine(t, s, r)
		want := crashModel(t, m.state.position)
		checkState(t, m, want)
		items += uint64(len(want.items))
	}
	if len(replicas) > 1 {
		t.Errorf("%d replicas are left, want at most the last one", len(replicas))
	}
	checkNothingElse(t, s, items)
	for _, r := range replicas {
		m, err := s.Open(r)
		if err == nil {
			t.Errorf("%v was opened twice", m.replica)
		}
	}
	for r := range s.open {
		s.unregister(r, nil) // as if the process were another
		if err := s.Destroy(r); err != nil {
			t.Error(err)
		}
	}
}

func openCrashed(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := OpenStore(StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatalf("OpenStore after a crash: %v", err)
	}
	smallWriteSets(s)
	return s
}

func closeCrashed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// checkNothingElse waits for the background deletion and makes sure that the
// database holds so many items, and no generation that is not live.
func checkNothingElse(t *testing.T, s *Store, items uint64) {
	t.Helper()
	waitCleaned(t, s)
	flushAll(t, s)
	err := s.db.Read(func(at badgerdb.Reader) error {
		found := uint64(0)
		if err := eachKey(at, []byte{itemPrefix}, func(*badger.Item) error {
			found++
			return nil
		}); err != nil {
			return err
		}
		if found != items {
			t.Errorf("%d items are stored, want %d", found, items)
		}
		_, left, err := scanGenerations(at)
		if len(left) > 0 {
			t.Errorf("generations %v are left over", left)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
