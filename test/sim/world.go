package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/machine"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
	"github.com/raftyard/raftyard/test/sim/internal/trace"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
	"github.com/raftyard/raftyard/transport"
)

// A World is a simulated cluster with all around it. It is driven by the goroutine
// that has made it; time passes only while that waits in one of its methods.
type World struct {
	cfg   Config
	setup setup
	turns *turns.Scheduler
	net   *simnet.Network
	trace *trace.Trace
	check *check.Checker
	luck  *rand.Rand // of disks
	kinds map[string]Kind
	plain map[string]Kind // the same, unwatched
	hosts []*host         // host i is node i+1

	clients *turns.Station // where those are who use the cluster
	groups  []*groupInfo
	history linear.History
	verdict *linear.Verdict
	request uint64
	working bool  // clients may begin something
	leaver  *host // that leaves the cluster, or has left it; nil: none
	joining int   // so many hosts are about to belong to the cluster
	counts  Counts
	reached map[raftyard.Incarnation]reached

	active  []*Fault // that have begun and not ended
	failure *BrokenError
	leaks   []string
	restore func()
}

// Counts are what has happened in a run.
type Counts struct {
	Acked, Refused, Unknown int // by outcome of what clients asked
	Faults                  int
	Starts                  int // of nodes
	Leaders                 int // terms that had a leader
	Members                 int // membership changes that were applied

	Crashes   int // power failures
	Trips     int // of these, in the middle of a sync
	Ambushes  int // nodes that crashed because they got a snapshot
	Failed    int // syncs that failed
	Wipes     int // disks that were lost
	Amid      int // of these, while a group that the node votes in changed its voters
	Rots      int // disks that lost the end of what was durable
	Reverts   int // nodes that ran an older copy of their disk
	Clocks    int // clocks that were set
	Recreate  int // groups that were deleted and created again
	Forced    int // groups that were deleted by force
	Returned  int // nodes that were taken in again after their disk was lost
	Joins     int // nodes that have joined
	Moves     int // nodes that have come back at another address
	Leaves    int // nodes that have left
	Attached  int // nodes that were attached to a group
	Detached  int // nodes that were detached from one, without residue
	Forgotten int // deleted groups that were forgotten
	Lacking   int // starts of nodes that do not know the kinds
	Stateless int // terms in which a replica without a state machine has led
	Checked   check.Tally
}

// add adds other counts.
func (c *Counts) add(o Counts) {
	c.Acked, c.Refused, c.Unknown = c.Acked+o.Acked, c.Refused+o.Refused, c.Unknown+o.Unknown
	c.Faults, c.Starts = c.Faults+o.Faults, c.Starts+o.Starts
	c.Leaders, c.Members = c.Leaders+o.Leaders, c.Members+o.Members
	c.Crashes, c.Trips, c.Ambushes = c.Crashes+o.Crashes, c.Trips+o.Trips, c.Ambushes+o.Ambushes
	c.Failed, c.Wipes, c.Rots = c.Failed+o.Failed, c.Wipes+o.Wipes, c.Rots+o.Rots
	c.Lacking, c.Stateless = c.Lacking+o.Lacking, c.Stateless+o.Stateless
	c.Reverts, c.Clocks, c.Recreate = c.Reverts+o.Reverts, c.Clocks+o.Clocks, c.Recreate+o.Recreate
	c.Forced, c.Returned = c.Forced+o.Forced, c.Returned+o.Returned
	c.Joins, c.Moves = c.Joins+o.Joins, c.Moves+o.Moves
	c.Attached, c.Detached = c.Attached+o.Attached, c.Detached+o.Detached
	c.Forgotten, c.Leaves = c.Forgotten+o.Forgotten, c.Leaves+o.Leaves
	c.Amid += o.Amid
	c.Checked.Add(o.Checked)
}

// reached is how far an incarnation of a group has come.
type reached struct{ term, epoch uint64 }

// count counts what can be seen of a node.
func (w *World) count(h *host) {
	for i := range h.seen.Replicas {
		r := &h.seen.Replicas[i]
		at, known := w.reached[r.Incarnation]
		if !known {
			at.epoch = 1
		}
		if r.Role == group.Leader && r.Term > at.term {
			at.term = r.Term
			w.counts.Leaders++
			if r.LogOnly {
				w.counts.Stateless++
			}
		}
		if epoch := r.State.Descriptor.Epoch; epoch > at.epoch {
			w.counts.Members += int(epoch - at.epoch)
			at.epoch = epoch
		}
		w.reached[r.Incarnation] = at
	}
}

// A BrokenError is what a run has found.
type BrokenError struct {
	Rule string // what does not hold; the same for the same kind of failure
	Err  error
}

// Error returns the rule and the details.
func (f *BrokenError) Error() string {
	if text := f.Err.Error(); strings.HasPrefix(text, f.Rule) {
		return text
	}
	return f.Rule + ": " + f.Err.Error()
}

// Unwrap returns the details.
func (f *BrokenError) Unwrap() error { return f.Err }

// epoch is when every simulation begins.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// newWorld makes a cluster whose nodes are down.
func newWorld(cfg Config) (*World, error) {
	if cfg.Prepare != nil {
		cfg.Prepare(&cfg)
	}
	if cfg.Lines == 0 {
		cfg.Lines = 200
	}
	restore, err := takeEntropy(newDice(cfg.Seed, streamRaft))
	if err != nil {
		return nil, err
	}
	w := &World{
		cfg: cfg, setup: newSetup(&cfg, newDice(cfg.Seed, streamSetup)),
		trace: trace.New(cfg.Lines, cfg.Live),
		luck:  newDice(cfg.Seed, streamDisks), kinds: cfg.Kinds, restore: restore,
		reached: make(map[raftyard.Incarnation]reached),
	}
	w.turns = turns.New(turns.Config{
		Dice: newDice(cfg.Seed, streamTurns), Policy: w.setup.policy, AfterTurn: w.afterTurn,
	})
	w.check = check.New(check.Config{Now: w.turns.Time, Brittle: cfg.Bare})
	w.net = simnet.New(simnet.Config{
		Scheduler: w.turns, Dice: newDice(cfg.Seed, streamNetwork), Trace: w.trace,
		Latency: w.setup.latency, DeadAfter: w.setup.deadAfter, Sent: w.sent,
		Streamed: func(to raftyard.NodeID) { w.host(to).streamed() },
	})
	w.clients = w.turns.NewStation("clients", epoch(), 1)
	w.plain = cfg.Kinds
	switch {
	case w.kinds == nil:
		w.kinds, w.plain = registers(w.check), registers(nil)
	case !cfg.Bare:
		w.kinds = make(map[string]Kind, len(cfg.Kinds))
		for name, kind := range cfg.Kinds {
			w.kinds[name] = watch(w.check, kind)
		}
	}
	for i := range w.setup.nodes + w.setup.guests {
		h := w.newHost(raftyard.NodeID(i + 1))
		h.guest = i >= w.setup.nodes
		h.in = !h.guest
		w.hosts = append(w.hosts, h)
	}
	return w, nil
}

// registers are the state machines that are run by default.
func registers(to machine.Observer) map[string]Kind {
	return map[string]Kind{
		"memory": func(FS) group.Factory {
			return machine.Memory(machine.Config{Observer: to})
		},
		"durable": func(files FS) group.Factory {
			return machine.Durable(machine.Config{Files: files, Observer: to})
		},
	}
}

// kindOf returns the kind of a group.
func (w *World) kindOf(g raftyard.GroupID) string {
	names := make([]string, 0, len(w.kinds))
	for name := range w.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[uint64(g)%uint64(len(names))]
}

// wallClock returns the time of day.
func (w *World) wallClock() time.Time { return epoch().Add(w.turns.Time()) }

// afterTurn looks at the node on which something has just run.
func (w *World) afterTurn(st *turns.Station, id uint64, name string) {
	w.trace.Mix(id)
	if st.Tag == 0 || st.Dead() {
		return
	}
	h := w.hosts[st.Tag-1]
	if h.st != st || h.examine == nil || !changes(name) {
		return
	}
	h.look()
	w.count(h)
	w.check.Stepped(h.id, &h.seen)
	w.judge()
}

// changes reports whether a process changes what there is to see of a node.
func changes(name string) bool {
	switch name {
	case "network", "network notices", "clock", "reconcile", "housekeeping", "disk", "keeper",
		"heartbeats",
		callProcess:
		return false
	}
	return true
}

// sent hears of every envelope that leaves a node.
func (w *World) sent(from raftyard.NodeID, env *transport.Envelope) {
	if h := w.hosts[from-1]; h.examine != nil {
		w.check.Sent(from, env, h.disk.Fresh("/data/log"))
	}
}

// judge ends the run if a rule is broken.
func (w *World) judge() {
	if w.check.Broken() && w.failure == nil {
		v := w.check.Violations()[0]
		w.fail(v.Rule.String(), v)
	}
}

// fail ends the run.
func (w *World) fail(rule string, err error) {
	if w.failure == nil {
		w.failure = &BrokenError{Rule: rule, Err: err}
		w.log(0, "VIOLATED", w.failure.Error())
	}
	w.turns.Fail(w.failure)
}

// result returns why the run has failed, or nil.
func (w *World) result() *BrokenError {
	if w.failure != nil || w.turns.Err() == nil {
		return w.failure
	}
	err := w.turns.Err()
	if p, ok := errors.AsType[*turns.PanicError](err); ok {
		return &BrokenError{Rule: "panic: " + fmt.Sprint(p.Value), Err: err}
	}
	what, _, _ := strings.Cut(err.Error(), " at ")
	return &BrokenError{Rule: what, Err: err}
}

func (w *World) log(id raftyard.NodeID, what, text string) {
	w.trace.Add(trace.Event{At: w.turns.Time(), Node: id, What: what, Text: text})
}

// close ends everything at once.
func (w *World) close() {
	w.turns.Close()
	w.restore()
}

// host returns the machine of a node.
func (w *World) host(id raftyard.NodeID) *host { return w.hosts[id-1] }

// ids are all nodes.
func (w *World) ids() []raftyard.NodeID {
	ids := make([]raftyard.NodeID, 0, len(w.hosts))
	for _, h := range w.hosts {
		ids = append(ids, h.id)
	}
	return ids
}

// every calls fn, between two turns, until it returns true.
func (w *World) every(d time.Duration, fn func() bool) {
	w.turns.After(d, func() {
		if !fn() {
			w.every(d, fn)
		}
	})
}
