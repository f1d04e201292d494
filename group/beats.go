package group

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// saysMore is how many heartbeats must fit into an election timeout for one of them to be left
// out: two more may be lost then before anybody stands for election.
const saysMore = 5

// conversations are the members with which this leader speaks anyway. They are few.
//
// A heartbeat tells that the leader lives and what is committed, and its answer that the
// member lives and whether it lacks something. An append and its acknowledgement tell the
// same. So who has been sent an append since the last heartbeats, and has acknowledged one,
// gets no heartbeat this time. What of that is lost is told by the next heartbeat, which does
// not stay out unless the member has acknowledged something again.
type conversations struct {
	sent, acked []uint64
}

// leaveOut drops heartbeats to those with whom the leader speaks. One that asks whether this
// replica still leads always goes.
func (c *conversations) leaveOut(msgs []*raftpb.Message) []*raftpb.Message {
	kept, beats := msgs[:0], false
	for _, m := range msgs {
		switch m.GetType() {
		case raftpb.MsgHeartbeat:
			beats = true
			if len(m.GetContext()) == 0 && c.suffices(m.GetTo()) {
				continue
			}
		case raftpb.MsgApp:
			c.sent = include(c.sent, m.GetTo())
		default:
		}
		kept = append(kept, m)
	}
	if beats {
		c.end()
	}
	clear(msgs[len(kept):])
	return kept
}

// suffices reports whether the leader has spoken with the member since the last heartbeats. It
// does so once: of a leader that was held up, and has several heartbeats to send, nobody has
// heard for so long.
func (c *conversations) suffices(id uint64) bool {
	at := slices.Index(c.acked, id)
	if at < 0 || !slices.Contains(c.sent, id) {
		return false
	}
	c.acked = slices.Delete(c.acked, at, at+1)
	return true
}

// hear takes note of an acknowledgement in the leader's term.
func (c *conversations) hear(m *raftpb.Message) {
	if !m.GetReject() {
		c.acked = include(c.acked, m.GetFrom())
	}
}

// end forgets them.
func (c *conversations) end() { c.sent, c.acked = c.sent[:0], c.acked[:0] }

func include(ids []uint64, id uint64) []uint64 {
	if slices.Contains(ids, id) {
		return ids
	}
	return append(ids, id)
}
