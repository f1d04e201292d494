package group

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// acknowledgement is the last one that this replica has handed out.
type acknowledgement struct{ to, term, index uint64 }

// dropRepeated drops the answer to an append that has only told what is committed: the
// sender has been told of all these entries already. committed says that this step commits
// something more. Without that the sender may have asked because an answer was lost, and it is
// answered; so it is when it asks with the next heartbeat, if it was the first answer that was
// lost.
func (a *acknowledgement) dropRepeated(
	msgs []*raftpb.Message, committed bool,
) []*raftpb.Message {
	at, several := -1, false
	for i, m := range msgs {
		if m.GetType() == raftpb.MsgAppResp {
			at, several = i, at >= 0
		}
	}
	if at < 0 {
		return msgs
	}
	m := msgs[at]
	if m.GetReject() {
		*a = acknowledgement{}
		return msgs
	}
	now := acknowledgement{to: m.GetTo(), term: m.GetTerm(), index: m.GetIndex()}
	if committed && !several && *a == now {
		return slices.Delete(msgs, at, at+1)
	}
	*a = now
	return msgs
}
