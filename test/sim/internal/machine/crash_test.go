package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/machine"
)

// A life is a durable machine on a simulated disk that crashes.
type life struct {
	t    *testing.T
	dice *rand.Rand
	disk *simdisk.Disk
	c    *check.Checker
	sm   group.StateMachine

	index    uint64
	promised uint64   // durable, as the machine has said
	hashes   [][]byte // by index, of a machine in memory
	snaps    [][]byte // by index
}

func newLife(t *testing.T, seed uint64) *life {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	l := &life{
		t: t, dice: dice, disk: simdisk.New(dice.Uint64), c: check.New(check.Config{}),
		hashes: [][]byte{hashOf(t, memoryMachine(t))},
		snaps:  [][]byte{snapshotOf(t, memoryMachine(t))},
	}
	return l
}

func memoryMachine(t *testing.T) group.StateMachine {
	t.Helper()
	sm, err := machine.Memory(machine.Config{})(group.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return sm
}

func hashOf(t *testing.T, sm group.StateMachine) []byte {
	t.Helper()
	h, ok := sm.(group.Hasher)
	if !ok {
		t.Fatal("no Hasher")
	}
	hash, err := h.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func snapshotOf(t *testing.T, sm group.StateMachine) []byte {
	t.Helper()
	s, err := sm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err = s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// prepare notes what a machine looks like after each of n indexes.
func (l *life) prepare(n uint64) {
	// The checker sees it too, and compares what the other one applies.
	sm, err := machine.Memory(machine.Config{Observer: l.c})(group.Env{Node: 2, Replica: 2})
	if err != nil {
		l.t.Fatal(err)
	}
	for i := range n {
		if _, err := sm.Apply(l.batch(i+1, i+1)); err != nil {
			l.t.Fatal(err)
		}
		l.hashes = append(l.hashes, hashOf(l.t, sm))
		l.snaps = append(l.snaps, snapshotOf(l.t, sm))
	}
}

// batch is the commands of indexes: two at each third.
func (l *life) batch(from, to uint64) []group.Command {
	var batch []group.Command
	for i := from; i <= to; i++ {
		batch = append(batch, group.Command{Index: i, Data: command(int(i))})
		if i%3 == 0 {
			batch = append(batch, group.Command{Index: i, Offset: 1, Data: command(int(i) + 1000)})
		}
	}
	return batch
}

// open opens the machine after a crash: it must be in a state that it once was in,
// and not before the one that it has vouched for. Syncs may fail meanwhile.
func (l *life) open() {
	l.t.Helper()
	for {
		sm, err := machine.Durable(machine.Config{
			Files: l.disk.Files(), Observer: l.c,
			Sync: func() bool { return l.dice.IntN(4) == 0 },
		})(group.Env{Node: 1, Replica: 1, Dir: "replicas/1"})
		if err == nil {
			l.sm = sm
			break
		}
		if !errors.Is(err, errDisk) {
			l.t.Fatalf("open: %v", err)
		}
		l.stop()
	}
	at := l.applied()
	if at < l.promised || at > l.index {
		l.t.Fatalf("the machine is at %d, it was durable up to %d and had applied %d",
			at, l.promised, l.index)
	}
	l.index, l.promised = at, at
	l.check()
}

// stop ends the machine's process, and at times the power too.
func (l *life) stop() {
	l.c.Crashed(1, check.LostNothing)
	if l.dice.IntN(2) == 0 {
		l.disk.Kill()
		return
	}
	l.disk.Crash()
}

var errDisk = errors.New("I/O error")

// failing has one sync in so many fail, from now on.
func (l *life) failing(in int) {
	l.disk.BeforeSync = func(string) error {
		if l.dice.IntN(in) == 0 {
			return errDisk
		}
		return nil
	}
}

func (l *life) applied() uint64 {
	l.t.Helper()
	d, ok := l.sm.(group.Durable)
	if !ok {
		l.t.Fatal("not Durable")
	}
	index, err := d.Applied()
	if err != nil {
		l.t.Fatal(err)
	}
	return index
}

func (l *life) check() {
	l.t.Helper()
	if got := hashOf(l.t, l.sm); !bytes.Equal(got, l.hashes[l.index]) {
		l.t.Fatalf("at index %d the hash is %x, want %x", l.index, got, l.hashes[l.index])
	}
	if err := l.c.Err(); err != nil {
		l.t.Fatal(err)
	}
}

// step does one thing with the machine. After a failure of the disk it is over with
// the machine, and what it was doing is durable or not.
func (l *life) step(last uint64) {
	l.t.Helper()
	to := min(l.index+1+l.dice.Uint64N(4), last)
	var err error
	switch dice := l.dice.IntN(20); {
	case dice == 0 && l.index < last: // jumps over some by a snapshot
		if err = l.sm.Restore(bytes.NewReader(l.snaps[to])); err == nil {
			l.promised = to
		}
		l.index = to
	case dice < 3:
		l.stop()
		l.open()
	case dice < 6:
		l.promised = l.applied()
	case l.index < last:
		_, err = l.sm.Apply(l.batch(l.index+1, to))
		l.index = to
	}
	switch {
	case err == nil:
		l.check()
	case errors.Is(err, errDisk) && errors.Is(err, group.ErrFatal):
		l.stop()
		l.open()
	default:
		l.t.Fatal(err)
	}
}

// TestCrash has a durable machine crash at any moment, and come back.
func TestCrash(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	const last = 400
	behind := 0
	for seed := range seeds {
		l := newLife(t, seed)
		l.prepare(last)
		l.open()
		l.failing(30)
		for l.index < last {
			before := l.index
			l.step(last)
			if l.index < before {
				behind++
			}
		}
	}
	if behind == 0 {
		t.Error("no crash has ever lost anything")
	}
}

// TestFailedSync: after a failure of the disk the machine does nothing any more.
func TestFailedSync(t *testing.T) {
	for fail := range 4 {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			l := newLife(t, 1)
			l.prepare(8)
			l.open()
			n := 0
			l.disk.BeforeSync = func(string) error {
				if n++; n > fail {
					return errDisk
				}
				return nil
			}
			err := l.sm.Restore(bytes.NewReader(l.snaps[3]))
			if !errors.Is(err, group.ErrFatal) || !errors.Is(err, errDisk) {
				t.Errorf("Restore = %v", err)
			}
			if got := hashOf(t, l.sm); !bytes.Equal(got, l.hashes[0]) {
				t.Error("a failed restore has changed the state")
			}
			if _, err := l.sm.Apply(l.batch(1, 1)); !errors.Is(err, group.ErrFatal) {
				t.Errorf("Apply = %v", err)
			}
			if err := l.sm.Restore(bytes.NewReader(l.snaps[3])); !errors.Is(err, group.ErrFatal) {
				t.Errorf("Restore again = %v", err)
			}
			if d, ok := l.sm.(group.Durable); ok {
				if _, err := d.Applied(); !errors.Is(err, group.ErrFatal) {
					t.Errorf("Applied = %v", err)
				}
			}
		})
	}
}
