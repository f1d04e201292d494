package sim

import (
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// wipe takes a node's disk, as soon as every group can do without it, whatever else goes
// on. The node comes back with an empty one, and is to be taken in again.
func wipe(w *World, f *Fault) {
	w.spend(f, func(*host) bool { return true }, func(h *host) {
		w.counts.Wipes++
		if w.amid(f.Node) {
			w.counts.Amid++
		}
		h.wipe()
	})
}

// wipe has the node go on with an empty disk.
func (h *host) wipe() {
	h.log("loses its disk", "")
	h.lost, h.wiped, h.stale, h.wanted = true, true, false, true
	h.seen, h.boots = check.Examined{}, 0
	if h.state == down {
		h.disk.Wipe()
		h.w.check.Crashed(h.id, check.LostAll)
		h.later()
	} else {
		h.crash((*simdisk.Disk).Wipe, check.LostAll)
	}
	h.w.every(50*time.Millisecond, h.isBack)
}

// isBack notices when a node whose disk was lost is taken in again: when it is ready, and
// has a replica of the system group, which is not the one that a founder makes by itself.
// One that has lost a part only must have made up for all its replicas.
func (h *host) isBack() bool {
	r, ok := h.replica(raftyard.SystemGroup)
	switch {
	case !h.lost:
		return true
	case h.stale || !ok || !r.Serving || h.unready():
		return false
	case h.rotten && slices.ContainsFunc(h.seen.Replicas, func(r world.Replica) bool {
		return !r.Serving
	}):
		return false
	}
	h.lost, h.rotten = false, false
	h.w.counts.Returned++
	h.log("is taken in again", "")
	return true
}

// isGone reports whether the node has lost its disk and does not come back by itself:
// somebody would have to look at it, and all must do without it.
func (h *host) isGone() bool { return h.lost && !h.wiped && !h.rotten && !h.stale }

// rot takes the newest commits from a disk: more than since the store has noted how
// far it is, or nobody could tell.
func rot(w *World, f *Fault) {
	telling := func(h *host) bool {
		n := h.disk.Stats().Commits
		return n-h.commits > rotten+founding && h.noted[0] > 0 && n-h.noted[0] < rotten
	}
	w.spend(f, telling, func(h *host) {
		w.counts.Rots++
		h.log("loses the end of its log", "")
		h.rotten = true
		w.every(50*time.Millisecond, h.isBack)
		h.crash(func(d *simdisk.Disk) { d.LoseTail(rotten) }, check.LostSome)
	})
}

// rotten is how many commits a disk loses that rots, as many as it remembers.
const rotten = 64

// founding is how many commits it takes to make the databases of a disk. Without them
// nothing says whose it is.
const founding = 4

// spend does something to a node that loses its disk, when it can be spared and is ripe.
func (w *World) spend(f *Fault, ripe func(*host) bool, lose func(*host)) {
	h := w.host(f.Node)
	w.every(20*time.Millisecond, func() bool {
		if !w.working || !w.dispensable(f.Node) || !ripe(h) {
			return !w.working
		}
		h.lost = true
		h.downUntil = w.turns.Time() + f.For
		lose(h)
		return true
	})
}
