package check

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// Sent tells that an envelope leaves a node; a copy that the network makes is not
// sent again. The checker keeps nothing of it, unless the node was not opened yet.
// What the node's log store says is taken for durable, unless unsynced says that its
// disk would lose some of that in a power failure now.
//
// Rule 4, [DurableFirst]: what a message vouches for was durable when it left.
//
//	message            vouches for
//	MsgAppResp         all entries up to its index, in its term
//	MsgVoteResp        the vote
//	MsgVote            the vote for itself, and a log that is as up to date
//	of a leader        the term, and the vote for itself
//	all with a term    the term; a pre-vote speaks of the next one, and its grant
//	                   of the candidate's
//
// A leader's entries may travel before its own disk has them, and so may whatever
// it says of the commit index: it counts itself only when it has them, which is
// looked at where it commits.
func (c *Checker) Sent(node raftyard.NodeID, env *transport.Envelope, unsynced bool) {
	n := c.node(node)
	if !n.up {
		n.early = append(n.early, *env)
		return
	}
	if env.Notice != nil {
		// Whoever is there by now says so in the name of the one that was addressed, which
		// may have been in a directory that is lost.
		g := c.group(groupKey{env.Group, env.Incarnation})
		c.checkNotice(g.replica(env.From.Replica), env)
		return
	}
	s := c.replica(Identity{env.Group, env.Incarnation, env.From.Replica, env.From.Node})
	if env.From.Node != node {
		c.fail(OneHome, "node %d sends in the name of %v", node, s)
	}
	c.checkSilence(s, env.Message)
	// A state that somebody has asked for is sent aside from raft.
	aside := env.Message.GetType() == raftpb.MsgSnap && len(env.Message.GetContext()) > 0
	s.spoke = s.spoke || !aside
	t := tap{Checker: c, s: s, m: env.Message, log: s.log, unsynced: unsynced}
	if t.log == nil {
		c.fail(DurableFirst, "%v sends %v, and nothing of it is durable", s, t.m.GetType())
		return
	}
	t.hard = hardStateOf(t.log)
	t.check()
}

// checkSilence looks for messages of those who must not send any.
//
// Rule 7, [DeadAreSilent], and rule 14, [Quarantine].
func (c *Checker) checkSilence(s *replicaState, m *raftpb.Message) {
	switch {
	case s.dead:
		c.fail(DeadAreSilent, "%v sends %v to %d after it was destroyed", s, m.GetType(), m.GetTo())
	case s.lost:
		c.fail(Quarantine, "%v sends %v to %d, though it has lost what it had promised to keep",
			s, m.GetType(), m.GetTo())
	case s.unseen && m.GetType() != raftpb.MsgPreVote && m.GetType() != raftpb.MsgPreVoteResp:
		c.fail(Quarantine, "%v sends %v to %d, though it has lost what it had promised to keep, "+
			"and others remember", s, m.GetType(), m.GetTo())
	case s.shown && !s.seen.serving:
		c.fail(Quarantine, "%v sends %v to %d though it is stopped", s, m.GetType(), m.GetTo())
	}
}

// A tap is one message under examination.
type tap struct {
	*Checker

	s        *replicaState
	m        *raftpb.Message
	log      Log
	hard     hardState
	unsynced bool
}

func (t *tap) check() {
	m := t.m
	term := m.GetTerm()
	t.tally.Sent++
	if m.GetType() == raftpb.MsgSnap && len(m.GetContext()) > 0 {
		// A state for a replica without a state machine: anybody may send what it has.
		t.checkSnapshot(t.s, m.GetSnapshot(), "sends a state")
		t.tally.States++
		return
	}
	switch m.GetType() {
	case raftpb.MsgReadIndex:
		return // a question, without a term
	case raftpb.MsgPreVote:
		t.wantTerm(term - min(term, 1))
		return // it promises nothing
	case raftpb.MsgPreVoteResp:
		if m.GetReject() {
			t.wantTerm(term)
		}
		return
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgTimeoutNow:
		t.wantTerm(term)
		t.leads()
	case raftpb.MsgVote:
		t.wantTerm(term)
		t.wantVote(t.s.id)
		t.wantEnd()
	case raftpb.MsgVoteResp:
		t.wantTerm(term)
		if !m.GetReject() {
			t.wantVote(raftyard.ReplicaID(m.GetTo()))
		}
	case raftpb.MsgAppResp:
		t.wantTerm(term)
		if !m.GetReject() && m.GetIndex() > 0 {
			t.wantEntries()
		}
	default: // MsgHeartbeatResp, MsgReadIndexResp
		t.wantTerm(term)
	}
	t.s.promised.term = max(t.s.promised.term, term)
}

func (t *tap) wantTerm(term uint64) {
	if t.hard.term < term {
		t.fail(DurableFirst, "%v sends %v of term %d, durable is term %d",
			t.s, t.m.GetType(), t.m.GetTerm(), t.hard.term)
	}
}

// wantSync looks whether the store takes for durable what the disk can lose.
func (t *tap) wantSync() {
	if t.unsynced {
		t.fail(DurableFirst, "%v sends %v of term %d while a commit is not synced",
			t.s, t.m.GetType(), t.m.GetTerm())
	}
}

// wantVote: the vote is durable, or a later term is, in which it does not matter.
func (t *tap) wantVote(to raftyard.ReplicaID) {
	t.wantSync()
	t.tally.Votes++
	term := t.m.GetTerm()
	if t.hard.term == term && t.hard.vote != to {
		t.fail(DurableFirst, "%v sends %v of term %d for %d, the durable vote is for %d",
			t.s, t.m.GetType(), term, to, t.hard.vote)
	}
	t.noteVote(t.s, term, to)
}

// wantEnd: the end of the log that a candidate shows is no more up to date than what is
// durable, as voters compare it: by term, then by index. What is durable may be more
// up to date, and end at a lower index, when the candidate has heard of the leader of
// its term before its request leaves.
func (t *tap) wantEnd() {
	index, term := t.m.GetIndex(), t.m.GetLogTerm()
	_, last := t.log.Bounds()
	own, _ := termAt(t.log, last)
	if term > own || term == own && index > last {
		t.fail(DurableFirst, "%v stands for term %d with a log that ends at %s, %s",
			t.s, t.m.GetTerm(), position(index, term), t.end())
	}
}

// end describes what is durable of the log.
func (t *tap) end() string {
	_, last := t.log.Bounds()
	term, _ := termAt(t.log, last)
	return "durable up to " + position(last, term)
}

// wantEntries: what is acknowledged is durable, and is what the leader has.
func (t *tap) wantEntries() {
	t.wantSync()
	t.tally.Acks++
	term, index := t.m.GetTerm(), t.m.GetIndex()
	own, state := termAt(t.log, index)
	leaders, known := t.s.group.reignOf(term).termAt(index)
	if t.hard.term > term && (state == beyond || state == present && known && leaders != own) {
		// In one step it heard of two leaders, and the later one's entries took the place of
		// what the earlier one hears it has. Nothing can come of that: a majority had gone
		// over to the later one before it had those entries.
		return
	}
	switch state {
	case beyond:
		t.fail(DurableFirst, "%v acknowledges entry %d in term %d, %s", t.s, index, term, t.end())
		return
	case present:
		if known && leaders != own {
			t.fail(LogMatching, "%v acknowledges entry %s in term %d, whose leader has %s",
				t.s, position(index, own), term, position(index, leaders))
		}
	case before: // and so committed
	}
	p := &t.s.promised
	if most, _ := p.acks.get(term); index > most {
		p.acks.put(term, index)
	}
	if state == present && (term > p.ack.term || term == p.ack.term && index >= p.ack.index) {
		p.ack = ack{term: term, index: index, entry: own}
	}
}

// leads: only the leader of a term sends such a message, it has voted for itself,
// and its log only grows.
func (t *tap) leads() {
	m := t.m
	reign := t.noteLeader(t.s, m.GetTerm(), "sends as leader of")
	if t.hard.term == m.GetTerm() && t.hard.vote != t.s.id {
		t.fail(DurableFirst, "%v leads term %d, the durable vote is for %d",
			t.s, m.GetTerm(), t.hard.vote)
	}
	switch m.GetType() {
	case raftpb.MsgSnap:
		t.checkSnapshot(t.s, m.GetSnapshot(), "sends a snapshot")
	case raftpb.MsgApp:
		t.noteEntries(reign)
	default:
	}
}

// noteEntries notes what a leader shows of its log.
//
// Rule 2, [LogMatching]: a leader's log only grows, and a message shows a part of it.
func (t *tap) noteEntries(r *reign) {
	m := t.m
	part := run{m.GetLogTerm(), m.GetIndex(), m.GetIndex()}
	fits := true
	for _, e := range m.GetEntries() {
		if e.GetTerm() != part.term {
			fits = fits && (part.term == 0 || r.noteRun(part))
			part = run{e.GetTerm(), e.GetIndex(), e.GetIndex()}
		}
		part.last = e.GetIndex()
	}
	if part.term != 0 && part.first > 0 {
		fits = r.noteRun(part) && fits
	}
	if !fits {
		t.fail(LogMatching, "%v sends entries from %s on in term %d, and has sent others there",
			t.s, position(m.GetIndex(), m.GetLogTerm()), m.GetTerm())
	}
}
