package node

import (
	"context"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// keeper does what the leader of the system group does for the cluster: it moves groups
// off nodes that leave, and brings the system group's own members to what the registry
// wants. Whoever leads next begins from what the registry and the groups are then; what
// a keeper remembers only spares work.
type keeper struct {
	node *Node
	wake chan struct{}

	nextMove time.Time
	vacated  map[raftyard.NodeID]bool // leaving nodes on which no group has a member
}

func newKeeper(n *Node) *keeper { return &keeper{node: n, wake: make(chan struct{}, 1)} }

// poke has the keeper look soon.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// pokeNowAndThen has it look though nothing has told of a change.
func (k *keeper) pokeNowAndThen() {
	k.node.world.every(k.node.running, reconcileEvery, k.poke)
}

// run looks until the node stops.
func (k *keeper) run() {
	n := k.node
	for {
		if _, from := await(n.world, k.wake, n.running.Done(), nil); from != fromValues {
			return
		}
		k.look(n.running)
	}
}

// look does what is to be done, if this node leads the system group.
func (k *keeper) look(ctx context.Context) {
	r, v := k.leading()
	if r == nil {
		k.vacated = nil
		return
	}
	leaving := k.leaving()
	if len(leaving) == 0 {
		k.vacated = nil // a node that leaves later may have got replicas meanwhile
	}
	if len(leaving) == 0 && reachedWant(v.State.Descriptor, k.want(v)) {
		return
	}
	// The registry here may be older than what is decided.
	ctx, cancel := k.node.world.withTimeout(ctx, k.node.cfg.DefaultTimeout)
	defer cancel()
	if r.readBarrier(ctx, 0) != nil {
		return // it leads no longer, or cannot: the next look comes
	}
	k.move(ctx, v)
	now, v := k.leading()
	if now != r {
		return
	}
	want := k.want(v)
	if !reachedWant(v.State.Descriptor, want) {
		rec := &registry.Group{Voters: want.Voters, Learners: want.Learners}
		r.worker.steerSystem(r, v.Term, rec)
	}
	k.remove(ctx, v)
}

// leaving returns the nodes that are.
func (k *keeper) leaving() []registry.Node {
	return slices.DeleteFunc(k.node.registry.Nodes(), func(rec registry.Node) bool {
		return rec.State != registry.NodeLeaving
	})
}

// move has groups go elsewhere, now and then.
func (k *keeper) move(ctx context.Context, v *view) {
	now := k.node.world.now()
	if now.Before(k.nextMove) {
		return
	}
	vacated := make(map[raftyard.NodeID]bool)
	for _, rec := range k.leaving() {
		_, reads := v.State.Descriptor.MemberOn(rec.ID)
		if k.node.moveAway(ctx, &rec) &&
			(k.vacated[rec.ID] || k.node.isVacated(ctx, &rec, reads)) {
			vacated[rec.ID] = true
		}
	}
	k.vacated = vacated
	after := k.node.world.now()
	k.nextMove = after.Add(movePause(after.Sub(now)))
}

// movePause returns how long to wait after a look that took so long. With many groups it
// takes a while, and is not to be all that is done. It may have been a node that did not
// answer, though, and what is to be done next must not wait for long because of that.
func movePause(took time.Duration) time.Duration {
	return min(moveEvery+5*took, maxMovePause)
}

// remove ends the life of nodes that have left all groups, the system group too.
func (k *keeper) remove(ctx context.Context, v *view) {
	for _, rec := range k.leaving() {
		if _, member := v.State.Descriptor.MemberOn(rec.ID); member || !k.vacated[rec.ID] {
			continue
		}
		// What was found before may be of an earlier time when it was leaving.
		if !k.node.isVacated(ctx, &rec, false) {
			delete(k.vacated, rec.ID)
			continue
		}
		if _, err := k.node.setNodeState(ctx, rec.ID, registry.NodeRemoved); err != nil {
			k.node.logger.Warn("remove a node", nodeAttr(rec.ID), errAttr(err))
			continue
		}
		k.node.logger.Info("node removed", nodeAttr(rec.ID))
	}
}

// leading returns this node's replica of the system group if it leads.
func (k *keeper) leading() (*replica, *view) {
	r := k.node.replica(raftyard.SystemGroup)
	if r == nil || !r.serving() {
		return nil, nil
	}
	v := r.view.Load()
	if !v.initialized() || v.Leader != r.id {
		return nil, nil
	}
	return r, v
}

// want is what the members of the system group shall be, as far as is known here.
func (k *keeper) want(v *view) group.Want {
	live := k.node.liveNodes()
	recs := k.node.registry.Nodes()
	nodes := make([]systemNode, 0, len(recs))
	for _, rec := range recs {
		nodes = append(nodes, systemNode{
			id: rec.ID, state: rec.State, live: live[rec.ID], empty: k.vacated[rec.ID],
		})
	}
	return systemWant(v.State.Descriptor, nodes)
}

// reachedWant reports whether the members are just those that are wanted.
func reachedWant(d group.Descriptor, want group.Want) bool {
	have := wantOf(d)
	for _, ids := range [][]raftyard.NodeID{
		have.Voters, have.Learners, want.Voters, want.Learners,
	} {
		slices.Sort(ids)
	}
	return !d.IsJoint() && slices.Equal(have.Voters, want.Voters) &&
		slices.Equal(have.Learners, want.Learners)
}

// steerSystem tells the replica of the system group what members are wanted while it
// leads in the term. Another term has another leader, or one that has looked again.
func (w *worker) steerSystem(r *replica, term uint64, rec *registry.Group) {
	w.box.control(func() {
		w.guard(r, "steer", func() {
			if r.leader.Term != term {
				return
			}
			r.steering.want, r.steering.term = rec, term
			w.steer(r)
			w.touch(r)
		})
	})
}
