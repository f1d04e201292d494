package group

import "go.etcd.io/raft/v3/raftpb"

// A departure says when a message may leave, if its step also has a Save.
type departure uint8

const (
	// afterSave: the message vouches for what is being saved. Also for whatever
	// is not in the table.
	afterSave departure = iota

	// afterTerm: the message vouches for nothing but carries the term; it waits
	// if term or vote are being saved.
	afterTerm

	// atOnce: only a leader sends it, or it carries no term. A leader's term is
	// durable: it was before its request for votes left.
	atOnce
)

// departureOf decides for each type of message that raft sends.
func departureOf(t raftpb.MessageType) departure {
	switch t {
	case raftpb.MsgApp:
		// A leader's entries may reach the followers before its own disk: it
		// counts itself only when they are durable.
		return atOnce
	case raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgTimeoutNow, raftpb.MsgReadIndexResp:
		// They speak of the commit index, of a durable snapshot and of the log's
		// end; a majority vouches for the first, nobody has to for the others.
		return atOnce
	case raftpb.MsgReadIndex:
		// A question, without a term.
		return atOnce
	case raftpb.MsgHeartbeatResp:
		// "I have not heard of a later term": true as soon as it is said, but the
		// term should outlive a crash that comes after it is known elsewhere.
		return afterTerm
	case raftpb.MsgVote, raftpb.MsgPreVote:
		// They tell where our log ends. If what is being saved is lost, a vote that
		// was given to the longer log would be counted for the shorter one.
		return afterSave
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		// An acknowledgement of entries, a vote, and a rejection that may rest on
		// an unsaved vote or entry.
		return afterSave
	default:
		return afterSave
	}
}

// route puts msgs into the output, in order, before or after its Save. Mostly all go the
// same way, and the list is used as it is.
func (o *Output) route(msgs []*raftpb.Message, newTerm bool) {
	msgs = dropOvertaken(msgs)
	waiting := 0
	for _, m := range msgs {
		if o.waits(m, newTerm) {
			waiting++
		}
	}
	switch waiting {
	case 0:
		o.Messages = msgs
		return
	case len(msgs):
		o.After = msgs
		return
	}
	o.After = make([]*raftpb.Message, 0, waiting)
	o.Messages = make([]*raftpb.Message, 0, len(msgs)-waiting)
	for _, m := range msgs {
		if o.waits(m, newTerm) {
			o.After = append(o.After, m)
		} else {
			o.Messages = append(o.Messages, m)
		}
	}
}

// waits reports whether a message may leave only when the Save is durable.
func (o *Output) waits(m *raftpb.Message, newTerm bool) bool {
	d := departureOf(m.GetType())
	return o.Save != nil && d != atOnce && (d != afterTerm || newTerm)
}

// dropOvertaken drops appends of which a later one in the list says all that they say. When
// something is committed raft tells everybody at once; if more was proposed meanwhile it goes
// to them in the same step, and tells it too. Each of the former would cost an answer, and a
// step of its receiver. Messages may be lost, so nothing counts on them.
func dropOvertaken(msgs []*raftpb.Message) []*raftpb.Message {
	kept := msgs[:0]
	for i, m := range msgs {
		if m.GetType() != raftpb.MsgApp || len(m.GetEntries()) > 0 || !overtaken(m, msgs[i+1:]) {
			kept = append(kept, m)
		}
	}
	clear(msgs[len(kept):])
	return kept
}

func overtaken(m *raftpb.Message, later []*raftpb.Message) bool {
	for _, l := range later {
		if l.GetType() == raftpb.MsgApp && l.GetTo() == m.GetTo() && l.GetTerm() == m.GetTerm() &&
			l.GetIndex() == m.GetIndex() && l.GetCommit() >= m.GetCommit() {
			return true
		}
	}
	return false
}
