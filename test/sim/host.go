package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
	"github.com/raftyard/raftyard/transport"
)

// hostState says what a simulated machine is doing.
//
//	down ──▶ starting ──▶ up ──▶ stopping ──▶ down
//
// and from anywhere down at a crash.
type hostState uint8

const (
	down hostState = iota
	starting
	running
	stopping
)

// A host is a simulated machine: a disk, and a node that runs on it now and then.
type host struct {
	standing

	w    *World
	id   raftyard.NodeID
	disk *simdisk.Disk
	rate float64 // of its clock

	state  hostState
	st     *turns.Station // of the present start
	node   *node.Node     // while running or stopping
	starts uint64

	examine func() world.Examined // once all replicas are open
	seen    check.Examined        // what it looked like last

	wanted    bool          // it ought to run
	downUntil time.Duration // not before this time
	slow      time.Duration // what a sync takes at the most, beyond the usual
	hang      time.Duration // what the next sync of the log takes
	failSync  bool          // the next sync fails
	broken    bool          // a sync has failed since the start
	trip      uint64        // it crashes in so many syncs or removals, if not zero
	tripFor   time.Duration // and is down for so long then
	tripIn    string        // only what happens to files below this counts
	ambush    time.Duration // it crashes so soon after it next gets a snapshot, if not zero

	commits int // of its disk before this start

	up    time.Duration // since when it runs, in its latest start
	ended time.Duration // when that start did
	froze time.Duration // until when it has stood still, or a process of it has

	// noted are the commits of its disk when the store noted, twice, how far it is.
	noted [2]int

	lacks bool // it does not know the kinds in this start

	lost   bool   // its disk was lost, and it was not taken in again since
	wiped  bool   // it came back with an empty one, or shall
	rotten bool   // it came back without the end of what was on it
	stale  bool   // it runs an older copy
	boots  uint64 // of what is on its disk

	ahead time.Duration // of the right time is its clock
}

func (w *World) newHost(id raftyard.NodeID) *host {
	dice := newDice(w.cfg.Seed, streamDisks+2*uint64(id))
	h := &host{w: w, id: id, rate: 1 + w.setup.drift*(dice.Float64()-0.5)}
	h.disk = simdisk.New(dice.Uint64)
	h.disk.BeforeSync = h.beforeSync
	h.disk.Until = func(ready func() bool) { h.st.Until(ready) }
	return h
}

var errSync = errors.New("injected failure of a sync")

// beforeSync is what a sync takes, or how it fails.
func (h *host) beforeSync(what string) error {
	if strings.HasSuffix(what, "/sequence") {
		h.noted[0], h.noted[1] = h.noted[1], h.disk.Stats().Commits
	}
	h.stumble(what)
	d := time.Duration(0)
	for _, most := range []time.Duration{h.w.setup.syncTime, h.slow} {
		if most > 0 {
			d += time.Duration(h.w.luck.Int64N(int64(most)))
		}
	}
	if h.hang > 0 && what == logSync {
		d, h.hang = h.hang, 0
		h.log("hangs in a sync", d.String())
		h.restartHung(d)
	}
	h.st.Sleep(context.Background(), d)
	if h.failSync {
		h.failSync, h.broken = false, true
		h.w.counts.Failed++
		h.log("fails to sync", "")
		h.restartLater()
		return errSync
	}
	return nil
}

// logSync is a commit of the log store.
const logSync = "commit /data/log"

// The limits of a sync. A node that stands still must not seem to have a disk that does.
const (
	stuckSync = 4 * time.Second
	failSync  = 6 * time.Second
)

// restartHung is what an operator does about a disk that hangs for so long that the node
// gives it up.
func (h *host) restartHung(d time.Duration) {
	if d < failSync {
		return
	}
	h.broken = true
	st := h.st
	h.w.turns.After(failSync, func() {
		if h.st == st {
			h.restartLater()
		}
	})
}

// stumble ends the node in what it does to its disk if this is the one.
func (h *host) stumble(what string) {
	if h.trip == 0 || !strings.Contains(what, h.tripIn) {
		return
	}
	if h.trip--; h.trip > 0 {
		return
	}
	st := h.st
	h.w.turns.After(0, func() {
		if h.st == st {
			h.w.counts.Trips++
			h.w.crash(h.id, h.tripFor)
		}
	})
	h.st.Until(func() bool { return false })
}

// restartLater is what an operator does about a disk that has failed: state machines
// that it has broken stay stopped until the next start.
func (h *host) restartLater() {
	st := h.st
	h.w.turns.After(time.Duration(h.w.luck.Int64N(int64(500*time.Millisecond))), func() {
		if h.st == st && h.state != down {
			h.log("is restarted", "")
			h.crash((*simdisk.Disk).Kill, check.LostNothing)
		}
	})
}

// isToRestart reports whether the operator is about to restart the node.
func (h *host) isToRestart() bool { return h.broken && h.state != down }

func (h *host) log(what, text string) { h.w.log(h.id, what, text) }

// start starts the node, if it is down.
func (h *host) start() {
	if h.state != down {
		return
	}
	h.starts++
	h.boots++
	h.w.counts.Starts++
	h.state = starting
	h.broken = false
	h.commits = h.disk.Stats().Commits
	h.noted = [2]int{}
	st := h.w.turns.NewStation(fmt.Sprintf("n%d.%d", h.id, h.starts), h.w.wallClock().Add(h.ahead),
		h.rate)
	st.Tag = uint64(h.id)
	h.st = st
	h.log("starts", "")
	h.chooseKinds()
	dice := nodeDice{newDice(h.w.cfg.Seed, streamDisks+2*uint64(h.id)+1+h.starts<<32)}
	in := &world.World{
		Turns: st, Dice: dice,
		Disk: world.Disk{Files: h.files(), OpenDB: h.disk.OpenDB},
		Listen: func(cfg transport.Config) (world.Carrier, error) {
			return h.w.net.Listen(st, cfg), nil
		},
		FreeSpace: func() int64 { return 1 << 40 },
		Opened:    h.opened,
	}
	st.Go("open", func() {
		n, err := node.OpenIn(context.Background(), h.config(), in)
		if h.st == st {
			h.started(n, err)
		}
	})
}

// config is the node's configuration.
func (h *host) config() node.Config {
	s := &h.w.setup
	of := h.w.kinds
	if h.stale {
		of = h.w.plain // what these do binds nobody
	}
	if h.lacks {
		of = nil
	}
	kinds := make(map[string]group.Factory, len(of))
	for name, kind := range of {
		kinds[name] = kind(h.files())
	}
	c := node.Config{
		ID: h.id, Dir: "/data", Cluster: "sim", Kinds: kinds,
		TickInterval: s.tick, ElectionTicks: s.election, HeartbeatTicks: s.heartbeat,
		SleepTicks: s.sleep,
		Workers:    s.workers, Appliers: s.appliers, SnapshotSends: 1 + s.workers%2,
		SnapshotReceives: 1 + s.appliers%2, Limits: s.limits, CacheBytes: 1 << 16,
		Logger: slog.New(logs{w: h.w, node: h.id}), StuckSync: stuckSync, FailSync: failSync,
	}
	c.Advertise.Addr = h.address()
	for _, o := range h.w.hosts {
		if !o.guest {
			c.Peers = append(c.Peers, node.Peer{ID: o.id, Addr: o.address()})
		}
	}
	return c
}

// opened hears that all replicas are open, before anything is sent.
func (h *host) opened(examine func() world.Examined) {
	if h.stale {
		return // to the others it must be as if it were not there
	}
	h.examine = examine
	h.look()
	h.w.check.Opened(h.id, &h.seen)
}

// started hears how the start has ended.
func (h *host) started(n *node.Node, err error) {
	if err != nil {
		h.log("does not start:", err.Error())
		if !h.broken && !h.isGone() && !h.stale && !h.removed {
			h.w.fail("always starts", fmt.Errorf("node %d: %w", h.id, err))
		}
		if h.rotten && errors.Is(err, storage.ErrDamaged) {
			h.rotten = false // nobody is left there to bear the mark
		}
		if h.isGone() {
			h.wanted = false // somebody has to look at it
		}
		h.downUntil = h.w.turns.Time() + 100*time.Millisecond
		h.w.turns.After(0, func() { h.crash((*simdisk.Disk).Kill, check.LostNothing) })
		return
	}
	h.log("is up", "")
	h.node, h.state, h.up = n, running, h.w.turns.Time()
	h.w.clients.Touch()
	st := h.st
	st.Go("watch", func() {
		st.Until(func() bool { return isClosed(n.Failed()) })
		h.log("has failed:", n.Err().Error())
		if !h.broken {
			h.w.fail("node failed", fmt.Errorf("node %d: %w", h.id, n.Err()))
		}
		h.w.turns.After(0, func() {
			if h.st == st {
				h.crash((*simdisk.Disk).Kill, check.LostNothing)
			}
		})
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// crash ends the node as it stands, and does to the disk what lose does.
func (h *host) crash(lose func(*simdisk.Disk), loss check.Loss) {
	if h.state == down {
		return
	}
	h.end()
	lose(h.disk)
	h.w.check.Crashed(h.id, loss)
	h.w.clients.Touch()
	h.later()
}

// end takes the node away.
func (h *host) end() {
	h.w.net.Crash(h.id)
	h.st.Kill()
	h.ended = h.w.turns.Time()
	h.node, h.examine, h.state = nil, nil, down
}

// later has the host start again when it may.
func (h *host) later() {
	h.w.turns.At(int64(max(h.downUntil, h.w.turns.Time())), func() {
		if h.wanted && h.w.turns.Time() >= h.downUntil {
			h.start()
		}
	})
}

// streamed hears that the node begins to receive a snapshot.
func (h *host) streamed() {
	if h.ambush == 0 {
		return
	}
	d := time.Duration(h.w.luck.Int64N(int64(h.ambush)))
	if h.w.luck.IntN(2) == 0 {
		h.ambush = 0 // or else it crashes in the next attempt, too
	}
	if h.w.luck.IntN(2) == 0 { // in one of the syncs that follow, wherever that is
		h.trip, h.tripFor = 1+h.w.luck.Uint64N(8), d
		return
	}
	st := h.st
	h.w.turns.After(d, func() {
		if h.st == st && h.state != down {
			h.w.counts.Ambushes++
			h.w.crash(h.id, d)
		}
	})
}

// look examines the node.
func (h *host) look() {
	if h.examine == nil {
		return
	}
	h.seen = h.examine()
	if h.wiped {
		h.hideFounder()
	}
	for i := range h.seen.Replicas {
		if r := &h.seen.Replicas[i]; h.broken && r.Fault != nil {
			h.w.check.Excuse(h.identity(r))
		}
	}
}

// identity names a replica that the node has.
func (h *host) identity(r *world.Replica) check.Identity {
	return check.Identity{
		Group: r.Group, Incarnation: r.Incarnation, Replica: r.ID, Node: h.id,
	}
}

// hideFounder leaves the replica of the system group out that a founding node makes in an
// empty directory. It has the id of the one that is lost, and must be as if it were not
// there.
func (h *host) hideFounder() {
	founder := func(g raftyard.GroupID, id raftyard.ReplicaID) bool {
		return g == raftyard.SystemGroup && int(id) <= h.w.setup.nodes
	}
	h.seen.Replicas = slices.DeleteFunc(slices.Clone(h.seen.Replicas),
		func(r world.Replica) bool { return founder(r.Group, r.ID) })
	h.seen.Stored = slices.DeleteFunc(slices.Clone(h.seen.Stored),
		func(r storage.Replica) bool { return founder(r.Group, r.ID) })
}

// replica returns what is seen of the node's replica of a group.
func (h *host) replica(g raftyard.GroupID) (world.Replica, bool) {
	if h.state == down {
		return world.Replica{}, false
	}
	for i := range h.seen.Replicas {
		if h.seen.Replicas[i].Group == g {
			return h.seen.Replicas[i], true
		}
	}
	return world.Replica{}, false
}

// unready reports whether the node has not come up yet.
func (h *host) unready() bool {
	if h.state != running {
		return true
	}
	ok, _ := h.node.Ready()
	return !ok
}
