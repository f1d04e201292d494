package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

const (
	// handoffEvery is how often a drained node looks for what it leads, and
	// handoffBatch bounds what it hands over in one go.
	handoffEvery = 200 * time.Millisecond
	handoffBatch = 64
)

// DrainNode has a node lead no group any more, the system group neither: what it leads,
// now or later, it hands over to voters on nodes that are not drained. The node stays a
// member of all its groups, votes, and holds data. New groups begin elsewhere if they
// can. It stays so, also when it starts again, until [Node.UndrainNode].
//
// The decision is durable when DrainNode returns without an error. It waits, until ctx
// ends, for the node to lead nothing that somebody else could lead; the status says what
// it still leads. A node that is leaving stays then, drained.
func (n *Node) DrainNode(ctx context.Context, id raftyard.NodeID) (NodeStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	if _, err := n.setNodeState(ctx, id, registry.NodeDrained); err != nil {
		return NodeStatus{}, err
	}
	wait := pollEvery
	for {
		st, rep, err := n.nodeStatus(context.WithoutCancel(ctx), id)
		if err != nil || !st.Live || rep.Movable == 0 || !n.world.sleep(ctx, wait) {
			return st, err
		}
		wait = min(2*wait, handoffEvery)
	}
}

// UndrainNode takes back that a node is drained, or that it is leaving.
func (n *Node) UndrainNode(ctx context.Context, id raftyard.NodeID) (NodeStatus, error) {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	res, err := n.setNodeState(ctx, id, registry.NodeActive)
	if err != nil && res.Node.State == registry.NodeLeaving {
		if _, err = n.setNodeState(ctx, id, registry.NodeDrained); err == nil {
			_, err = n.setNodeState(ctx, id, registry.NodeActive)
		}
	}
	if err != nil {
		return NodeStatus{}, err
	}
	return n.NodeStatus(ctx, id)
}

// setNodeState has the registry change what a node is used for.
func (n *Node) setNodeState(
	ctx context.Context, id raftyard.NodeID, state registry.NodeState,
) (registry.Result, error) {
	if err := n.mustBelong(); err != nil {
		return registry.Result{}, err
	}
	// Nodes that only the configuration knows are not in the registry in a cluster's
	// first moments.
	if err := n.registerMembers(ctx, []raftyard.NodeID{id}); err != nil {
		return registry.Result{}, err
	}
	res, err := n.command(ctx, registry.EncodeSetNodeState(registry.SetNodeState{
		ID: id, State: state,
	}))
	if err != nil {
		return res, err
	}
	return res, nodeResult(id, res)
}

// isDrained reports whether the node is to lead nothing, as far as is known here.
func (n *Node) isDrained(id raftyard.NodeID) bool {
	rec, _ := n.registry.Node(id)
	return rec.State != registry.NodeActive
}

// giveAway hands over what this node should not lead.
func (n *Node) giveAway() {
	n.handOff()
	n.shed()
}

// handOff hands some of what this node leads over, if it is drained.
func (n *Node) handOff() {
	if !n.lifecycle.isFresh() || !n.isDrained(n.cfg.ID) {
		return
	}
	live, room := n.liveNodes(), handoffBatch
	for _, r := range n.allReplicas() {
		if room == 0 {
			return // the rest in the next round, or those that are still at it
		}
		if r.serving() && n.movable(r, live) {
			room--
			r.worker.box.control(func() {
				r.worker.guard(r, "hand over", func() {
					r.worker.handOver(r, func(id raftyard.NodeID) bool { return !n.isDrained(id) })
				})
			})
		}
	}
}

// movable reports whether the replica leads, and a voter on a node that is connected and
// not drained could lead in its place.
func (n *Node) movable(r *replica, live map[raftyard.NodeID]bool) bool {
	v := r.view.Load()
	if !v.initialized() || v.Leader != r.id {
		return false
	}
	return slices.ContainsFunc(v.State.Descriptor.Voters(), func(m group.Member) bool {
		return m.ID != r.id && live[m.Node] && !n.isDrained(m.Node)
	})
}

// countMovable counts the groups that this node leads and could hand over.
func (n *Node) countMovable() (count int) {
	live := n.liveNodes()
	for _, r := range n.allReplicas() {
		if r.serving() && n.movable(r, live) {
			count++
		}
	}
	return count
}

// handOver transfers the leadership to a voter on an eligible node that has been heard
// of lately, one of those that have most of the log.
func (w *worker) handOver(r *replica, eligible func(raftyard.NodeID) bool) {
	st := r.raft.Status()
	if st.Role != group.Leader || st.Transferee != 0 {
		return
	}
	var best []raftyard.ReplicaID
	var match uint64
	for _, m := range r.meta.State.Descriptor.Voters() {
		p := st.Progress[m.ID]
		if m.ID == r.id || !p.RecentActive || p.Match < max(match, 1) || !eligible(m.Node) {
			continue
		}
		if p.Match > match {
			best, match = best[:0], p.Match
		}
		best = append(best, m.ID)
	}
	if len(best) == 0 {
		return
	}
	// Groups with the same voters are not all handed to the same one.
	if err := r.raft.TransferLeader(best[uint64(r.group)%uint64(len(best))]); err == nil {
		w.touch(r)
	}
}

// drainProblem says what a drained node still leads, or nothing.
func (rep *nodeReport) drainProblem() string {
	switch {
	case rep.Movable > 0:
		return fmt.Sprintf("it still leads %d groups that are being handed over", rep.Movable)
	case rep.Leaders > 0:
		return fmt.Sprintf("it leads %d groups that have no other voter on a node that is live "+
			"and not drained", rep.Leaders)
	}
	return ""
}

// chooseSeed picks the node on which the group begins, and the data directory that
// it has. Seeds are spread over the voters, so that leaderships are, among those
// that are reachable now, and not drained and not short of disk space if that can be.
func (n *Node) chooseSeed(spec Spec) (raftyard.NodeID, registry.Store) {
	stores := n.liveStores()
	start := int(uint64(spec.ID) % uint64(len(spec.Voters)))
	order := slices.Concat(spec.Voters[start:], spec.Voters[:start])
	slices.SortStableFunc(order, func(a, b raftyard.NodeID) int {
		_, liveA := stores[a]
		_, liveB := stores[b]
		return cmp.Or(boolCompare(liveB, liveA), boolCompare(n.isDrained(a), n.isDrained(b)),
			boolCompare(n.short(a), n.short(b)))
	})
	return order[0], stores[order[0]]
}
