package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
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
	if !n.lifecycle.isFresh() {
		return
	}
	if n.isDrained(n.cfg.ID) {
		n.handOff(&giveaway{to: n.liveBoots(), batch: handoffBatch})
	}
	n.shed()
}

// drainProblem says what a drained node still leads, or nothing.
func (rep *nodeReport) drainProblem() string {
	switch {
	case rep.Movable > 0:
		return "it still leads " + amount(rep.Movable, "group that is", "groups that are") +
			" being handed over"
	case rep.Leaders > 0:
		return "it leads " + amount(rep.Leaders, "group that has", "groups that have") +
			" no other voter on a node that is live and not drained"
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
