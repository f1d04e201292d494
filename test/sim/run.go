package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

// A Result is what came of a run.
type Result struct {
	Seed     uint64
	Failure  *BrokenError // nil if everything held
	Hash     uint64       // of everything that has happened
	Schedule Schedule     // of the faults
	Trace    string       // the newest events
	Turns    uint64
	Time     time.Duration // virtual
	Counts   Counts
	Network  simnet.Counts
	Setup    string

	Ops, Clients int  // as in Config
	LifeCycle    bool // as in Config

	own     bool            // of a program of its own
	verdict *linear.Verdict // on the history; nil if it was not judged
}

// Run simulates a cluster. The error says that it could not: only what the run has
// found is in the result.
func Run(cfg Config) (*Result, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	defer w.close()
	schedule := cfg.Schedule
	if schedule == nil {
		schedule = scheduleOf(&w.setup, &cfg)
	}
	w.run(schedule)
	w.counts.Checked = w.check.Tally()
	return &Result{
		Seed: cfg.Seed, Failure: w.result(), Hash: w.trace.Hash(), Schedule: schedule,
		Trace: w.trace.String(), Turns: w.turns.Turns(), Time: w.turns.Time(),
		Counts: w.counts, Network: w.net.Counts(), Setup: fmt.Sprintf("%+v", w.setup),
		Ops: w.setup.ops, Clients: w.setup.clients, LifeCycle: cfg.LifeCycle,
		own: w.cfg.Workload != nil, verdict: w.verdict,
	}, nil
}

// run goes through the phases.
func (w *World) run(s Schedule) {
	work := w.cfg.Workload
	if work == nil && len(w.cfg.Kinds) > 0 {
		w.fail("configuration", errWorkload)
		return
	}
	if work == nil {
		work = useRegisters
	}
	w.plan()
	for _, h := range w.members() {
		h.wanted = true
		h.start()
	}
	done := w.startClients(work)
	w.unleash(s)
	w.watchSleepers()
	limit := w.setup.chaos + w.patience()
	w.turns.At(int64(w.setup.chaos), func() {})
	w.turns.At(int64(limit), func() {})
	if !w.turns.Until(func() bool {
		now := w.turns.Time()
		return done() || now >= limit || now >= w.setup.chaos && w.counts.Acked >= fewest
	}) {
		return
	}
	w.working = false
	w.heal()
	if !w.recover(done) || !w.rest() || !w.audit() {
		return
	}
	w.stopAll()
	w.inspect()
	w.finish()
}

// recover waits until everything is well again.
func (w *World) recover(done func() bool) bool {
	limit := w.turns.Time() + w.patience()
	late := func() bool { return w.turns.Time() >= limit }
	w.turns.At(int64(limit), func() {})
	settled := w.settle()
	ok := w.turns.Until(func() bool { return late() || (done() && settled()) })
	if ok && late() {
		w.fail("rule 19 (resolved)", fmt.Errorf(
			"clients or administration are not done %v after the last fault: %q waits",
			w.patience(), w.clients.Processes()))
	}
	if !ok {
		return false
	}
	w.check.Healed()
	well := false
	w.every(10*w.setup.tick, func() bool {
		well = len(w.check.Unsettled()) == 0 && w.untidy() == "" && len(w.unready()) == 0 &&
			!slices.ContainsFunc(w.hosts, (*host).isToRestart)
		return well || late()
	})
	if !w.turns.Until(func() bool { return well || late() }) {
		return false
	}
	if !well {
		w.check.Overdue()
		w.judge()
		if ids := w.unready(); len(ids) > 0 {
			w.fail("rule 15 (progress)", fmt.Errorf("nodes %v are not ready", ids))
		}
		if text := w.untidy(); text != "" {
			w.fail("rule 21 (state leads)", errors.New(text))
		}
	}
	return w.failure == nil && w.forgets()
}

// forgets waits until nobody remembers what is forgotten. A node that was not told looks
// only now and then.
func (w *World) forgets() bool {
	limit := w.turns.Time() + 2*forgetTicks*w.setup.tick + w.patience()
	late := func() bool { return w.turns.Time() >= limit }
	w.turns.At(int64(limit), func() {})
	well := w.graves() == ""
	w.every(10*w.setup.tick, func() bool {
		well = well || w.graves() == ""
		return well || late()
	})
	if w.turns.Until(func() bool { return well || late() }) && !well {
		w.fail("rule 16 (tidy)", errors.New(w.graves()))
	}
	return w.failure == nil && w.turns.Err() == nil
}

// forgetTicks is how often a node looks for tombstones of groups that are forgotten.
const forgetTicks = 300

// fewest is how many requests must have been done before the first phase ends: where
// groups come late, or early faults keep everybody busy, it lasts longer.
const fewest = 10

// errWorkload: the default workload writes registers, which own state machines are
// not.
var errWorkload = errors.New("state machines of its own need a Workload of their own")

// audit has the program look at what is left, and reports whether that has ended.
func (w *World) audit() bool {
	if w.cfg.Audit == nil {
		return true
	}
	c := &Client{w: w, id: w.setup.clients + 1, dice: newDice(w.cfg.Seed, streamAudit)}
	ended := false
	w.clients.Go("audit", func() {
		defer func() { ended = true }()
		w.cfg.Audit(c)
	})
	limit := w.turns.Time() + w.patience()
	w.turns.At(int64(limit), func() {})
	if w.turns.Until(func() bool { return ended || w.turns.Time() >= limit }) && !ended {
		w.fail("audit", fmt.Errorf("it has not ended after %v", w.patience()))
	}
	return w.failure == nil && w.turns.Err() == nil
}

// patience is how long the cluster may take to get well.
func (w *World) patience() time.Duration {
	return 20*time.Second + 20*time.Duration(w.setup.election)*w.setup.tick
}

// stopAll closes all nodes in order, all at the same time.
func (w *World) stopAll() {
	limit := w.turns.Time() + w.patience()
	for _, h := range w.hosts {
		h.wanted = false
		h.stop()
	}
	w.turns.At(int64(limit), func() {})
	w.turns.Until(func() bool {
		for _, h := range w.hosts {
			if h.state != down {
				return w.turns.Time() >= limit
			}
		}
		return true
	})
	for _, h := range w.hosts {
		if h.state != down && w.turns.Err() == nil {
			w.fail("closes", fmt.Errorf("node %d is not closed after %v: %q waits",
				h.id, w.patience(), h.st.Processes()))
		}
	}
}

// linearLimit bounds, in real time, how long a history may be searched.
const linearLimit = 20 * time.Second

// finish does the checks of the end.
func (w *World) finish() {
	if w.turns.Err() != nil {
		return
	}
	w.check.Finished(w.leaks...)
	w.judge()
	if w.failure != nil {
		return
	}
	w.verdict = w.history.Check(linearLimit)
	if err := w.verdict.Err(); err != nil {
		w.fail("rule 10 (linearizable)", err)
	}
}
