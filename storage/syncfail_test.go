package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/simdisk"
)

// TestEachSyncFails has each of the first thousand syncs of a store fail, one in each run:
// those of its opening, of commits and of what it does beside. Nothing is acknowledged
// after that, nothing is synced again, and after a power failure everything that was
// acknowledged is there.
func TestEachSyncFails(t *testing.T) {
	step := 1
	if testing.Short() && os.Getenv("RAFTYARD_TEST_SCALE") != "full" {
		step = 9
	}
	var acked, failedOpen, kept int
	for nth := 1; nth <= 1000; nth += step {
		f := &failing{t: t, nth: nth, rng: rand.New(rand.NewPCG(uint64(nth), 72))}
		f.disk = simdisk.New(f.rng.Uint64)
		f.disk.BeforeSync = f.beforeSync
		f.run()
		acked += f.acked
		kept += f.kept
		if f.acked == 0 {
			failedOpen++
		}
	}
	t.Logf("%d acknowledged batches, none lost; %d runs failed before the first; "+
		"%d batches were there that were not acknowledged", acked, failedOpen, kept)
}

// failing is one run.
type failing struct {
	t    *testing.T
	nth  int
	rng  *rand.Rand
	disk *simdisk.Disk

	syncs  int // so far
	acked  int // batches
	kept   int // batches that were not acknowledged and are there
	failed bool
	opened bool
}

func (f *failing) beforeSync(what string) error {
	f.syncs++
	if f.failed && f.opened {
		f.t.Errorf("sync %d of %s after that of number %d has failed", f.syncs, what, f.nth)
	}
	if f.syncs == f.nth {
		f.failed = true
		return errBroken
	}
	return nil
}

func (f *failing) open() (*Store, error) {
	return OpenOn(Options{
		Dir: "data", Cluster: uuid.UUID{1}, Node: 1, MemTableSize: 1 << 20,
	}, simulated(f.disk, f.rng))
}

const failingGroups = 3

func (f *failing) run() {
	s, err := f.open()
	if f.opened = err == nil; f.opened {
		f.work(s)
	} else if !f.failed {
		f.t.Fatalf("Open = %v without a failed sync", err)
	}
	f.disk.Crash()
	f.disk.BeforeSync = nil
	if s, err = f.open(); err != nil {
		f.t.Fatalf("sync %d failed: Open after that = %v", f.nth, err)
	}
	f.check(s)
	if err := s.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// work commits batches until one fails.
func (f *failing) work(s *Store) {
	b := s.NewBatch()
	for g := range raftyard.GroupID(failingGroups) {
		b.Create(Replica{Group: g + 1, Incarnation: raftyard.Incarnation{9}, ID: 1}, Update{})
	}
	err := b.Commit()
	for err == nil {
		f.acked++
		b = s.NewBatch()
		b.Update(f.target(f.acked), Update{
			HardState: &raftpb.HardState{
				Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(0)),
			},
			Entries: []*raftpb.Entry{f.entry(f.acked)},
		})
		if err = b.Commit(); err == nil && f.acked%5 == 0 {
			err = s.Keep()
		}
		if err != nil && s.Err() != nil && !f.failed {
			f.t.Fatalf("batch %d: %v without a failed sync", f.acked+1, err)
		}
		if f.failed && err == nil {
			f.t.Fatalf("sync %d failed, and batch %d was acknowledged", f.nth, f.acked+1)
		}
	}
	if !errors.Is(s.Err(), ErrFailed) {
		f.t.Fatalf("Err after a failed sync = %v, want ErrFailed", s.Err())
	}
	for range 3 {
		b = s.NewBatch()
		b.Update(1, Update{Entries: []*raftpb.Entry{f.entry(f.acked)}})
		if err := b.Commit(); !errors.Is(err, ErrFailed) {
			f.t.Errorf("Commit after a failed sync = %v, want ErrFailed", err)
		}
	}
	_ = s.Close() // whatever it says: it has failed before
}

// target returns the group of a batch, which are numbered from 1, and entry its entry.
func (f *failing) target(batch int) raftyard.GroupID {
	return raftyard.GroupID(batch%failingGroups + 1)
}

func (f *failing) entry(batch int) *raftpb.Entry {
	return &raftpb.Entry{
		Term: new(uint64(1)), Index: new(uint64((batch-1)/failingGroups + 1)),
		Data: fmt.Appendf(nil, "batch %d", batch),
	}
}

// check looks for all entries that were acknowledged: the first batch has none.
func (f *failing) check(s *Store) {
	for g := range raftyard.GroupID(failingGroups) {
		if l := s.Log(g + 1); l == nil && f.acked > 0 {
			f.t.Fatalf("sync %d failed: group %d is gone, or damaged", f.nth, g+1)
		}
	}
	for batch := 1; batch < f.acked; batch++ {
		g, want := f.target(batch), f.entry(batch)
		es, err := s.Log(g).Entries(want.GetIndex(), want.GetIndex()+1, 1<<20)
		if err != nil || len(es) != 1 || !bytes.Equal(es[0].GetData(), want.GetData()) {
			f.t.Fatalf("sync %d failed: batch %d, entry %d of group %d: %v, %v; %d were "+
				"acknowledged", f.nth, batch, want.GetIndex(), g, es, err, f.acked)
		}
	}
	if l := s.Log(f.target(f.acked)); f.acked > 0 && l != nil {
		if _, last := l.Bounds(); last >= f.entry(f.acked).GetIndex() {
			f.kept++
		}
	}
}
