package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

// faultActions are what each kind of fault does. Those of the network do something
// for as long as they are active; see reroute.
var faultActions = map[FaultKind]func(w *World, f *Fault){
	Crash:    func(w *World, f *Fault) { w.crash(f.Node, f.For) },
	Kill:     func(w *World, f *Fault) { w.kill(f.Node, f.For) },
	Stop:     func(w *World, f *Fault) { w.stop(f.Node, f.For) },
	CrashAll: crashAll,
	Wipe:     wipe,
	Rot:      rot,
	Revert:   revert,
	Clock:    moveClock,
	Trip:     trip,
	Ambush:   ambush,
	Tear:     activate,
	Pause:    func(w *World, f *Fault) { w.pause(f.Node, f.For) },
	Usurp:    usurp,
	Stall:    stall,
	SlowDisk: slowDisk,
	HangDisk: func(w *World, f *Fault) { w.host(f.Node).hang = f.For },
	FailDisk: func(w *World, f *Fault) { w.host(f.Node).failSync = true },

	Cut: activate, Split: activate, Isolate: activate, Flaky: activate, SlowNet: activate,
	LagBehind: lagBehind,

	Transfer: transferLeader, Members: changeMembers, Replace: changeMembers,
	Snapshot: takeSnapshot, Create: renew, Delete: renew, Recreate: renew, Contest: contest,
	Join: join, Move: move, Drain: drain, Undrain: drain,
	Leave: leave, Attach: attach, Detach: attach, Forget: forget,
}

// unleash sets when each fault comes.
func (w *World) unleash(s Schedule) {
	for i := range s {
		f := &s[i]
		w.turns.At(int64(f.At), func() {
			if w.working && w.fits(f) {
				w.inject(f)
			}
		})
	}
}

// fits reports whether the fault is about what there is.
func (w *World) fits(f *Fault) bool {
	n := raftyard.NodeID(len(w.hosts))
	switch f.Kind {
	case CrashAll, Split, Flaky, SlowNet, Tear, Usurp, Members, Replace, Create, Delete, Recreate,
		Contest, Forget:
	default:
		if f.Node == 0 {
			return false
		}
	}
	return f.Node <= n && f.Peer <= n
}

// inject does what a fault says.
func (w *World) inject(f *Fault) {
	w.counts.Faults++
	w.log(0, "FAULT", f.String())
	faultActions[f.Kind](w, f)
}

func (w *World) crash(id raftyard.NodeID, d time.Duration) {
	h := w.host(id)
	h.downUntil = max(h.downUntil, w.turns.Time()+d)
	if h.state != down {
		w.log(id, "crashes", "")
		w.counts.Crashes++
	}
	h.crash((*simdisk.Disk).Crash, check.LostNothing)
}

func (w *World) kill(id raftyard.NodeID, d time.Duration) {
	h := w.host(id)
	h.downUntil = max(h.downUntil, w.turns.Time()+d)
	h.crash((*simdisk.Disk).Kill, check.LostNothing)
}

func (w *World) stop(id raftyard.NodeID, d time.Duration) {
	h := w.host(id)
	h.downUntil = max(h.downUntil, w.turns.Time()+d)
	h.stop()
}

func (w *World) pause(id raftyard.NodeID, d time.Duration) {
	if h := w.host(id); h.state != down {
		h.st.Pause(d)
		h.froze = max(h.froze, w.turns.Time()+d)
	}
}

func crashAll(w *World, f *Fault) {
	for _, h := range w.hosts {
		w.crash(h.id, f.For+time.Duration(w.luck.Int64N(int64(200*time.Millisecond))))
	}
}

func ambush(w *World, f *Fault) {
	w.host(f.Node).ambush = time.Duration(f.N) * time.Millisecond
}

// moveClock sets the clock of a machine. Its node is killed, too: while it lives it
// measures time with a clock that nobody can set, as every Go program does.
func moveClock(w *World, f *Fault) {
	h := w.host(f.Node)
	h.ahead = (time.Duration(f.N) - time.Duration(f.M)) * time.Millisecond
	w.counts.Clocks++
	w.kill(f.Node, f.For)
}

// trip has a node crash where its disk has what was written, and not for sure.
func trip(w *World, f *Fault) {
	h := w.host(f.Node)
	h.trip, h.tripFor = max(f.N, 1), f.For
}

// usurp freezes a leader for long enough that another may take its place, of which it
// does not know when it wakes up.
func usurp(w *World, f *Fault) {
	if id := w.leader(f.Group); id != 0 {
		w.log(id, "is frozen", "")
		w.pause(id, f.For)
	}
}

// leader returns the node that leads a group in the highest term that any replica is
// in, or zero.
func (w *World) leader(g raftyard.GroupID) (leader raftyard.NodeID) {
	term := uint64(0)
	for _, h := range w.hosts {
		r, ok := h.replica(g)
		if !ok || r.Term < term {
			continue
		}
		if r.Term > term {
			term, leader = r.Term, 0
		}
		if r.Role == group.Leader {
			leader = h.id
		}
	}
	return leader
}

func stall(w *World, f *Fault) {
	if h := w.host(f.Node); h.state != down {
		w.log(f.Node, "stalls", h.st.Stall(f.For))
		h.froze = max(h.froze, w.turns.Time()+f.For)
	}
}

func slowDisk(w *World, f *Fault) {
	h := w.host(f.Node)
	h.slow = time.Duration(f.N) * time.Millisecond
	w.turns.After(f.For, func() { h.slow = 0 })
}

// activate has a fault of the network begin, and end when its time is over.
func activate(w *World, f *Fault) {
	w.active = append(w.active, f)
	w.reroute()
	w.turns.After(f.For, func() { w.deactivate(f) })
}

func (w *World) deactivate(f *Fault) {
	before := len(w.active)
	w.active = slices.DeleteFunc(w.active, func(o *Fault) bool { return o == f })
	if len(w.active) != before {
		w.log(0, "ends", f.String())
		w.reroute()
	}
}

// lagBehind isolates a node until a group has cut its log behind it.
func lagBehind(w *World, f *Fault) {
	activate(w, f)
	w.every(50*time.Millisecond, func() bool {
		if w.passed(f.Node, f.Group) {
			w.deactivate(f)
			return true
		}
		return !slices.Contains(w.active, f)
	})
}

// passed reports whether a node's replica needs a snapshot to go on.
func (w *World) passed(id raftyard.NodeID, g raftyard.GroupID) bool {
	last, first := uint64(0), uint64(0)
	for _, h := range w.hosts {
		for i := range h.seen.Replicas {
			r := &h.seen.Replicas[i]
			switch {
			case r.Group != g || h.state != running:
			case h.id == id:
				last = r.Last
			default:
				first = max(first, firstOf(r))
			}
		}
	}
	return last > 0 && first > last+1
}

// firstOf returns the first index in a replica's log, which is cut behind raft's back.
func firstOf(r *world.Replica) uint64 {
	if r.Log == nil {
		return 0
	}
	first, _ := r.Log.Bounds()
	return first
}

// lateChance is that of a request on its way to arrive after its connection, if that is
// lost by a fault.
const lateChance = 0.25

// reroute sets what is wrong with every route to what all active faults say.
func (w *World) reroute() {
	for _, from := range w.hosts {
		for _, to := range w.hosts {
			if from == to {
				continue
			}
			r := simnet.Route{From: from.id, To: to.id}
			var sum simnet.Faults
			for _, f := range w.active {
				f.addTo(&sum, r)
			}
			if sum != (simnet.Faults{}) {
				sum.Late = lateChance
			}
			w.net.SetFaults(r, func(now *simnet.Faults) { *now = sum })
		}
	}
}

// Directions of an isolation, in N.
const (
	bothWays = 0
	outward  = 1 // what the node sends is lost
	inward   = 2
)

// addTo adds what the fault does to a route.
func (f *Fault) addTo(sum *simnet.Faults, r simnet.Route) {
	concerns := (f.Node == 0 || f.Node == r.From) && (f.Peer == 0 || f.Peer == r.To)
	switch f.Kind {
	case Cut:
		sum.Cut = sum.Cut || concerns
	case Split:
		sum.Cut = sum.Cut || f.N>>(r.From-1)&1 != f.N>>(r.To-1)&1
	case Isolate, LagBehind:
		sum.Cut = sum.Cut || (f.Node == r.From && f.N != inward) ||
			(f.Node == r.To && f.N != outward)
	case Flaky:
		if concerns {
			p := float64(f.N) / 100
			sum.Loss, sum.Duplicate, sum.Reorder = sum.Loss+p, sum.Duplicate+p, sum.Reorder+p
			sum.Break, sum.Busy = sum.Break+p/20, sum.Busy+p/4
			sum.LoseRequest, sum.LoseAnswer = sum.LoseRequest+p/4, sum.LoseAnswer+p/4
			sum.BreakSnapshot += p / 2
		}
	case Tear:
		sum.BreakSnapshot += float64(f.N) / 100
	case SlowNet:
		if concerns {
			d := time.Duration(f.N) * time.Millisecond
			sum.Delay, sum.Jitter, sum.ChunkDelay = sum.Delay+d/2, sum.Jitter+d, sum.ChunkDelay+d
		}
	default:
	}
}

// group returns what is known of a group that can be worked with.
func (w *World) group(id raftyard.GroupID) *groupInfo {
	for _, g := range w.groups {
		if g.id == id && g.created && !g.dying {
			return g
		}
	}
	return nil
}

func transferLeader(w *World, f *Fault) {
	g := w.group(f.Group)
	if g == nil {
		return
	}
	w.clients.Go("transfer", func() {
		err := w.admin(func(ctx context.Context, n *node.Node) error {
			return n.TransferLeader(ctx, g.id, f.Node)
		})
		w.log(f.Node, "leads?", fmt.Sprintf("group %d: %v", g.id, err))
	})
}

func takeSnapshot(w *World, f *Fault) {
	g, h := w.group(f.Group), w.host(f.Node)
	if g == nil || h.state != running {
		return
	}
	w.clients.Go("snapshot", func() {
		err := w.call(h, "snapshot", 3*time.Second, func(ctx context.Context, n *node.Node) error {
			_, err := n.TakeSnapshot(ctx, g.id)
			return err
		})
		w.log(f.Node, "snapshot?", fmt.Sprintf("group %d: %v", g.id, err))
	})
}

func changeMembers(w *World, f *Fault) {
	g, most := w.group(f.Group), 1
	if w.cfg.LifeCycle {
		most = 3
	}
	if g == nil || g.busy >= most {
		return
	}
	g.busy++
	w.clients.Go("members", func() {
		defer func() { g.busy-- }()
		m := w.membersOf(f)
		if f.Kind == Replace {
			m.ExpectEpoch = w.epoch(g)
		}
		_ = w.setMembers(g, m) // settled after the last fault
	})
}

// membersOf returns the members that a fault asks for.
func (w *World) membersOf(f *Fault) (m node.Members) {
	for _, h := range w.members() {
		switch {
		case h.lost:
		case f.N&bit(h.id) != 0:
			m.Voters = append(m.Voters, h.id)
		case f.M&bit(h.id) != 0:
			m.Learners = append(m.Learners, h.id)
		}
	}
	if len(m.Voters) == 0 {
		return w.someMembers(f.N, f.M)
	}
	return m
}

// heal ends all faults and has every node run.
func (w *World) heal() {
	w.log(0, "HEALED", "")
	w.active = nil
	w.net.Heal(w.ids())
	w.net.Calm()
	for _, h := range w.hosts {
		h.slow, h.hang, h.failSync = 0, 0, false
		h.downUntil, h.ambush, h.trip = 0, 0, 0
		if h.state != down {
			h.st.Unpause()
		}
		h.later()
	}
}
