//go:build unix

package crash

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestCrash kills three nodes that share a process at all kinds of moments, while
// groups are created, written, moved, cut off, deleted and created again.
func TestCrash(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 4)
	defer l.report()
	l.run(rounds(t, 20, 60, 400),
		sayStart, sayOK, sayTry, phaseFound, phaseOpen, phaseRead, phaseRead2, phaseDurable,
		phaseRestore, phaseRestore2, phaseDestroy, phaseDestroy2)
}

// TestAppliedOnce kills nodes while clients append to lists and write keys, and
// demands that each write that was acknowledged is there once, each other one once
// at most, and that all replicas agree, on the order too. The index that a state
// machine has applied must never part from its state.
func TestAppliedOnce(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, nodes, 2)
			defer l.report()
			l.run(rounds(t, 4, 15, 200), sayOK, phaseDurable)
		})
	}
}

// TestAlwaysStarts kills nodes just after an answer and just after replicas were
// founded. Each start must come to serve every group.
func TestAlwaysStarts(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, nodes, 6)
			defer l.report()
			l.run(rounds(t, 4, 15, 500), sayOK, sayTry, phaseFound, phaseOpen)
		})
	}
}

// TestKilledInFirstStart kills nodes in the first start in their directories, which are
// empty each time: while identities and databases are made, the cluster is founded, and
// the first groups are created. The next start must serve, and have what was acknowledged.
func TestKilledInFirstStart(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 2)
	defer l.report()
	root, many, early := l.orders.Dir, rounds(t, 2, 10, 200), 0
	for i := range many {
		l.orders.Dir = filepath.Join(root, strconv.Itoa(i))
		l.ledger = newLedger()
		served := len(l.starts)
		l.live(l.takeAim(nil))
		if len(l.starts) == served {
			early++
		}
		l.run(0) // the next start shows what there is
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(l.orders.Dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d were killed before they served", early, many)
	if many >= 10 && early == 0 {
		t.Error("no first start was interrupted")
	}
}

// TestKilledInInstall kills nodes between the steps of installing a snapshot, and
// between those of taking one and cutting the log.
func TestKilledInInstall(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 3)
	defer l.report()
	l.run(rounds(t, 6, 20, 200),
		phaseRestore, phaseRestore2, phaseRead, phaseRead2, phaseDurable)
}

// TestKilledInRemoval kills nodes just after a replica has learned that it is
// removed, and is deleted. The members that stay may not know durably yet that the
// removal is committed, and would wait for the votes of the one that is gone.
func TestKilledInRemoval(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 12)
	defer l.report()
	l.run(rounds(t, 10, 40, 400), phaseDestroy, phaseDestroy2)
}

// TestKilledFollower kills one node again and again, in the steps of installing a
// snapshot for most, while two others, in another process, go on writing and cut
// their logs, so that it always needs one. Each time it must catch up, without
// anything being done to the others.
func TestKilledFollower(t *testing.T) {
	t.Parallel()
	l := newLoop(t, 3, 3)
	l.relayed()
	f := newLoop(t, 3, 3)
	f.orders = l.orders
	f.listens = l.listens
	f.orders.Run, f.orders.Follow = []raftyard.NodeID{3}, true
	l.orders.Run = []raftyard.NodeID{1, 2}
	l.patience = time.Hour // they work until the follower was killed often enough
	ctx, cancel := context.WithCancel(t.Context())
	l.ctx = ctx
	var others sync.WaitGroup
	others.Go(func() { l.live(aim{Phase: phaseOpen, Nth: 1 << 30}) })
	for range rounds(t, 5, 20, 200) {
		if !f.live(f.takeAim([]string{
			phaseRestore, phaseRestore, phaseRestore2, phaseRestore2, phaseFound, phaseDurable,
			phaseDestroy, sayStart,
		})) {
			break
		}
	}
	cancel()
	others.Wait()
	if len(f.ledger.complaints) > 0 {
		t.Errorf("life %d of the follower, to be killed %v:\n%s", f.lives, f.orders.Aim,
			strings.Join(f.ledger.complaints, "\n"))
	}
	f.report()
	l.ctx, l.orders.Run = t.Context(), nil
	l.run(0) // all three show what they have
	l.report()
}

// TestTeeth has children lie, and loses files, and demands that it is noticed.
func TestTeeth(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lie  lie
		want string
	}{
		{lieUnwritten, "is lost"},
		{lieTwice, "applied twice"},
		{lieUndeleted, "acknowledged as deleted"},
		{lieHalf, "is there in parts"},
	} {
		t.Run(string(tt.lie), func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, 1, 2)
			l.orders.Lie, l.orders.Calm = tt.lie, true
			l.live(aim{Phase: sayOK, Nth: 150})
			wantComplaint(t, l, tt.want)
		})
	}
	for _, dir := range []string{"log", "state"} {
		t.Run("lost-"+dir, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, 1, 2)
			l.orders.Calm = true // the logs no longer reach back to the beginning
			l.live(aim{Phase: sayOK, Nth: 400})
			loseNewest(t, filepath.Join(l.orders.Dir, "n1", dir))
			wantComplaint(t, l, "lost")
		})
	}
}

// loseNewest removes the newest file of a database's journal, and Badger's own logs, which have
// the same where the journal is gone altogether.
func loseNewest(t *testing.T, dir string) {
	t.Helper()
	journal, err := filepath.Glob(filepath.Join(dir, "*.jnl"))
	if err != nil || len(journal) == 0 {
		t.Fatal("there is no journal: ", err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil || len(logs) == 0 {
		t.Fatal("Badger has no log: ", err)
	}
	for _, path := range append(logs, slices.Max(journal)) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// wantComplaint demands that nothing was wrong so far, and that something is now.
func wantComplaint(t *testing.T, l *loop, want string) {
	t.Helper()
	if len(l.ledger.complaints) > 0 {
		t.Fatalf("wrong before it ought to be: %q", l.ledger.complaints)
	}
	l.check()
	text := strings.Join(l.ledger.complaints, "\n")
	if !strings.Contains(text, want) {
		t.Errorf("complaints are %q, want one with %q", text, want)
	}
	t.Logf("%d complaints, such as: %.300s", len(l.ledger.complaints), text)
}
