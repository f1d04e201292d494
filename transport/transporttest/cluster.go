package transporttest

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// patience is how long a condition may take to come true.
const patience = 20 * time.Second

// cluster is the nodes of one test and the address book that they share.
type cluster struct {
	t     *testing.T
	start Start
	id    uuid.UUID

	mu   sync.Mutex
	book map[raftyard.NodeID]string
}

func newCluster(t *testing.T, start Start) *cluster {
	t.Helper()
	return &cluster{
		t: t, start: start, id: uuid.NewSHA1(uuid.Nil, []byte(t.Name())),
		book: make(map[raftyard.NodeID]string),
	}
}

// node is a running node with the handler that records what it gets.
type node struct {
	*transport.Transport
	*recorder
	id raftyard.NodeID
}

// add starts a node and enters it into the address book.
func (c *cluster) add(id raftyard.NodeID, change ...func(*transport.Config)) *node {
	c.t.Helper()
	n := c.addUnlisted(id, change...)
	c.enter(id, n.Addr().String())
	return n
}

// addUnlisted starts a node that others do not find.
func (c *cluster) addUnlisted(id raftyard.NodeID, change ...func(*transport.Config)) *node {
	c.t.Helper()
	rec := newRecorder()
	cfg := transport.Config{
		Identity: transport.Identity{
			Cluster: c.id, Node: id, Store: storeOf(id), Boot: 1,
		},
		Resolve: c.resolve,
		Handler: rec,

		PingInterval:        50 * time.Millisecond,
		DeadAfter:           5 * time.Second,
		MinBackoff:          5 * time.Millisecond,
		MaxBackoff:          50 * time.Millisecond,
		UnreachableInterval: 20 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	tr, err := c.start(cfg)
	if err != nil {
		c.t.Fatalf("start node %d: %v", id, err)
	}
	n := &node{Transport: tr, recorder: rec, id: id}
	c.t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.release()
	_ = n.Close() // closing twice is tested elsewhere
}

func storeOf(id raftyard.NodeID) uuid.UUID { return uuid.UUID{15: byte(id)} }

func (c *cluster) resolve(id raftyard.NodeID, told string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []string{told, c.book[id]}
}

func (c *cluster) enter(id raftyard.NodeID, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.book[id] = addr
}

// eventually waits until the condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// recorder is a handler that keeps what it gets. Its functions answer.
type recorder struct {
	released chan struct{}
	once     sync.Once

	mu        sync.Mutex
	envelopes []transport.Envelope
	changes   []peerChange
	dropped   map[raftyard.NodeID][]transport.Dropped
	request   requestFunc
	snapshot  snapshotFunc
}

type requestFunc func(ctx context.Context, kind uint8, body []byte) ([]byte, error)

type snapshotFunc func(ctx context.Context, env transport.Envelope, body io.Reader) error

type peerChange struct {
	node raftyard.NodeID
	up   bool
}

func newRecorder() *recorder {
	return &recorder{
		released: make(chan struct{}),
		dropped:  make(map[raftyard.NodeID][]transport.Dropped),
		request: func(_ context.Context, kind uint8, body []byte) ([]byte, error) {
			return append([]byte{kind}, body...), nil
		},
		snapshot: func(_ context.Context, _ transport.Envelope, body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		},
	}
}

// release ends handlers that wait for it.
func (r *recorder) release() { r.once.Do(func() { close(r.released) }) }

// HandleEnvelopes implements [transport.Handler].
func (r *recorder) HandleEnvelopes(_ transport.Identity, batch []transport.Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.envelopes = append(r.envelopes, batch...)
}

// HandleRequest implements [transport.Handler].
func (r *recorder) HandleRequest(
	ctx context.Context, _ transport.Identity, kind uint8, body []byte,
) ([]byte, error) {
	r.mu.Lock()
	f := r.request
	r.mu.Unlock()
	return f(ctx, kind, body)
}

// HandleSnapshot implements [transport.Handler].
func (r *recorder) HandleSnapshot(
	ctx context.Context, _ transport.Identity, env transport.Envelope, body io.Reader,
) error {
	r.mu.Lock()
	f := r.snapshot
	r.mu.Unlock()
	return f(ctx, env, body)
}

// PeerChanged implements [transport.Handler].
func (r *recorder) PeerChanged(id raftyard.NodeID, up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, peerChange{id, up})
}

// HandleUnreachable implements [transport.Handler].
func (r *recorder) HandleUnreachable(id raftyard.NodeID, dropped []transport.Dropped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped[id] = append(r.dropped[id], dropped...)
}

func (r *recorder) onRequest(f requestFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.request = f
}

func (r *recorder) onSnapshot(f snapshotFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = f
}

func (r *recorder) got() []transport.Envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.Envelope(nil), r.envelopes...)
}

func (r *recorder) reported(id raftyard.NodeID) []transport.Dropped {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.Dropped(nil), r.dropped[id]...)
}

func (r *recorder) changed() []peerChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]peerChange(nil), r.changes...)
}

// message returns a valid envelope of a type from one node to another.
func message(typ raftpb.MessageType, from, to raftyard.NodeID, index uint64) transport.Envelope {
	m := &raftpb.Message{
		Type: typ.Enum(), From: new(uint64(from) + 10), To: new(uint64(to) + 10),
		Term: new(uint64(5)), Index: &index, Commit: new(index),
	}
	switch typ {
	case raftpb.MsgApp:
		m.LogTerm = new(uint64(5))
		m.Entries = []*raftpb.Entry{{
			Term: new(uint64(5)), Index: new(index + 1), Data: []byte("data"),
			Type: raftpb.EntryNormal.Enum(),
		}}
	case raftpb.MsgSnap:
		m.Snapshot = &raftpb.Snapshot{Data: []byte("manifest"), Metadata: &raftpb.SnapshotMetadata{
			Index: new(index + 1), Term: new(uint64(5)),
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}, AutoLeave: new(false)},
		}}
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		m.Entries = []*raftpb.Entry{{Data: []byte("ctx")}}
		if typ == raftpb.MsgReadIndex {
			m.Term = nil
		}
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		m.Context = []byte{1, 0, 0, 0, 0, 0, 0, 0}
	default:
		m.Reject, m.RejectHint = new(true), new(uint64(2))
	}
	return transport.Envelope{
		Group: 7, Incarnation: raftyard.Incarnation{1, 2, 3}, Epoch: 4,
		From:    transport.Endpoint{Node: from, Replica: raftyard.ReplicaID(from) + 10},
		To:      transport.Endpoint{Node: to, Replica: raftyard.ReplicaID(to) + 10},
		Message: m,
	}
}

// connectRaft sends until the peer has got something.
func connectRaft(t *testing.T, from, to *node) {
	t.Helper()
	before := len(to.got())
	eventually(t, "a first message arrives", func() bool {
		from.Send([]transport.Envelope{message(raftpb.MsgHeartbeat, from.id, to.id, 1)})
		return len(to.got()) > before
	})
}
