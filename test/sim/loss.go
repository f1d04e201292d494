package sim

import (
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// wipe takes a node's disk, as soon as every group can do without it.
func wipe(w *World, f *Fault) {
	w.spend(f, func(*host) bool { return true }, func(h *host) {
		h.wiped = true
		w.counts.Wipes++
		h.log("loses its disk", "")
		h.crash((*simdisk.Disk).Wipe, check.LostAll)
	})
}

// rot takes the newest commits from a disk: more than since the store has noted how
// far it is, or nobody could tell.
func rot(w *World, f *Fault) {
	telling := func(h *host) bool {
		n := h.disk.Stats().Commits
		return n-h.commits >= rotten && h.noted[0] > 0 && n-h.noted[0] < rotten
	}
	w.spend(f, telling, func(h *host) {
		w.counts.Rots++
		h.log("loses the end of its log", "")
		h.crash(func(d *simdisk.Disk) { d.LoseTail(rotten) }, check.LostSome)
	})
}

// rotten is how many commits a disk loses that rots, as many as it remembers.
const rotten = 64

// spend does something to a node that loses its disk for good, when it can be spared
// and is ripe.
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

// dispensable reports whether the disk of a node can be lost: it must be the only
// one, be known to all, and be one of three voters at the least wherever it is one.
// No group may be about to begin on it. While members are changed nobody can tell.
func (w *World) dispensable(id raftyard.NodeID) bool {
	begins := func(g *groupInfo) bool {
		return g.moving() || !g.gone && g.seed == id && w.unfounded(g)
	}
	in := w.members()
	if !w.host(id).in || w.joining > 0 || len(in) < 3 || slices.ContainsFunc(w.groups, begins) {
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
				(d.Group != raftyard.SystemGroup && (g == nil || !g.wished(voters))) {
				return false
			}
		}
	}
	return true
}

// unfounded reports whether no node has a replica of a group yet: without the disk of
// its seed it never begins.
func (w *World) unfounded(g *groupInfo) bool {
	return !slices.ContainsFunc(w.hosts, func(h *host) bool {
		r, ok := h.replica(g.id)
		return ok && r.Incarnation == g.incarnation
	})
}
