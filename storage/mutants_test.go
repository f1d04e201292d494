//go:build mutants

package storage

import (
	"math/rand/v2"
	"testing"

	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/simdisk"
)

// planted returns a store with entries 1 to 3 of term 1 and a bug.
func planted(t *testing.T, seed uint64, bug mutant.Bug) *faulty {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	f := &faulty{disk: simdisk.New(rng.Uint64)}
	f.opts, f.on = testOptions("/node"), simulated(f.disk, rng)
	var err error
	if f.store, err = OpenOn(f.opts, f.on); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, f.store, func(b *Batch) {
		b.Create(testReplica(1), Update{
			Entries: entriesOf(1, 3, 1), HardState: hardStateOf(1, 1, 3),
		})
	})
	mutant.Set(bug)
	t.Cleanup(func() { mutant.Set(mutant.None) })
	return f
}

func (f *faulty) again(t *testing.T) *Log {
	t.Helper()
	s, err := OpenOn(f.opts, f.on)
	if err != nil {
		t.Fatal(err)
	}
	return s.Log(1)
}

// TestTornUpdate: a crash comes between the entries and their hard state.
func TestTornUpdate(t *testing.T) {
	torn := 0
	for seed := range uint64(20) {
		f := planted(t, seed, mutant.TornUpdate)
		f.after(1, "crash")
		err := commit(f.store, func(b *Batch) {
			b.Update(1, Update{Entries: entriesOf(4, 1, 2), HardState: hardStateOf(2, 1, 4)})
		})
		if err == nil {
			t.Fatal("the batch took one sync")
		}
		f.disk.BeforeSync = nil
		l := f.again(t)
		if _, last := l.Bounds(); last == 4 && l.HardState().GetTerm() == 1 {
			torn++
		}
		mutant.Set(mutant.None)
	}
	if torn == 0 {
		t.Error("nothing was torn")
	}
}

// TestClampTail: the newest batch is lost, and the log is opened without it.
func TestClampTail(t *testing.T) {
	f := planted(t, 1, mutant.ClampTail)
	mustCommit(t, f.store, func(b *Batch) { b.Update(1, Update{Entries: entriesOf(4, 1, 1)}) })
	if err := f.store.Keep(); err != nil {
		t.Fatal(err)
	}
	f.disk.LoseTail(1)
	if _, last := f.again(t).Bounds(); last != 3 {
		t.Errorf("last is %d, want the clamped 3", last)
	}
}
