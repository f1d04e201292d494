package sim

import (
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/world"
)

// Nodes that lack the kinds of groups: their replicas keep the log only. See
// [Config.Lacking].

// lackRate is in how many of ten starts such a node lacks the kinds, where the seed has
// chosen it.
const lackRate = 7

// chooseKinds decides for a start whether the node knows the kinds.
func (h *host) chooseKinds() {
	switch {
	case h.w.cfg.Lacking != nil:
		h.lacks = slices.Contains(h.w.cfg.Lacking, h.id)
	case h.w.setup.lacking == h.id:
		h.lacks = h.w.luck.IntN(10) < lackRate
	}
	h.w.check.Lacking(h.id, h.lacks)
	if h.lacks {
		h.w.counts.Lacking++
		h.log("lacks the kinds", "")
	}
}

// untidy says what of replicas without a state machine has still to come right, or nothing:
// one leads though a voter with state could, or has a log that it could cut.
func (w *World) untidy() (what string) {
	holders := w.holders()
	w.replicas(func(h *host, r *world.Replica) {
		of := holders[r.Group]
		switch {
		case !r.LogOnly || what != "":
		case r.Role == group.Leader && of.voter != "" && of.last+1 >= firstOf(r):
			what = fmt.Sprintf("group %d is led from node %d without a state machine, %s has one",
				r.Group, h.id, of.voter)
		case logLength(r) > w.mostEntries(h, r) && of.any != "" && of.applied+1 >= firstOf(r):
			what = fmt.Sprintf("group %d has a log of %d entries on node %d, and the state for "+
				"cutting it is with %s", r.Group, logLength(r), h.id, of.any)
		}
	})
	return what
}

// holder names replicas of a group that have its state, and tells how far they are. Behind
// the beginning of a log they are of no use to it, and cannot follow it.
type holder struct {
	any     string
	applied uint64
	voter   string // one that may lead
	last    uint64
}

// holders returns those of every group.
func (w *World) holders() map[raftyard.GroupID]holder {
	holders := make(map[raftyard.GroupID]holder)
	w.replicas(func(h *host, r *world.Replica) {
		m, member := r.State.Descriptor.Member(r.ID)
		if r.LogOnly || !member {
			return
		}
		of := holders[r.Group]
		name := fmt.Sprintf("replica %d on node %d", r.ID, h.id)
		if of.any == "" || r.Applied > of.applied {
			of.any, of.applied = name, r.Applied
		}
		if m.Role == group.Voter && !h.drained && (of.voter == "" || r.Last > of.last) {
			of.voter, of.last = name, r.Last
		}
		holders[r.Group] = of
	})
	return holders
}

// logLength is the number of entries in a log.
func logLength(r *world.Replica) int64 { return int64(r.Last + 1 - firstOf(r)) }

// mostEntries is what that number may be at rest: a window for followers, and before it
// what comes between two snapshots, or, where that is more, what the state machine has
// not made durable.
func (w *World) mostEntries(h *host, r *world.Replica) int64 {
	d := &r.State.Descriptor
	unsynced := w.check.Unsynced(h.identity(r), r.Last)
	return int64(max(d.SnapshotEntries, unsynced) + d.TrailingEntries + maxSurplus)
}
