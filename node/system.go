package node

import (
	"context"
	"errors"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// registryChanged is called after the registry has applied something.
func (n *Node) registryChanged() {
	n.lifecycle.poke()
	n.keeper.poke()
	n.noteChange()
}

// bootstrapElection lets the first node of a cluster that has just been founded
// stand for election in the system group as soon as it reaches a majority. By
// the clock it would take more than a second.
func (n *Node) bootstrapElection() {
	r := n.replica(raftyard.SystemGroup)
	if r == nil || !r.serving() || n.waitsToFound(r) || !n.isVouched(r) {
		return
	}
	r.worker.box.control(func() {
		r.worker.guard(r, "found the cluster", func() {
			voters := r.meta.State.Descriptor.Voters()
			st := r.raft.Status()
			fresh := st.Term <= 1 && st.Leader == 0 && st.Role == group.Follower
			if !fresh || len(voters) == 0 || voters[0].ID != r.id || !n.reachesMajority(voters) {
				return
			}
			if err := r.raft.Campaign(); err != nil {
				r.logger().Debug("campaign", errAttr(err))
			}
			r.worker.touch(r)
		})
	})
}

func (n *Node) reachesMajority(voters []group.Member) bool {
	live, count := n.liveNodes(), 0
	for _, m := range voters {
		if live[m.Node] {
			count++
		}
	}
	return count > len(voters)/2
}

// registerNodes puts this node's addresses into the registry, and those of the
// configured nodes that are not in it.
func (n *Node) registerNodes(ctx context.Context) error {
	if err := n.setNode(ctx, registry.SetNode{
		Node: n.self(), Starts: n.store.Identity().Starts, Sparse: true,
		Late: n.founding.waits.Load(),
	}); err != nil {
		if isOutside(err) {
			n.lifecycle.lost()
			n.takeOutside(err)
		}
		return err
	}
	for _, other := range n.registry.Unregistered() {
		if err := n.setNode(ctx, registry.SetNode{Node: other, IfAbsent: true}); err != nil {
			return err
		}
	}
	return nil
}

// registerMembers makes sure that the configured nodes among those given are in
// the registry, which places groups on no others. It matters in a cluster's
// first moments only.
func (n *Node) registerMembers(ctx context.Context, lists ...[]raftyard.NodeID) error {
	members := slices.Concat(lists...)
	for _, other := range n.registry.Unregistered() {
		if !slices.Contains(members, other.ID) {
			continue
		}
		if err := n.setNode(ctx, registry.SetNode{Node: other, IfAbsent: true}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) setNode(ctx context.Context, set registry.SetNode) error {
	res, err := n.command(ctx, registry.EncodeSetNode(set))
	switch {
	case err != nil:
		return err
	case res.Code == registry.OK || res.Code == registry.Created:
	case set.Node.ID == n.cfg.ID:
		return n.refusedBy(res)
	default:
		n.logger.Error("registry refuses a node", nodeAttr(set.Node.ID), stepAttr(res.Detail))
	}
	return nil
}

// createConfigured creates the configured groups that are missing. Every node
// may try; the registry decides once.
func (n *Node) createConfigured(ctx context.Context) error {
	for _, spec := range n.cfg.Groups {
		if rec, ok := n.registry.Group(spec.ID); ok {
			if !rec.Deleted && !reached(groupOf(spec), rec) {
				n.logger.Warn("a configured group has other members by now; "+
					"the configuration only says how it is created", groupAttr(spec.ID))
			}
			continue // there, or deleted on purpose
		}
		_, _, err := n.decideGroup(ctx, spec)
		switch {
		case errors.Is(err, ErrGroupExists), errors.Is(err, ErrInvalid):
			n.logger.Error("configured group not created", groupAttr(spec.ID), errAttr(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// countLive counts this node and those that it is connected to.
func (n *Node) countLive() int {
	count := 0
	for _, up := range n.liveNodes() {
		if up {
			count++
		}
	}
	return count
}

// groupOf is the descriptor that a group of that spec has in the end.
func groupOf(spec Spec) group.Descriptor {
	var d group.Descriptor
	for _, id := range spec.Voters {
		d.Members = append(d.Members, group.Member{Node: id, Role: group.Voter})
	}
	for _, id := range spec.Learners {
		d.Members = append(d.Members, group.Member{Node: id, Role: group.Learner})
	}
	return d
}

// noteLeader is called by a worker when a replica hears of another leader.
func (n *Node) noteLeader(r *replica) {
	if r.leader.Leader != 0 {
		n.metrics.leaderChanges.Add(1)
	}
	if r.group == raftyard.SystemGroup {
		n.keeper.poke()
	}
	n.noteChange()
}

// noteChange tells the watchers that something may be seen that was not before.
func (n *Node) noteChange() { n.watchers.notify() }
