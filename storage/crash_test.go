package storage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/kv"
)

const (
	crashDirEnv    = "RAFTYARD_CRASH_DIR"    // set for the child
	crashRoundsEnv = "RAFTYARD_CRASH_ROUNDS" // how often to kill, default 20
	crashGroups    = 4
)

// crashScript is an endless list of batches. Batch n depends on n and on the
// batches before it alone, so the child that commits them and the parent that
// checks what is left agree on them without talking.
type crashScript struct {
	n      uint64
	groups [crashGroups]*modelReplica
}

// next fills b, if there is one, with batch n+1 and applies it to the model.
// Group 0 holds the number of the batch.
func (c *crashScript) next(t failer, b *Batch) {
	c.n++
	rng := rand.New(rand.NewPCG(1, c.n))
	for g := range raftyard.GroupID(crashGroups) {
		r := c.groups[g]
		if r == nil {
			r = &modelReplica{info: testReplica(g), mem: raft.NewMemoryStorage()}
			c.groups[g] = r
			if b != nil {
				b.Create(r.info, Update{})
			}
		}
		u := c.update(t, rng, r)
		if g == 0 {
			u.Meta = []byte(strconv.FormatUint(c.n, 10))
		}
		r.apply(t, u)
		if b != nil {
			b.Update(g, u)
		}
	}
}

func (c *crashScript) update(t failer, rng *rand.Rand, r *modelReplica) Update {
	var u Update
	start, last := r.bounds()
	if rng.IntN(40) == 0 {
		last += 3
		u.Snapshot, u.Reset = snapshotAt(last, c.n/10+1), true
		start = last
	}
	first := last + 1
	if rng.IntN(8) == 0 && !u.Reset {
		first -= min(uint64(rng.IntN(4)), last-start)
	}
	term := c.n/10 + 1
	for i := range uint64(1 + rng.IntN(5)) {
		size := 10 + rng.IntN(300)
		if i == 0 && c.n%5 == uint64(r.info.Group) {
			size = 30_000 // more than one record holds
		}
		u.Entries = append(u.Entries, &raftpb.Entry{
			Index: new(first + i), Term: new(term),
			Data: bytes.Repeat([]byte{byte(c.n), byte(first + i)}, size/2),
		})
	}
	u.HardState = hardStateOf(term, 1, first)
	if rng.IntN(10) == 0 && !u.Reset && first > start+1 && first-1 > r.snaps {
		u.Snapshot = snapshotAt(first-1, r.term(t, first-1))
		u.CompactTo = max(start, first-min(first, 1+rng.Uint64N(20)))
	}
	return u
}

// TestCrashChild is the process that TestCrash kills.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		t.Skip("started by TestCrash")
	}
	s := mustOpen(t, testOptions(dir))
	defer mustClose(t, s)
	s.recordLimit = 20_000
	script := scriptOf(t, s)
	for {
		// What deletes and fills goes on between the batches, so that kills hit it.
		err := errors.Join(
			s.giveBack(spaceLimits{group: 1000, store: 1 << 20}),
			s.collect(),
			s.fill(int(script.n%3*40_000)),
		)
		if script.n%8 == 0 {
			db, ok := s.db.(kv.Badger)
			if !ok {
				t.Fatalf("the database is a %T", s.db)
			}
			err = errors.Join(err, db.Reclaim())
		}
		if err != nil {
			t.Fatal(err)
		}
		b := s.NewBatch()
		script.next(t, b)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Println("committed", script.n, s.Stats().Deletes); err != nil {
			t.Fatal(err)
		}
	}
}

// scriptOf returns the script at the batch that the store has come to.
func scriptOf(t failer, s *Store) *crashScript {
	var n uint64
	if r, ok := s.Replica(0); ok {
		var err error
		if n, err = strconv.ParseUint(string(r.Meta), 10, 64); err != nil {
			t.Fatalf("meta of group 0 is %q: %v", r.Meta, err)
		}
	}
	script := new(crashScript)
	for script.n < n {
		script.next(t, nil)
	}
	return script
}

// TestCrash kills a process that commits batches, again and again, and demands
// that what is left is all that was acknowledged and at most one batch more.
func TestCrash(t *testing.T) {
	rounds := 20
	if v := os.Getenv(crashRoundsEnv); v != "" {
		var err error
		if rounds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(2, 3))
	var acked, deletes uint64
	for round := range rounds {
		a, d := runAndKill(t, dir, rng.IntN(60))
		acked, deletes = max(acked, a), deletes+d

		s := mustOpen(t, testOptions(dir))
		script := scriptOf(t, s)
		if script.n != acked && script.n != acked+1 {
			t.Fatalf("round %d: came back with batch %d, acknowledged was %d",
				round, script.n, acked)
		}
		acked = script.n
		for g, want := range script.groups {
			if want == nil {
				continue
			}
			l := s.Log(raftyard.GroupID(g))
			if l == nil {
				t.Fatalf("round %d: %+v", round, s.Replicas())
			}
			compareLogs(t, want.mem, l)
			start, last := want.bounds()
			compareEntries(t, want.mem, l, start+1, last+1, 1<<40)
		}
		mustClose(t, s)
	}
	if deletes == 0 {
		t.Error("nothing was given back")
	}
	t.Logf("%d kills, %d batches, %d deletions", rounds, acked, deletes)
}

// runAndKill starts a child, kills it after it has acknowledged so many batches,
// and returns the last it acknowledged, and how many keys it had deleted then.
func runAndKill(t *testing.T, dir string, batches int) (acked, deletes uint64) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
	child.Env = append(os.Environ(), crashDirEnv+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = child.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewScanner(io.TeeReader(out, &said))
	for n := 0; lines.Scan(); n++ {
		// What was printed before the kill has been acknowledged, so all is read.
		if v, ok := strings.CutPrefix(lines.Text(), "committed "); ok {
			if _, err = fmt.Sscan(v, &acked, &deletes); err != nil {
				t.Fatal(err)
			}
		}
		if n == batches {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || child.ProcessState.Exited() {
		t.Fatalf("child ended by itself: %v\n%s", err, said.String())
	}
	return acked, deletes
}
