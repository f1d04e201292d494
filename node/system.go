package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// registryChanged is called after the registry has applied something.
func (n *Node) registryChanged() {
	n.lifecycle.poke()
	n.noteChange()
}

// bootstrapElection lets the first node of a cluster that has just been founded
// stand for election in the system group as soon as it reaches a majority. By
// the clock it would take more than a second.
func (n *Node) bootstrapElection() {
	r := n.replica(raftyard.SystemGroup)
	if r == nil || !r.serving() {
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
				r.logger.Debug("campaign", errAttr(err))
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

// housekeeping brings the node into step with the cluster once the system group
// answers: the registry is read, this node's addresses are in it, and the
// configured groups exist. After that it looks for replicas that were removed and
// have not been told.
func (n *Node) housekeeping() {
	ctx := n.running
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"read the registry", n.refresh},
		{"register the nodes", n.registerNodes},
		{"create the configured groups", n.createConfigured},
	}
	for _, step := range steps {
		tries := 0
		for err := step.do(ctx); err != nil; err = step.do(ctx) {
			if tries++; tries == patientTries || tries%(10*patientTries) == 0 {
				n.logger.Warn("waiting for a majority of the system group", stepAttr(step.name),
					slog.Int("connected", n.countLive()), slog.Int("nodes", len(n.cfg.Peers)),
					errAttr(err))
			}
			if !n.world.sleep(ctx, n.cfg.TickInterval) {
				return
			}
		}
		n.logger.Debug("start-up step done", stepAttr(step.name))
	}
	n.ready.Store(true)
	n.noteChange()
	for n.world.sleep(ctx, strayEvery) {
		n.cleanStrays(ctx)
	}
}

// refresh reads the registry linearizably, once. From then on what it says may
// be used against what is on this node's disk.
func (n *Node) refresh(parent context.Context) error {
	ctx, cancel := n.world.withTimeout(parent, time.Second)
	defer cancel()
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(*registry.Registry) error {
		return nil
	})
	if err != nil {
		return errors.Join(err, n.announce(parent))
	}
	n.lifecycle.setFresh()
	return n.lifecycle.settle(parent)
}

// announce tells the system group where this node is, by requests. It is for a
// node that has moved: those that it reaches do not reach it, so that its own
// replica hears of no leader, and cannot pass anything on to one. It returns what
// a node had against that, nil if one took it or none was reached.
func (n *Node) announce(ctx context.Context) (refusal error) {
	ctx, cancel := n.world.withTimeout(ctx, time.Second)
	defer cancel()
	self := n.self()
	p := group.Proposal{
		ID: n.newMessageID(), Data: registry.EncodeSetNode(registry.SetNode{Node: self}),
	}
	tried := map[raftyard.NodeID]bool{0: true, self.ID: true}
	next := n.registry.Nodes()
	for len(next) > 0 && ctx.Err() == nil {
		to := next[0].ID
		next = next[1:]
		if tried[to] {
			continue
		}
		tried[to] = true
		_, err := n.proposeAt(ctx, to, raftyard.SystemGroup, p)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrInvalid) {
			refusal = err // such as: this directory is not the one that is known
		}
		// Saying it twice does no harm: a further node may be asked after any error.
		if nl, ok := errors.AsType[*NotLeaderError](err); ok && !tried[nl.Leader] {
			next = slices.Insert(next, 0, registry.Node{ID: nl.Leader})
		}
	}
	return refusal
}

// self is what this node's configuration says of itself.
func (n *Node) self() registry.Node {
	p, _ := n.cfg.peer(n.cfg.ID)
	return registry.Node{
		ID: p.ID, Peer: p.Addr, HTTP: p.HTTP, Labels: p.Labels, Store: n.ownStore(),
	}
}

// registerNodes puts this node's addresses into the registry, and those of the
// configured nodes that are not in it.
func (n *Node) registerNodes(ctx context.Context) error {
	if err := n.setNode(ctx, registry.SetNode{Node: n.self()}); err != nil {
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
		return fmt.Errorf("%w: %s", ErrInvalid, res.Detail)
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

// patientTries is after how many tries of a start-up step the log says so.
const patientTries = 3

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
	n.noteChange()
}

// noteChange tells the watchers that something may be seen that was not before.
func (n *Node) noteChange() { n.watchers.notify() }
