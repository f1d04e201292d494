package node

import (
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// shedBatch bounds the leaderships that a node gives away in one go because of its disk:
// 80 a second.
const shedBatch = 16

// shed gives away some of the leaderships that this node has while its disk is short of
// space, or slow, to nodes that are better off. Those that nobody can take stay.
func (n *Node) shed() {
	mine := n.condition()
	if !n.lifecycle.isFresh() || (mine.Level < DiskSoft && !mine.Shedding) {
		return
	}
	better := n.betterOff(mine)
	if len(better) == 0 {
		return
	}
	room := shedBatch
	for _, r := range n.allReplicas() {
		if room == 0 {
			return // the rest in the next round
		}
		if r.serving() && r.view.Load().couldLead(r, better) {
			room--
			n.metrics.leadersShed.Add(1)
			r.worker.box.control(func() {
				r.worker.guard(r, "hand over", func() {
					r.worker.handOver(r, func(id raftyard.NodeID) bool {
						return slices.Contains(better, id)
					})
				})
			})
		}
	}
}

// betterOff are the nodes, by id, that are connected, not drained, and have a disk that is
// in a better condition.
func (n *Node) betterOff(mine condition) (better []raftyard.NodeID) {
	for id, live := range n.liveNodes() {
		if live && id != n.cfg.ID && !n.isDrained(id) && n.conditionOf(id).fitter(mine) {
			better = append(better, id)
		}
	}
	slices.Sort(better)
	return better
}

// couldLead reports whether the replica leads, and a voter on one of some nodes could lead
// in its place.
func (v *view) couldLead(r *replica, nodes []raftyard.NodeID) bool {
	if !v.initialized() || v.Leader != r.id {
		return false
	}
	return slices.ContainsFunc(v.State.Descriptor.Voters(), func(m group.Member) bool {
		return m.ID != r.id && slices.Contains(nodes, m.Node)
	})
}
