package grouptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing/iotest"

	"github.com/raftyard/raftyard/group"
)

// checkResults: one result for each command, the same on every replica.
func checkResults(r run) {
	tb, s := r.tb, r.suite
	a, b := s.open(tb), s.open(tb)
	for i := range 20 {
		ra, rb := a.apply(1), b.apply(1)
		for j := range ra {
			if ra[j].Index != 0 {
				tb.Errorf("entry %d: a result's Index is %d; it is not for the machine to fill in",
					i, ra[j].Index)
			}
			if !bytes.Equal(ra[j].Data, rb[j].Data) {
				tb.Errorf("entry %d: one replica answers %q, another %q",
					i, ra[j].Data, rb[j].Data)
			}
		}
	}
	b.wantState(a.state(), "two replicas after the same commands")
}

// checkBatches: how commands are put together in calls of Apply makes no difference.
func checkBatches(r run) {
	tb, s := r.tb, r.suite
	one, many := s.open(tb), s.open(tb)
	var want, got []group.Result
	for range 60 {
		want = append(want, one.apply(1)...)
	}
	for _, n := range []int{1, 7, 2, 30, 20} {
		got = append(got, many.apply(n)...)
	}
	same := func(a, b group.Result) bool { return bytes.Equal(a.Data, b.Data) }
	if !slices.EqualFunc(want, got, same) {
		tb.Errorf("the results depend on how commands are batched")
	}
	many.wantState(one.state(), "after the same commands in other batches")
}

// checkData: the machine neither modifies a command's data nor keeps it.
func checkData(r run) {
	tb, s := r.tb, r.suite
	want, m := s.open(tb), s.open(tb)
	batch := m.batch(10)
	before := make([]string, len(batch))
	for i, c := range batch {
		before[i] = string(c.Data)
	}
	m.applyBatch(batch)
	for i, c := range batch {
		if string(c.Data) != before[i] {
			tb.Errorf("Apply modified the data of command %d", i)
		}
		for j := range c.Data {
			c.Data[j] ^= 0xff
		}
	}
	want.apply(10)
	m.wantState(want.state(), "after the commands' buffers were used again")
}

// checkIsolation: a snapshot shows the state as it was, however long it takes to be
// written, and Apply goes on meanwhile.
func checkIsolation(r run) {
	tb, s := r.tb, r.suite
	m := s.open(tb)
	m.apply(25)
	want, at := m.state(), *m
	snap, err := m.sm.Snapshot()
	if err != nil {
		tb.Fatalf("Snapshot: %v", err)
	}
	// Once before the first byte is written, and once while bytes are.
	early := m.applyBeside(10)
	stuck := s.await(early)
	gate := newGate()
	done := make(chan struct{})
	go func() {
		defer close(done)
		writeSnapshot(tb, snap, gate)
	}()
	if stuck == nil {
		gate.waitStarted(done)
		early = m.applyBeside(10)
		stuck = s.await(early)
	}
	if stuck != nil {
		tb.Errorf("Apply beside a snapshot: %v", stuck)
	}
	gate.open()
	<-done
	if errors.Is(stuck, errStuck) {
		if err := <-early; err != nil { // it ends now
			tb.Errorf("Apply after a snapshot: %v", err)
		}
		return
	}
	restored := s.open(tb)
	restored.restore(gate.bytes(), &at)
	restored.wantState(want, "restored from a snapshot while Apply went on")
}

// checkRestore: a restored replica is as good as the one that took the snapshot.
func checkRestore(r run) {
	tb, s := r.tb, r.suite
	for _, n := range []int{0, 1, 40} {
		from, to := s.open(tb), s.open(tb)
		if n > 0 {
			from.apply(n)
		}
		snap := from.snapshot()
		if err := to.sm.Restore(iotest.OneByteReader(bytes.NewReader(snap))); err != nil {
			tb.Fatalf("Restore of a snapshot after %d entries: %v", n, err)
		}
		to.next, to.index = from.next, from.index
		to.wantState(from.state(), fmt.Sprintf("restored after %d entries", n))
		want, got := from.apply(10), to.apply(10)
		for i := range want {
			if !bytes.Equal(want[i].Data, got[i].Data) {
				tb.Errorf("a restored replica answers %q, the others %q", got[i].Data, want[i].Data)
			}
		}
		to.wantState(from.state(), "restored, and further commands")
	}
}

// checkRestoreReplaces: nothing of the old state is left after a restore.
func checkRestoreReplaces(r run) {
	tb, s := r.tb, r.suite
	from, to := s.open(tb), s.open(tb)
	from.apply(5)
	to.apply(50)
	to.restore(from.snapshot(), from)
	to.wantState(from.state(), "restored over a larger state")
	later := s.open(tb)
	later.apply(70)
	to.restore(later.snapshot(), later)
	to.wantState(later.state(), "restored twice")
}

// checkRestoreFails: a restore that does not get the whole snapshot changes nothing.
func checkRestoreFails(r run) {
	tb, s := r.tb, r.suite
	from := s.open(tb)
	from.apply(45)
	snap := from.snapshot()
	to := s.open(tb)
	to.apply(10)
	want := to.state()
	try := func(what string, r io.Reader, mustFail bool) {
		tb.Helper()
		err := to.sm.Restore(r)
		if err == nil && mustFail {
			tb.Errorf("Restore %s returned no error", what)
		}
		if err != nil || mustFail {
			to.wantState(want, "Restore "+what)
		}
		if err == nil {
			to = s.open(tb)
			to.apply(10)
		}
	}
	broken := errors.New("the connection is gone")
	for _, n := range cuts(len(snap)) {
		failing := io.MultiReader(bytes.NewReader(snap[:n]), iotest.ErrReader(broken))
		try(fmt.Sprintf("from a reader that fails after %d of %d bytes", n, len(snap)),
			failing, true)
		if n < len(snap) {
			try(fmt.Sprintf("of the first %d of %d bytes", n, len(snap)),
				bytes.NewReader(snap[:n]), true)
			bad := bytes.Clone(snap)
			bad[n] ^= 0x55
			// Whoever streams a snapshot has checked it: the machine need not see
			// this, but what it refuses it must refuse whole.
			try(fmt.Sprintf("with byte %d of %d changed", n, len(snap)),
				bytes.NewReader(bad), false)
		}
	}
	to.restore(snap, from)
	to.wantState(from.state(), "restored after failures")
}

// cuts returns places to cut n bytes at, both ends included.
func cuts(n int) []int {
	list := []int{0, 1, n / 3, n / 2, n - 1, n}
	list = slices.DeleteFunc(list, func(i int) bool { return i < 0 || i > n })
	slices.Sort(list)
	return slices.Compact(list)
}
