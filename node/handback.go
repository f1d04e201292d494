package node

import (
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A leader without a state machine makes every request take a longer way. It hands the
// leadership to a voter that has the state as soon as one has caught up. An attempt that
// comes to nothing, or that is undone, is not repeated at once: proposals wait while it lasts.

// maxHandBackPause is how long it waits at the most between two attempts, and after how
// long without leading it forgets the earlier ones, in election timeouts.
const maxHandBackPause = 10

// handBack is how a leader that cannot serve its group gets rid of the leadership.
type handBack struct {
	ticks int // until the next look
	wait  int // ticks that follow the next attempt
	idle  int // ticks without leading
}

// tickHandBack looks now and then whether a leader that cannot serve can hand over.
func (w *worker) tickHandBack(r *replica) {
	h := &r.handBack
	limit := maxHandBackPause * w.node.cfg.ElectionTicks
	if !r.cannotServe() || r.leader.Role != group.Leader {
		if h.idle++; h.idle > limit {
			*h = handBack{idle: limit}
		}
		return
	}
	h.idle = 0
	if h.ticks--; h.ticks > 0 {
		return
	}
	// Not in step with the election timeout, at which raft forgets who was active.
	h.ticks = 1 + int(w.node.world.roll(int64(w.node.cfg.ElectionTicks)))
	s := &r.steering
	if s.changing || s.transfer != nil || r.meta.State.Descriptor.IsJoint() {
		return // whoever wants something of the leadership comes first
	}
	to := w.bestWithState(r)
	if to == 0 {
		return
	}
	if err := r.raft.TransferLeader(to); err != nil {
		return // it has just gone
	}
	h.wait = min(max(2*h.wait, 2*w.node.cfg.ElectionTicks), limit)
	h.ticks = h.wait
	w.node.logger.Info("leadership goes to a replica with a state machine",
		groupAttr(r.group), replicaAttr(to))
	w.touch(r)
}

// bestWithState is the voter with the state that has most of the log, if it has caught up.
func (w *worker) bestWithState(r *replica) (best raftyard.ReplicaID) {
	n, d := w.node, r.meta.State.Descriptor
	voters := slices.DeleteFunc(d.Voters(), func(m group.Member) bool {
		return m.ID == r.id || n.standstills.has(r.group, m.ID) ||
			!n.kinds.may(m.Node, d.Kind) || n.isDrained(m.Node) || !n.conditionOf(m.Node).fit()
	})
	if len(voters) == 0 {
		return 0
	}
	st, live := r.raft.Status(), n.liveBoots()
	if st.Transferee != 0 {
		return 0
	}
	for _, m := range voters {
		p := st.Progress[m.ID]
		if !p.RecentActive || p.NeedsState || p.Match+maxTransferLag < st.Last ||
			!n.kinds.has(m.Node, live[m.Node], d.Kind) {
			continue
		}
		if best == 0 || p.Match > st.Progress[best].Match {
			best = m.ID
		}
	}
	return best
}
