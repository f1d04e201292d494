package node

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A message that its receiver cannot use is answered with a notice that says why. Notices
// are never answered, and of those that say the same to the same replica few are sent, so
// that nothing goes to and fro between two replicas that are both no more. Nobody is
// destroyed on somebody's word alone: see notice.

// strangeMessage deals with a message for a replica that is not here, or not
// this one.
func (n *Node) strangeMessage(env *transport.Envelope) {
	n.metrics.messagesStrange.Add(1)
	st, ok := n.store.Replica(env.Group)
	same := ok && st.Incarnation == env.Incarnation
	switch {
	case same && st.Tombstone != nil && env.To.Replica < st.Tombstone.NextReplica:
		n.answerDead(env, st.Tombstone)
	case n.tellGone(env):
	case same && st.Tombstone == nil && env.To.Replica < st.ID:
		n.answerTooOld(env)
	case n.answerDamaged(env):
	default:
		n.lifecycle.wanted(env)
	}
}

// answerDead tells a sender what this node last knew: that it was removed too, or that
// the change is committed that it may be waiting for.
func (n *Node) answerDead(env *transport.Envelope, t *storage.Tombstone) {
	d, err := remainsIn(t)
	switch {
	case err != nil:
		return
	case d.Deleted:
		n.answer(env, transport.NoticeGroupDeleted, d)
		return
	case env.Epoch >= t.Epoch:
		return
	}
	_, member := d.Member(env.From.Replica)
	switch {
	case len(d.Members) > 0 && !member && env.From.Replica < d.NextReplica:
		n.answer(env, transport.NoticeRemoved, d)
	case d.Index != 0:
		// Whether it is a member is not known if this replica was destroyed on
		// somebody's word. Then it makes of this what it can.
		n.answer(env, transport.NoticeBehind, d)
	}
}

// tellGone tells a sender that its group is deleted, or is another one by now, and
// reports whether that is so. A group that the registry does not know is not answered:
// anybody can make one up.
func (n *Node) tellGone(env *transport.Envelope) bool {
	rec, ok := n.registry.Group(env.Group)
	if !ok || env.Group == raftyard.SystemGroup || !n.lifecycle.isFresh() {
		return false
	}
	switch {
	case rec.Incarnation != env.Incarnation:
		n.answer(env, transport.NoticeWrongIncarnation, remains{})
	case rec.Deleted:
		n.answer(env, transport.NoticeGroupDeleted, remains{})
	default:
		return false
	}
	return true
}

// answerTooOld tells a sender that it takes this node for the home of a replica that is
// no more, where a later one is. If it has itself been removed meanwhile, it hears that.
func (n *Node) answerTooOld(env *transport.Envelope) {
	r := n.replica(env.Group)
	if r == nil || !r.serving() || r.incarnation != env.Incarnation {
		return
	}
	v := r.view.Load()
	if !v.initialized() || env.Epoch >= v.State.Descriptor.Epoch {
		return
	}
	kind := transport.NoticeReplicaTooOld
	last := r.remainsOf(v.State)
	switch {
	case n.fromRemoved(r, env):
		kind = transport.NoticeRemoved
	case isCandidate(env.Message) && last.Index != 0:
		kind = transport.NoticeBehind
	}
	n.answer(env, kind, last)
}

// isCandidate reports whether a message asks for a vote.
func isCandidate(m *raftpb.Message) bool {
	t := m.GetType()
	return t == raftpb.MsgPreVote || t == raftpb.MsgVote
}

// answer sends a notice back, unless the sender has just had it.
func (n *Node) answer(env *transport.Envelope, kind transport.NoticeKind, d remains) {
	said := saying{group: env.Group, replica: env.From.Replica, kind: kind}
	if !n.notices.may(env.From.Node, said, n.world.now(), n.ticks(n.cfg.ElectionTicks)/2) {
		return
	}
	n.metrics.noticesSent.Add(1)
	n.transport.Send([]transport.Envelope{{
		Group: env.Group, Incarnation: env.Incarnation, Epoch: d.Epoch,
		From: env.To, To: env.From,
		Notice: &transport.Notice{
			Kind: kind, Epoch: d.Epoch, NextReplica: d.NextReplica, Index: d.Index, Term: d.Term,
		},
	}})
}

// notice hears that a replica of ours may be gone, or that its members have changed.
//
// It goes only on proof: at a later epoch than its own it is no member, and its id is
// not to come any more. That its group is deleted only the registry can say, which is
// read for that.
func (n *Node) notice(from *transport.Identity, env *transport.Envelope) {
	r, told := n.replica(env.Group), env.Notice
	if told.Kind == transport.NoticeBeat {
		n.liveness.beat(from.Node, nodeLife{from.Process, told.Turn}, n.world.now())
		return
	}
	if r == nil || !n.addressed(r, env) || n.waitsToFound(r) {
		// One that waits has not asked: one before it has, in a directory that was wiped. It
		// stays, and shows that its directory is not known, until another one is to come.
		return
	}
	switch told.Kind {
	case transport.NoticeGroupDeleted, transport.NoticeWrongIncarnation:
		n.reread.Store(true)
		return
	case transport.NoticeReplicaTooOld:
		r.suspect.Store(true)
		n.deliver(inbound{r: r, rouse: true})
		return
	case transport.NoticeDamaged:
		if !n.misplaced(r, from, env) {
			n.deliver(inbound{r: r, damaged: env.From.Replica})
		}
		return
	case transport.NoticeSleep, transport.NoticeAsleep, transport.NoticeAwake:
		n.noticeOfSleep(r, from, env)
		return
	case transport.NoticeRemoved, transport.NoticeBehind, transport.NoticeBeat:
	}
	switch old := told.Epoch <= r.view.Load().State.Descriptor.Epoch; {
	case mutant.On(mutant.EpochIgnored) && told.Kind == transport.NoticeRemoved:
		n.lifecycle.destroy(r, r.bygone(told.Epoch, r.id+1))
	case old:
	case told.Kind == transport.NoticeBehind && r.view.Load().lost: // it does not vote any more
	case told.Kind == transport.NoticeBehind:
		n.deliver(inbound{r: r, told: &vouched{
			from: env.From.Replica, index: told.Index, term: told.Term,
		}})
	case told.Kind == transport.NoticeRemoved && r.id < told.NextReplica:
		last := r.bygone(told.Epoch, r.id+1)
		last.Index, last.Term = told.Index, told.Term
		n.lifecycle.destroy(r, last)
	}
}

// bygone is what is known of a group when the replica has not seen its own end. Ids
// from next on may come to this node. Next is not what the group gives out next: that
// may be far beyond the replica that this node has been given meanwhile.
func (r *replica) bygone(epoch uint64, next raftyard.ReplicaID) remains {
	return remains{Descriptor: group.Descriptor{
		Group: r.group, Incarnation: r.incarnation, Kind: r.view.Load().State.Descriptor.Kind,
		Epoch: epoch, NextReplica: next,
	}}
}

// maxSayings bounds the notices that a node is sent within one period, and so what is
// remembered of it.
const maxSayings = 1024

// notices remembers which were sent lately.
type notices struct {
	mu sync.Mutex
	of map[raftyard.NodeID]*sayings // nodes that this node listens to
}

// sayings are what a node was told in the present period.
type sayings struct {
	since time.Time
	said  map[saying]bool
}

type saying struct {
	group   raftyard.GroupID
	replica raftyard.ReplicaID
	kind    transport.NoticeKind
}

// may reports whether something may be said to a replica on a node, and remembers that
// it was.
func (t *notices) may(
	to raftyard.NodeID, what saying, now time.Time, period time.Duration,
) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[to]
	if s == nil || now.Sub(s.since) >= period {
		s = &sayings{since: now, said: make(map[saying]bool)}
		if t.of == nil {
			t.of = make(map[raftyard.NodeID]*sayings)
		}
		t.of[to] = s
	}
	if s.said[what] || len(s.said) >= maxSayings {
		return false
	}
	s.said[what] = true
	return true
}
