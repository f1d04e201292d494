package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

const (
	// handoffEvery is how often a node looks for what it leads and should not, and
	// handoffBatch bounds what a drained one hands over in one go.
	handoffEvery = 200 * time.Millisecond
	handoffBatch = 64
)

// A giveaway is why leaderships are given away, and to whom.
type giveaway struct {
	to    map[raftyard.NodeID]uint64 // the nodes that may take them, with their starts
	batch int                        // how many at most in one go
	shed  bool                       // because of the disk
}

// handOff hands some of what this node leads over.
func (n *Node) handOff(h *giveaway) {
	n.learnWhoFollows()
	var asks []func()
	for _, r := range n.allReplicas() {
		if len(asks) == h.batch {
			break // the rest in the next round, or those that are still at it
		}
		if n.movable(r, h.to) {
			asks = append(asks, func() { n.handOffTo(n.running, r, h) })
		}
	}
	n.world.all("hand over", asks)
}

// learnWhoFollows has it known which nodes could not go on with a state machine.
func (n *Node) learnWhoFollows() {
	var nodes []raftyard.NodeID
	for _, r := range n.allReplicas() {
		if v := r.view.Load(); r.leads(v) && r.group != raftyard.SystemGroup {
			for _, m := range v.State.Descriptor.Voters() {
				nodes = append(nodes, m.Node)
			}
		}
	}
	n.askForKindsOf(n.running, sortedSet(nodes))
}

// leads reports whether the replica serves and leads, as far as it has been published.
func (r *replica) leads(v *view) bool {
	return r.serving() && v.initialized() && v.Leader == r.id
}

// movable reports whether the replica leads, and a voter on one of some nodes that is not
// drained could lead in its place. One that keeps the log only could not: it would give
// the leadership back.
func (n *Node) movable(r *replica, to map[raftyard.NodeID]uint64) bool {
	v := r.view.Load()
	if !r.leads(v) {
		return false
	}
	d := v.State.Descriptor
	anyone := r.group == raftyard.SystemGroup || r.machine.logOnly.Load()
	return slices.ContainsFunc(d.Voters(), func(m group.Member) bool {
		boot, may := to[m.Node]
		return m.ID != r.id && may && !n.isDrained(m.Node) &&
			(anyone || !n.kinds.lacks(m.Node, boot, d.Kind))
	})
}

// countMovable counts the groups that this node leads and could hand over.
func (n *Node) countMovable() (count int) {
	live := n.liveBoots()
	for _, r := range n.allReplicas() {
		if n.movable(r, live) {
			count++
		}
	}
	return count
}

// handOffTo offers the leadership to the best of those that say that they can take it. When
// nobody could it looks once more after the next heartbeats: once in a timeout raft forgets
// who was active, and each round may come right behind that.
func (n *Node) handOffTo(ctx context.Context, r *replica, h *giveaway) {
	list := n.successors(ctx, r)
	if len(list) == 0 {
		if !n.world.sleep(ctx, n.ticks(n.cfg.HeartbeatTicks+1)) {
			return
		}
		list = n.successors(ctx, r)
	}
	for _, to := range list {
		if _, may := h.to[to]; !may || n.askSuccessor(ctx, r, to) != nil {
			continue // nothing has stopped for that; it is asked again in the next round
		}
		r.worker.box.control(func() {
			r.worker.guard(r, "hand over", func() { r.worker.offer(r, to, h.shed) })
		})
		return
	}
}

// successors returns the nodes that could lead in place of this one, the best first.
func (n *Node) successors(ctx context.Context, r *replica) []raftyard.NodeID {
	got := make(chan []raftyard.NodeID, 1)
	if !r.worker.box.control(func() {
		var list []raftyard.NodeID
		r.worker.guard(r, "hand over", func() { list = r.worker.successors(r) })
		got <- list
	}) {
		return nil
	}
	list, _ := await(n.world, got, r.gone, ctx.Done())
	return list
}

// successors are voters that have been heard of lately, those first that have most of the
// log, but for those that have just not taken the leadership when it was offered.
func (w *worker) successors(r *replica) []raftyard.NodeID {
	st := r.raft.Status()
	if st.Role != group.Leader || r.steering.offers.to != 0 {
		return nil
	}
	r.steering.offers.mark(st.Progress)
	voters := r.meta.State.Descriptor.Voters()
	// Groups with the same voters are not all handed to the same one.
	first := int(uint64(r.group) % uint64(len(voters)))
	voters = slices.Concat(voters[first:], voters[:first])
	slices.SortStableFunc(voters, func(a, b group.Member) int {
		return cmp.Compare(st.Progress[b.ID].Match, st.Progress[a.ID].Match)
	})
	var nodes []raftyard.NodeID
	for _, m := range voters {
		if m.ID != r.id && !st.Progress[m.ID].Declined && w.checkTransfer(r, m.Node) == nil {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// offer offers the leadership to a node that has said that it can take it.
func (w *worker) offer(r *replica, to raftyard.NodeID, shed bool) {
	m, _ := r.meta.State.Descriptor.MemberOn(to)
	if m.ID == r.id || w.checkTransfer(r, to) != nil {
		return // that has changed meanwhile
	}
	if r.raft.TransferLeader(m.ID) == nil {
		r.steering.offers.made(m.ID, shed)
		w.touch(r)
	}
}
