package sim

import (
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// wipe takes a node's disk, as soon as every group can do without it. The node comes back
// with an empty one, and is to be taken in again.
func wipe(w *World, f *Fault) {
	w.spend(f, func(*host) bool { return true }, func(h *host) {
		w.counts.Wipes++
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
	w.every(50*time.Millisecond, func() bool {
		if !w.working || !w.dispensable(f.Node) || !ripe(h) {
			return !w.working
		}
		h.lost = true
		h.downUntil = w.turns.Time() + f.For
		lose(h)
		return true
	})
}

// dispensable reports whether the disk of a node can be lost: it must be the only one,
// those before it must have been made up for, and it must be known to all, and be one of
// three voters at the least wherever it is one. No group may be about to begin on it.
// While members are changed nobody can tell.
func (w *World) dispensable(id raftyard.NodeID) bool {
	begins := func(g *groupInfo) bool {
		return g.moving() || !g.gone && g.seed == id && w.unfounded(g)
	}
	in := w.members()
	if !w.host(id).in || w.joining > 0 || w.leaver != nil || len(in) < 3 ||
		slices.ContainsFunc(w.groups, begins) {
		return false
	}
	for _, h := range in {
		if h.lost || h.unready() {
			return false
		}
		for i := range h.seen.Replicas {
			d := &h.seen.Replicas[i].State.Descriptor
			g := w.group(h.seen.Replicas[i].Group)
			voters := d.Voters()
			in := slices.ContainsFunc(voters, func(m group.Member) bool { return m.Node == id })
			if d.IsJoint() || (in && len(voters) < 3) ||
				(d.Group != raftyard.SystemGroup && (g == nil || !g.wished(voters))) ||
				!w.complete(d) {
				return false
			}
		}
	}
	return true
}

// complete reports whether a group has all its members, and all of them have all that is
// committed. Where no disk was ever lost that does not matter.
func (w *World) complete(d *group.Descriptor) bool {
	if !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.wiped }) {
		return true
	}
	least, most := ^uint64(0), uint64(0)
	for _, m := range d.Members {
		h := w.host(m.Node)
		r, ok := h.replica(d.Group)
		if h.wiped && d.Group == raftyard.SystemGroup && int(m.ID) <= w.setup.nodes {
			return false // it is that of the disk before
		}
		if !ok || r.ID != m.ID || !r.Serving {
			return false
		}
		least, most = min(least, r.Commit), max(most, r.Commit)
	}
	return least == most
}

// unfounded reports whether no node has a replica of a group yet: without the disk of
// its seed it never begins.
func (w *World) unfounded(g *groupInfo) bool {
	return !slices.ContainsFunc(w.hosts, func(h *host) bool {
		r, ok := h.replica(g.id)
		return ok && r.Incarnation == g.incarnation
	})
}
