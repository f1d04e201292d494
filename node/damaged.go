package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A replica that has lost something that it had acknowledged takes no part in its group
// any more: it is silent, and shown as damaged. What it had promised stands, and nobody
// can keep it, so it counts as one that has crashed for ever. Another one comes in its
// place, on the same node and under a new id:
//
//	damaged ── message of the leader ──▶ notice ──▶ the leader's plan: out with it, and
//	                                                a learner on its node, in one change
//	   ▼ message for the new id                                                │
//	tombstone, purged ──▶ new replica ──▶ snapshot, log ──▶ voter ◀────────────┘
//
// The leader does so if the others have a majority without it, and hears of it again as
// long as it speaks to it, so that nothing need be remembered.

// condemn takes a replica out of its group for good: it has lost something. It is silent
// when condemn returns; that it is damaged is made durable after that, and done, unless
// it is nil, is called then. why wraps an ErrDamaged.
func (n *Node) condemn(r *replica, why error, done func(error)) {
	n.stopReplica(r, faulty(DamagedLog, why))
	mark := write{kind: writeDamaged, group: r.group, damage: why.Error(), done: func(err error) {
		if err != nil && n.store.Err() == nil {
			n.logger.Error("damage not noted", groupAttr(r.group), errAttr(err))
		}
		if done != nil {
			done(err)
		}
	}}
	// Behind its end, after which it writes nothing.
	if !r.worker.box.control(func() { n.committer.submit(mark) }) {
		mark.done(ErrClosed)
	}
}

// replaceLocal gives up a replica that takes no part in its group any more: another one is
// to come in its place. It returns when that is there, or [ErrNotReached] when ctx ends
// before.
func (n *Node) replaceLocal(ctx context.Context, r *replica) (ReplicaStatus, error) {
	if !n.isDamaged(r) || n.isOnlyVoter(r) {
		if err := n.dispensable(r); err != nil {
			return ReplicaStatus{}, err
		}
	}
	marked := make(chan error, 1)
	n.condemn(r, fmt.Errorf("%w: it is to be replaced: %w", storage.ErrDamaged, r.goneReason()),
		func(err error) { marked <- err })
	err, from := await(n.world, marked, n.stopped, ctx.Done())
	switch {
	case from == fromFirst:
		return ReplicaStatus{}, ErrClosed
	case from == fromValues && err != nil:
		return ReplicaStatus{}, err
	}
	for now := n.replica(r.group); now == r || !now.isInitialized(); now = n.replica(r.group) {
		if !n.world.sleep(ctx, pollEvery) {
			return ReplicaStatus{}, fmt.Errorf("group %d: %w: the group's leader is to replace "+
				"replica %d: %w", r.group, ErrNotReached, r.id, ctx.Err())
		}
	}
	return n.mended(ctx, r.group, nil)
}

// isInitialized reports whether there is a replica, and it has a state.
func (r *replica) isInitialized() bool { return r != nil && r.view.Load().initialized() }

// dispensable returns why a group cannot do without a replica, or nil: in each half of
// its voters, as far as the replica knows them, there must be a majority of others.
func (n *Node) dispensable(r *replica) error {
	d := r.view.Load().State.Descriptor
	live := n.liveNodes()
	halves := []func(group.Role) bool{
		func(role group.Role) bool { return role == group.Voter || role == group.Incoming },
		func(role group.Role) bool {
			return role == group.Voter || role == group.Outgoing || role == group.Demoting
		},
	}
	for _, votes := range halves {
		total, others := 0, 0
		for _, m := range d.Members {
			if !votes(m.Role) {
				continue
			}
			total++
			if m.ID != r.id && live[m.Node] {
				others++
			}
		}
		if total > 0 && others <= total/2 {
			return fmt.Errorf("%w: group %d: without the one at node %d only %d of its %d voters "+
				"are connected, too few to replace it", ErrUnhealthy, r.group, n.cfg.ID,
				others, total)
		}
	}
	return nil
}

// answerDamaged tells a sender that the replica for which its message is has lost
// something, and must be replaced; it reports whether that is so.
func (n *Node) answerDamaged(env *transport.Envelope) bool {
	r := n.replica(env.Group)
	if r == nil || r.incarnation != env.Incarnation || r.id != env.To.Replica || !n.isDamaged(r) {
		return false
	}
	n.answer(env, transport.NoticeDamaged, remains{})
	return true
}

// isDamaged reports whether a replica is out of service because it has lost something.
func (n *Node) isDamaged(r *replica) bool {
	err := r.fault()
	if err == nil || r.serving() {
		return false
	}
	st, ok := n.store.Replica(r.group)
	return quarantineOf(err).Reason.damaged() || ok && st.ID == r.id && st.Damage != nil
}

// isOnlyVoter reports whether nobody else votes in the replica's group, as far as it
// knows: what it has lost is nowhere.
func (n *Node) isOnlyVoter(r *replica) bool {
	d := r.view.Load().State.Descriptor
	if len(d.Members) == 0 { // as nobody knows here
		return r.group == raftyard.SystemGroup && n.cfg.founds() && len(n.foundingIDs()) == 1
	}
	return !slices.ContainsFunc(d.Voters(), func(m group.Member) bool { return m.ID != r.id })
}

// isOnlyMember reports whether a damaged replica has never heard of another member, who could
// replace it. Its record may be an older one: who was a learner then may vote by now.
func (n *Node) isOnlyMember(r *replica) bool {
	return n.isOnlyVoter(r) && len(r.view.Load().State.Descriptor.Members) < 2
}

// memberDamaged hears that a member is damaged. A leader sees to it that it is replaced;
// others will hear of it when they lead.
func (w *worker) memberDamaged(r *replica, id raftyard.ReplicaID) {
	s := &r.steering
	m, ok := r.meta.State.Descriptor.Member(id)
	if !ok || r.leader.Role != group.Leader || s.damaged[id] {
		return
	}
	if s.damaged == nil {
		s.damaged = make(map[raftyard.ReplicaID]bool)
	}
	s.damaged[id] = true
	r.logger().Warn("a member is damaged, and is to be replaced", nodeAttr(m.Node),
		replicaAttr(id))
	w.steer(r)
	w.touch(r)
}

// markDamaged says in the progress which members are damaged, and forgets those that are
// members no more.
func (s *steering) markDamaged(progress map[raftyard.ReplicaID]group.Progress) {
	for id := range s.damaged {
		p, ok := progress[id]
		if !ok {
			delete(s.damaged, id)
			continue
		}
		p.Damaged = true
		progress[id] = p
	}
}
