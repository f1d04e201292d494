package grouptest

import (
	"bytes"
	"sync"

	"github.com/raftyard/raftyard/group"
)

// checkDurable: a machine that was closed, or whose process was killed, goes on
// after the index that it names, and nothing is applied twice or left out.
func checkDurable(r run) {
	tb, s := r.tb, r.suite
	m := s.open(tb)
	if _, ok := m.applied(); !ok {
		tb.Skip("the machine is not Durable")
	}
	want := s.open(tb)
	if index, _ := m.applied(); index != 0 {
		tb.Errorf("a new machine says that it has applied %d", index)
	}
	var log []group.Command
	for round := range 4 {
		batch := m.batch(9)
		log = append(log, batch...)
		m.applyBatch(batch)
		if index, _ := m.applied(); index > m.index {
			tb.Errorf("Applied = %d after commands up to index %d", index, m.index)
		}
		if round%2 == 0 {
			m.close()
		} else {
			m.factory = s.Restart(tb, m.factory)
		}
		m.reopen()
		index, _ := m.applied()
		if index > m.index {
			tb.Fatalf("Applied = %d after a restart, the last command was at %d", index, m.index)
		}
		m.replay(log, index)
		want.apply(9)
		m.wantState(want.state(), "after a restart")
	}
}

// replay applies the commands of the log after index again.
func (m *machine) replay(log []group.Command, index uint64) {
	m.tb.Helper()
	var batch []group.Command
	for _, c := range log {
		if c.Index > index {
			batch = append(batch, group.Command{
				Index: c.Index, Offset: c.Offset, ID: c.ID, Data: bytes.Clone(c.Data),
			})
		}
	}
	if len(batch) > 0 {
		m.applyBatch(batch)
	}
}

// checkDurableRestore: what was restored is durable, with the index that it is of.
func checkDurableRestore(r run) {
	tb, s := r.tb, r.suite
	from, to := s.open(tb), s.open(tb)
	if _, ok := to.applied(); !ok {
		tb.Skip("the machine is not Durable")
	}
	from.apply(40)
	to.apply(12)
	snap, want := from.snapshot(), from.state()
	to.restore(snap, from)
	wantIndex := from.index
	check := func(when string) {
		tb.Helper()
		if index, _ := to.applied(); index != wantIndex {
			tb.Errorf("Applied = %d %s, want %d", index, when, wantIndex)
		}
		to.wantState(want, when)
	}
	check("after a restore")
	to.factory = s.Restart(tb, to.factory)
	to.close()
	to.reopen()
	check("after a restore and a restart")
}

// checkHash: the hash tells states apart, and does not move by itself.
func checkHash(r run) {
	tb, s := r.tb, r.suite
	m := s.open(tb)
	h, ok := m.sm.(group.Hasher)
	if !ok {
		tb.Skip("the machine is not a Hasher")
	}
	seen := make(map[string]int)
	for i := range 20 {
		hash, err := h.Hash()
		if err != nil {
			tb.Fatalf("Hash: %v", err)
		}
		again, err := h.Hash()
		if err != nil || !bytes.Equal(hash, again) {
			tb.Errorf("Hash = %x, then %x, %v", hash, again, err)
		}
		if before, twice := seen[string(hash)]; twice {
			tb.Errorf("the hash after %d entries is that after %d", i, before)
		}
		seen[string(hash)] = i
		m.apply(1)
	}
}

// checkQuery: questions may be asked beside Apply, and change nothing.
func checkQuery(r run) {
	tb, s := r.tb, r.suite
	m, want := s.open(tb), s.open(tb)
	q, ok := m.sm.(group.Querier)
	if !ok || len(s.Queries) == 0 {
		tb.Skip("the machine is not a Querier, or the suite has no Queries")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, query := range s.Queries {
				if _, err := q.Query(query); err != nil {
					tb.Errorf("Query(%q) beside Apply: %v", query, err)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 20 {
		m.apply(3)
	}
	close(stop)
	wg.Wait()
	for range 20 {
		want.apply(3)
	}
	m.wantState(want.state(), "after questions")
}

// checkDestroy: nothing is left of a machine that was destroyed, and it can be
// destroyed again.
func checkDestroy(r run) {
	tb, s := r.tb, r.suite
	m := s.open(tb)
	if _, ok := m.sm.(group.Destroyer); !ok {
		tb.Skip("the machine is not a Destroyer")
	}
	empty := s.open(tb).state()
	m.apply(30)
	for range 2 {
		d, ok := m.sm.(group.Destroyer)
		if !ok {
			tb.Fatal("the machine is no Destroyer any more")
		}
		m.sm = nil
		if err := d.Destroy(); err != nil {
			tb.Fatalf("Destroy: %v", err)
		}
		m.reopen()
		m.wantState(empty, "opened after Destroy")
		if index, ok := m.applied(); ok && index != 0 {
			tb.Errorf("Applied = %d after Destroy", index)
		}
	}
}
