package transport

import (
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// numTypes is how many types of messages are counted apart. Notices are counted
// under raftpb.MsgHup, which is never sent.
const numTypes = int(raftpb.MsgForgetLeader) + 1

// counters are what Stats reads. All rise only.
type counters struct {
	framesSent, framesReceived atomic.Uint64
	bytesSent, bytesReceived   atomic.Uint64

	sent, received [numTypes]atomic.Uint64 // envelopes by type
	dropped        [numReasons]atomic.Uint64
	refusedIn      [numReasons]atomic.Uint64 // received envelopes that were not let through
	droppedTypes   [numTypes]atomic.Uint64

	connects, disconnects, dialFailures atomic.Uint64
	refusals                            [numRefusals]atomic.Uint64 // refused by this node
	refused                             atomic.Uint64              // refused by peers
	badFrames                           atomic.Uint64

	requestsSent, requestsFailed   atomic.Uint64
	requestsHandled, requestsBusy  atomic.Uint64
	requestsNoRoom, answersNoRoom  atomic.Uint64
	requestsNotQueued              atomic.Uint64
	snapshotsSent, snapshotsFailed atomic.Uint64
	snapshotsReceived              atomic.Uint64
	snapshotsRejected              atomic.Uint64
	snapshotsBusy                  atomic.Uint64
	snapshotBytesSent              atomic.Uint64
	snapshotBytesReceived          atomic.Uint64
}

func typeIndex(env *Envelope) int {
	if t := int(env.Message.GetType()); env.Message != nil && t >= 0 && t < numTypes {
		return t
	}
	return 0
}

// Stats are counts since the transport was made, except where it says "now".
type Stats struct {
	FramesSent, FramesReceived uint64
	BytesSent, BytesReceived   uint64 // without snapshots' and handshakes' share of TCP

	// Sent, Received and Dropped count envelopes by the name of the message's
	// type, notices as "Notice". Sent ones were given to a socket; dropped ones were
	// not, for one of the reasons counted in DroppedBy.
	Sent, Received, Dropped map[string]uint64
	DroppedBy               map[string]uint64

	// RefusedBy counts received envelopes that were not given to the handler.
	RefusedBy map[string]uint64

	Connects, Disconnects, DialFailures uint64            // of connections that this node dials
	HandshakesRefused                   map[string]uint64 // by this node
	RefusedByPeers                      uint64            // handshakes of this node
	BadFrames                           uint64            // connections closed for what came

	RequestsSent, RequestsFailed  uint64 // requests of this node
	RequestsNotQueued             uint64 // of those that failed: too many wait for the peer
	RequestsHandled, RequestsBusy uint64 // requests of peers
	// RequestsNoRoom are those of RequestsBusy for which there were too many bytes, and
	// AnswersNoRoom answers to handled ones that were dropped for that.
	RequestsNoRoom, AnswersNoRoom uint64
	RequestsServing               int   // now, with those whose answers wait to be written
	RequestBytes                  int64 // of those and their answers

	SnapshotsSent, SnapshotsFailed              uint64 // sent by this node and accepted, or not
	SnapshotsReceived, SnapshotsRejected        uint64 // received by this node and accepted, or not
	SnapshotsBusy                               uint64 // not begun for lack of a slot here
	SnapshotBytesSent, SnapshotBytesReceived    uint64
	SnapshotsSending, SnapshotsReceiving, Peers int // now
}

// PeerStatus is what a transport knows of one peer now.
type PeerStatus struct {
	Node raftyard.NodeID
	Addr string // where it was last dialled
	Told string // where it has said last that it is reached; empty if it has not

	// Identity is what the node has last presented itself with, if it has.
	Identity Identity

	Up    bool      // messages can be sent
	Since time.Time // when Up last changed; zero before the first attempt

	QueueMessages int
	QueueBytes    int64
	Dropped       uint64 // envelopes to this peer
	Connects      uint64

	LastError error // of the last attempt or connection; nil while up

	// RTT is the last measured round trip of a ping, zero before the first.
	RTT time.Duration
}

// Stats returns the counts. It may be called at any time, also after Close.
func (t *Transport) Stats() Stats {
	c := &t.count
	s := Stats{
		FramesSent: c.framesSent.Load(), FramesReceived: c.framesReceived.Load(),
		BytesSent: c.bytesSent.Load(), BytesReceived: c.bytesReceived.Load(),
		Sent: byType(&c.sent), Received: byType(&c.received), Dropped: byType(&c.droppedTypes),
		DroppedBy: byReason(&c.dropped), RefusedBy: byReason(&c.refusedIn),
		Connects: c.connects.Load(), Disconnects: c.disconnects.Load(),
		DialFailures:      c.dialFailures.Load(),
		HandshakesRefused: make(map[string]uint64),
		RefusedByPeers:    c.refused.Load(), BadFrames: c.badFrames.Load(),
		RequestsSent: c.requestsSent.Load(), RequestsFailed: c.requestsFailed.Load(),
		RequestsHandled: c.requestsHandled.Load(), RequestsBusy: c.requestsBusy.Load(),
		RequestsNoRoom: c.requestsNoRoom.Load(), AnswersNoRoom: c.answersNoRoom.Load(),
		RequestsNotQueued: c.requestsNotQueued.Load(),
		SnapshotsSent:     c.snapshotsSent.Load(), SnapshotsFailed: c.snapshotsFailed.Load(),
		SnapshotsReceived: c.snapshotsReceived.Load(),
		SnapshotsRejected: c.snapshotsRejected.Load(), SnapshotsBusy: c.snapshotsBusy.Load(),
		SnapshotBytesSent:     c.snapshotBytesSent.Load(),
		SnapshotBytesReceived: c.snapshotBytesReceived.Load(),
		SnapshotsSending:      len(t.snapshotsOut), SnapshotsReceiving: len(t.snapshotsIn),
	}
	for code := RefusedVersion; code < numRefusals; code++ {
		if n := c.refusals[code].Load(); n > 0 {
			s.HandshakesRefused[code.String()] = n
		}
	}
	s.RequestsServing, s.RequestBytes = t.gate.held()
	t.mu.Lock()
	s.Peers = len(t.peers)
	t.mu.Unlock()
	return s
}

func byType(counts *[numTypes]atomic.Uint64) map[string]uint64 {
	out := make(map[string]uint64)
	for i := range counts {
		if n := counts[i].Load(); n > 0 {
			name := "Notice"
			if i != 0 {
				name = raftpb.MessageType(i).String()
			}
			out[name] = n
		}
	}
	return out
}

func byReason(counts *[numReasons]atomic.Uint64) map[string]uint64 {
	out := make(map[string]uint64)
	for r := range numReasons {
		if n := counts[r].Load(); n > 0 {
			out[r.String()] = n
		}
	}
	return out
}
