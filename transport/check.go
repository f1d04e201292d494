package transport

import (
	"math"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// maxContext bounds the contexts of messages and of reads.
const maxContext = 64

// Reason says why an envelope was not delivered.
type Reason uint8

// The reasons for which envelopes are dropped, at either end.
const (
	dropNothing       Reason = iota
	DropQueueFull            // the peer's queue was full
	DropUnreachable          // no connection to the peer
	DropOversized            // larger than a frame may be
	DropWrongNode            // addressed to another node, or from another than it says
	DropReplica              // a replica id of zero, or one that raft reserves
	DropMismatch             // the ids in the message are not those of the envelope
	DropType                 // a type of message that is not sent between nodes
	DropTerm                 // a term where none belongs, or none where one does
	DropContext              // a context that is too long, or of a length that raft panics on
	DropContent              // entries or a snapshot missing or out of order, or an empty envelope
	DropClosed               // the transport was closed
	DropInjectedFault        // lost by a Memory network that was told to
	numReasons
)

var reasonNames = [numReasons]string{
	dropNothing:       "none",
	DropQueueFull:     "queue_full",
	DropUnreachable:   "unreachable",
	DropOversized:     "oversized",
	DropWrongNode:     "wrong_node",
	DropReplica:       "replica_id",
	DropMismatch:      "id_mismatch",
	DropType:          "message_type",
	DropTerm:          "term",
	DropContext:       "context",
	DropContent:       "content",
	DropClosed:        "closed",
	DropInjectedFault: "injected_fault",
}

// String returns the reason as one lower-case word, for metrics and logs.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// checkEnvelope reports why env must not be given to a handler, or sent to
// one: dropNothing if nothing is wrong. It needs no knowledge of the group.
func checkEnvelope(env *Envelope, from, to raftyard.NodeID) Reason {
	if env.From.Node != from || env.To.Node != to {
		return DropWrongNode
	}
	if reserved(env.From.Replica) || reserved(env.To.Replica) {
		return DropReplica
	}
	switch {
	case (env.Message == nil) == (env.Notice == nil):
		return DropContent
	case env.Notice != nil:
		return checkNotice(env.Notice)
	}
	m := env.Message
	if m.GetFrom() != uint64(env.From.Replica) || m.GetTo() != uint64(env.To.Replica) {
		return DropMismatch
	}
	return checkMessage(m)
}

// reserved reports whether id cannot be a replica: zero means none, and the two
// greatest are the addresses of raft's own storage threads, in whose name a peer
// could acknowledge writes that were never made.
func reserved(id raftyard.ReplicaID) bool { return id == 0 || id >= math.MaxUint64-1 }

func checkNotice(n *Notice) Reason {
	switch {
	case n.Kind < NoticeRemoved || n.Kind > NoticeAwake:
		return DropType
	case (n.Index == 0) != (n.Term == 0) || n.Kind == NoticeBehind && n.Index == 0:
		return DropContent
	case n.Kind > NoticeBeat && n.Index == 0:
		return DropContent
	}
	return dropNothing
}

func checkMessage(m *raftpb.Message) Reason {
	if !sentBetweenNodes(m.GetType()) || !encodable(m) {
		return DropType
	}
	// A message without a term is taken for a local one, which skips all of
	// raft's rules about terms. Only a forwarded read has none.
	if (m.GetTerm() == 0) != (m.GetType() == raftpb.MsgReadIndex) {
		return DropTerm
	}
	if !validContext(m) {
		return DropContext
	}
	if !validContent(m) {
		return DropContent
	}
	return dropNothing
}

// sentBetweenNodes is the whitelist of message types. Forwarded proposals are
// not on it: those travel as requests, whose outcome is known.
func sentBetweenNodes(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp,
		raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgHeartbeat,
		raftpb.MsgHeartbeatResp, raftpb.MsgSnap, raftpb.MsgTimeoutNow,
		raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return true
	default:
		return false
	}
}

// validContext checks the length of the context. The one of a heartbeat is an
// 8-byte counter, which raft reads without looking at its length when the answer
// brings it back.
func validContext(m *raftpb.Message) bool {
	n := len(m.GetContext())
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		return n == 0 || n == 8
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		for _, e := range m.GetEntries() {
			if len(e.GetData()) > maxContext {
				return false
			}
		}
	default:
	}
	return n <= maxContext
}

// validContent checks the parts that raft takes for granted.
func validContent(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp:
		return m.GetSnapshot() == nil && contiguous(m)
	case raftpb.MsgSnap:
		meta := m.GetSnapshot().GetMetadata()
		return len(m.GetEntries()) == 0 && meta.GetIndex() > 0 && meta.GetTerm() > 0
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return m.GetSnapshot() == nil && len(m.GetEntries()) == 1
	default:
		return m.GetSnapshot() == nil && len(m.GetEntries()) == 0
	}
}

// contiguous reports whether the entries follow the message's index without a
// gap, with terms that do not fall and are not beyond the message's.
func contiguous(m *raftpb.Message) bool {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if index == math.MaxUint64 || e.GetIndex() != index+1 {
			return false
		}
		if e.GetTerm() < max(term, 1) || e.GetTerm() > m.GetTerm() {
			return false
		}
		if _, known := raftpb.EntryType_name[int32(e.GetType())]; !known {
			return false
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return true
}
