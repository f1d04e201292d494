package transport

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// Identity says which process a node is. The handshake exchanges it.
type Identity struct {
	// Cluster is the same on all nodes of a cluster.
	Cluster uuid.UUID

	// Node is the id that the operator gave to the node.
	Node raftyard.NodeID

	// Store is made with the data directory: a node whose directory was wiped or
	// replaced has another one.
	Store uuid.UUID

	// Boot is raised, durably, at each start of the node. With the same Store, a
	// lower number means an older copy of the directory.
	Boot uint64

	// Process is made at random at each start. Processes that were started on copies of
	// one directory may differ in nothing else. A [Config] without one gets one.
	Process uuid.UUID

	// Lineage is what the node shows of its earlier starts, for [Config.Admit] to look at:
	// at most [MaxLineageBytes], which the transport does not look into. It is empty if the
	// node is of a release that shows nothing.
	Lineage string
}

// MaxLineageBytes is the greatest length of [Identity.Lineage].
const MaxLineageBytes = 2 << 10

// Endpoint is a replica and the node that it is on.
type Endpoint struct {
	Node    raftyard.NodeID
	Replica raftyard.ReplicaID
}

// Envelope is a message between two replicas of one group, or a notice about
// one. Exactly one of Message and Notice is set.
//
// An envelope given to Send belongs to the transport from then on, with all that
// it points to: neither the caller nor anybody else may change it, though others
// may go on reading it. An envelope given to a [Handler] belongs to the handler. The
// payloads of the entries of a received message are one piece of memory, which is of that
// message alone.
type Envelope struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Epoch       uint64 // the sender's
	From, To    Endpoint

	Message *raftpb.Message
	Notice  *Notice
}

// NoticeKind says what a [Notice] tells.
type NoticeKind uint8

// The kinds of notices.
const (
	// NoticeRemoved: the receiver is not a member any more.
	NoticeRemoved NoticeKind = iota + 1

	// NoticeReplicaTooOld: the addressed replica id is older than what the
	// sender of the notice has destroyed.
	NoticeReplicaTooOld

	// NoticeGroupDeleted: the group does not exist any more.
	NoticeGroupDeleted

	// NoticeWrongIncarnation: the group exists, but as another incarnation.
	NoticeWrongIncarnation

	// NoticeBehind: a membership change is committed that the receiver does not know
	// to be; Index and Term say which entry made it.
	NoticeBehind

	// NoticeDamaged: the addressed replica has lost something that it had acknowledged,
	// and takes no part in its group any more: another must take its place.
	NoticeDamaged

	// NoticeBeat: the node of the sender lives, and its disk answers. It is of the system
	// group, and which replicas it names means nothing.
	NoticeBeat

	// NoticeSleep: the leader of Term asks the receiver to sleep, with everything up to
	// Index committed and nothing after it.
	NoticeSleep

	// NoticeAsleep: the sender sleeps, as the leader of Term has asked it to.
	NoticeAsleep

	// NoticeAwake: the sender does not sleep, and has not heard from the leader of Term for
	// a while, or will not do what it has asked.
	NoticeAwake
)

// isOfSleep reports whether the kind has to do with nodes that live and groups that sleep.
func (k NoticeKind) isOfSleep() bool { return k >= NoticeBeat && k <= NoticeAwake }

// String returns the kind in words.
func (k NoticeKind) String() string {
	switch k {
	case NoticeRemoved:
		return "removed"
	case NoticeReplicaTooOld:
		return "replica too old"
	case NoticeGroupDeleted:
		return "group deleted"
	case NoticeWrongIncarnation:
		return "wrong incarnation"
	case NoticeBehind:
		return "behind"
	case NoticeDamaged:
		return "damaged"
	case NoticeBeat:
		return "beat"
	case NoticeSleep:
		return "sleep"
	case NoticeAsleep:
		return "asleep"
	case NoticeAwake:
		return "awake"
	default:
		return fmt.Sprintf("notice %d", uint8(k))
	}
}

// Notice answers an envelope that its receiver could not use, and says why, or has to do
// with groups that sleep.
type Notice struct {
	Kind NoticeKind

	// Turn and Behind are there in NoticeBeat and NoticeSleep alone, Epoch and NextReplica
	// in those before them. Turn tells how often one of the sender's replicas has stopped
	// since its node was started. Behind has a bit for each member of the group that lacks
	// something and does not sleep, because its node is down.
	Turn   uint64
	Behind uint64

	Epoch       uint64             // of the group, as its sender knows it
	NextReplica raftyard.ReplicaID // the least id that is not given out yet

	// Index and Term are those of the entry that led to Epoch, or zero if they are
	// not known.
	Index uint64
	Term  uint64
}

// Dropped names the two ends of one or more messages that were not delivered,
// or may not have been.
type Dropped struct {
	Group    raftyard.GroupID
	From, To raftyard.ReplicaID

	// Snapshot is set when a MsgSnap was among them. Raft waits for a report of
	// its end.
	Snapshot bool
}

// Handler receives what peers send. Its methods are called from many goroutines
// at once: one for each connection, except that calls of PeerChanged for one
// node, and all calls of HandleUnreachable, come one at a time. None is called
// after Close has returned.
//
// What a handler is given has been checked: from is the authenticated peer,
// From.Node is from.Node, To.Node is this node, replica ids are not zero and not
// among the two that raft reserves, the ids and the type in the message fit, and
// the parts that raft would panic on (terms, contexts, order of entries, missing
// parts) have the right form. Whether the group, the incarnation and the replicas
// exist, and whether an index makes sense for the log, is for the handler to check.
type Handler interface {
	// HandleEnvelopes takes envelopes in the order in which the peer sent them.
	// It must not block: until it returns, nothing else is read from the peer. The
	// slice is the transport's again then; what the envelopes point to is not.
	HandleEnvelopes(from Identity, batch []Envelope)

	// HandleRequest answers a request. ctx ends with the caller's deadline, when
	// the caller gives up, with the connection, and with Close; the handler must
	// then return soon. body belongs to the handler, the answer to the transport.
	// An error reaches the caller as a [*RemoteError]; but one that wraps [ErrBusy]
	// arrives as ErrBusy, with which the handler says that the request has had no
	// effect, and one that wraps [ErrUnknown] or an error of package context as
	// ErrUnknown.
	HandleRequest(ctx context.Context, from Identity, kind uint8, body []byte) ([]byte, error)

	// HandleSnapshot takes the snapshot that belongs to env.Message, which is a
	// MsgSnap. body ends with io.EOF only if the whole stream has arrived and its
	// hash holds; every other end is another error. What it returns is returned by
	// SendSnapshot at the sender. It may return without reading to the end. ctx
	// ends with the connection and with Close; the handler must then return soon.
	HandleSnapshot(ctx context.Context, from Identity, env Envelope, body io.Reader) error

	// PeerChanged tells that the connection on which messages are sent to the
	// node is established, or lost. It must not block.
	PeerChanged(node raftyard.NodeID, up bool)

	// HandleUnreachable tells which replicas have not been sent what was meant
	// for them, or may not have received it: each pair once, at a limited rate.
	// It must not block for long.
	HandleUnreachable(node raftyard.NodeID, dropped []Dropped)
}
