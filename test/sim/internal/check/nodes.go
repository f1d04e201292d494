package check

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// Opened tells that a node has started and shows its replicas: all of them, also
// those that are stopped. What the node sends before is checked then. A Stepped
// without an Opened before it counts as one.
func (c *Checker) Opened(node raftyard.NodeID, seen *Examined) {
	n := c.node(node)
	if n.up {
		c.fail(OneHome, "node %d was opened twice", node)
	}
	c.tally.Opened++
	before := n.shown
	n.shown = nil
	c.link(n, seen)
	n.up = true
	c.checkStored(n, seen.Stored)
	for i := range seen.Replicas {
		c.reopen(n, n.shown[i], &seen.Replicas[i])
	}
	c.checkMissing(n, before, seen.Stored)
	n.loss = LostNothing
	for _, back := range n.regresses {
		if !back.s.dead {
			c.fail(NoRegress, "%s", back.text)
		}
	}
	n.regresses = nil
	early := n.early
	n.early = nil
	for i := range early {
		c.Sent(node, &early[i], false)
	}
}

// Stepped tells how a node looks after something ran on it. It costs next to
// nothing for replicas that look as before. Nothing of seen but the logs is kept.
func (c *Checker) Stepped(node raftyard.NodeID, seen *Examined) {
	n := c.node(node)
	if !n.up {
		c.Opened(node, seen)
		return
	}
	c.checkStored(n, seen.Stored)
	if !n.shows(seen) {
		before := n.shown
		c.link(n, seen)
		c.checkMissing(n, before, seen.Stored)
	}
	for i := range seen.Replicas {
		r, s := &seen.Replicas[i], n.shown[i]
		log := c.logOf(r)
		now := sightOf(r, log)
		c.checkDormant(s, r, now)
		if now == s.seen {
			continue
		}
		s.log = log
		c.look(s, r, now)
	}
}

// shows reports whether the replicas are those that were shown last.
func (n *nodeState) shows(seen *Examined) bool {
	if len(seen.Replicas) != len(n.shown) {
		return false
	}
	for i, s := range n.shown {
		r := &seen.Replicas[i]
		if s.id != r.ID || s.group.key != (groupKey{r.Group, r.Incarnation}) {
			return false
		}
	}
	return true
}

// link finds what is known of the replicas that a node shows.
func (c *Checker) link(n *nodeState, seen *Examined) {
	for _, s := range n.shown {
		s.shown = false
	}
	n.shown = n.shown[:0:0]
	for i := range seen.Replicas {
		r := &seen.Replicas[i]
		s := c.replica(Identity{r.Group, r.Incarnation, r.ID, n.id})
		s.shown = true
		s.log = c.logOf(r)
		n.shown = append(n.shown, s)
	}
}

// look compares a replica with what is known of it and of its group.
func (c *Checker) look(s *replicaState, r *Replica, now sight) {
	c.tally.Looks++
	c.checkServing(s, r)
	if r.Serving && r.Term > 0 {
		c.checkRegress(s, now)
		s.group.commit = max(s.group.commit, now.commit)
		c.checkMembers(s, r)
		c.checkLeader(s, r)
		c.checkBounds(s, r, now)
		c.checkCommitted(s, now)
		c.checkDecision(s, r)
		c.notePromises(s, now)
		c.noteMove(s, now)
	}
	s.seen = now
	if s.state.Index != r.State.Index || s.state.Descriptor.Epoch != r.State.Descriptor.Epoch {
		s.state = r.State
		s.state.Descriptor = r.State.Descriptor.Clone()
	}
}

// noteMove remembers when leadership has changed.
func (c *Checker) noteMove(s *replicaState, now sight) {
	if c.cfg.Now != nil && (now.term != s.seen.term || now.leader != s.seen.leader) {
		s.group.moved = c.cfg.Now()
	}
}

// Crashed tells that a node was stopped, orderly or not, and what it has lost. It
// comes after the last call about what ran on the node, and before Opened.
func (c *Checker) Crashed(node raftyard.NodeID, loss Loss) {
	n := c.node(node)
	n.up, n.regresses = false, nil
	n.promiseEarly(c)
	n.loss = max(n.loss, loss)
	n.stored = nil
	for _, s := range n.shown {
		s.promised.commit = max(s.promised.commit, hardStateOf(s.log).commit)
		s.shown, s.log = false, nil
		s.machine.open = false
	}
	if loss == LostSome || loss == LostUnseen {
		c.anyLoss, n.forgot = true, true
	}
	if loss == LostAll {
		n.forgot = false
		n.disk++
		n.shown = nil
		for _, g := range c.order {
			for _, s := range g.order {
				s.lost = s.lost || s.home.node == n
			}
		}
	}
}

// promiseEarly notes what was promised in messages of a node that crashed before
// anybody looked at it.
func (n *nodeState) promiseEarly(c *Checker) {
	for i := range n.early {
		env := &n.early[i]
		m := env.Message
		s := c.replica(Identity{env.Group, env.Incarnation, env.From.Replica, env.From.Node})
		switch m.GetType() {
		case raftpb.MsgReadIndex, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
			continue
		case raftpb.MsgVote:
			c.noteVote(s, m.GetTerm(), s.id)
		case raftpb.MsgVoteResp:
			if !m.GetReject() {
				c.noteVote(s, m.GetTerm(), raftyard.ReplicaID(m.GetTo()))
			}
		default:
		}
		s.promised.term = max(s.promised.term, m.GetTerm())
	}
	n.early = nil
}

// checkMissing looks for replicas that a node showed before and does not now.
//
// Rule 7, [DeadAreSilent]: a destroyed replica never sends again; so it must leave
// a tombstone that keeps its id from coming back.
func (c *Checker) checkMissing(n *nodeState, before []*replicaState, stored []storage.Replica) {
	for _, s := range before {
		if s.shown || s.dead {
			continue
		}
		if n.loss != LostNothing {
			// If it comes back it is not what it was.
			s.lost = s.lost || s.promised.term > 0
			continue
		}
		s.dead = true
		if !buried(s, stored) {
			c.fail(DeadAreSilent, "%v is gone, and no tombstone keeps its id from coming back", s)
		}
	}
}

// buried reports whether what is stored proves that s is no more.
func buried(s *replicaState, stored []storage.Replica) bool {
	for i := range stored {
		r := &stored[i]
		switch {
		case r.Group != s.group.key.id:
		case r.Incarnation != s.group.key.incarnation, r.ID > s.id:
			return true
		case r.Tombstone != nil:
			return r.Tombstone.NextReplica > s.id
		}
	}
	return false
}

// checkStored notes who is destroyed or damaged.
func (c *Checker) checkStored(n *nodeState, stored []storage.Replica) {
	for i := range stored {
		t := tombOf(&stored[i])
		if i < len(n.stored) && n.stored[i] == t {
			continue
		}
		if t.next == 0 && !t.bad {
			continue
		}
		for _, s := range c.group(t.key).order {
			if s.home.node != n {
				continue
			}
			s.dead = s.dead || s.id < t.next
			s.lost = s.lost || t.bad && s.id == t.id
		}
	}
	n.stored = n.stored[:0]
	for i := range stored {
		n.stored = append(n.stored, tombOf(&stored[i]))
	}
}

func tombOf(r *storage.Replica) tomb {
	t := tomb{key: groupKey{r.Group, r.Incarnation}, id: r.ID, bad: r.Damage != nil}
	if r.Tombstone != nil {
		t.next, t.full = r.Tombstone.NextReplica, !r.Tombstone.Purged
	}
	return t
}
