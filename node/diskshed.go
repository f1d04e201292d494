package node

import "github.com/raftyard/raftyard"

// shedBatch bounds the leaderships that a node gives away in one go because of its disk:
// 80 a second.
const shedBatch = 16

// shed gives away some of the leaderships that this node has while its disk is short of
// space, or slow, to nodes that are better off. Those that nobody can take stay.
func (n *Node) shed() {
	mine := n.condition()
	if mine.Level < DiskSoft && !mine.Shedding {
		return
	}
	if better := n.betterOff(mine); len(better) > 0 {
		n.handOff(&giveaway{to: better, batch: shedBatch, shed: true})
	}
}

// betterOff are the nodes, with their starts, that are connected, not drained, and have a
// disk that is in a better condition.
func (n *Node) betterOff(mine condition) map[raftyard.NodeID]uint64 {
	better := n.liveBoots()
	for id := range better {
		if n.isDrained(id) || !n.conditionOf(id).fitter(mine) {
			delete(better, id)
		}
	}
	return better
}
