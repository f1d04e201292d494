package transport

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/seek"
)

// peer is what a transport has for one other node: a link for messages and one
// for requests.
type peer struct {
	t       *Transport
	node    raftyard.NodeID
	ctx     context.Context // ends when the peer is given up, or Close begins
	cancel  context.CancelFunc
	queue   *queue
	batch   []Envelope // reused by fill
	dropped atomic.Uint64
	seeker  seek.Seeker // for connections of all classes

	wanted   bool // something was sent; used by the raft link only
	requests *requestCargo

	mu       sync.Mutex
	session  *session // of the raft link; nil while it is not up
	changed  time.Time
	lastErr  error
	connects uint64
}

// newPeer is called with the transport's lock held, and before Close.
func newPeer(t *Transport, node raftyard.NodeID) *peer {
	p := &peer{t: t, node: node, queue: newQueue(t.cfg.MaxQueueBytes, t.cfg.MaxQueueMessages)}
	p.ctx, p.cancel = context.WithCancel(t.ctx)
	p.requests = newRequestCargo(p)
	raft := &link{t: t, peer: p, class: ClassRaft, cargo: (*raftCargo)(p), wake: p.queue.wake}
	requests := &link{
		t: t, peer: p, class: ClassRequest, cargo: p.requests, wake: p.requests.wake,
	}
	t.wg.Go(raft.run)
	t.wg.Go(requests.run)
	return p
}

func (p *peer) send(batch []Envelope) {
	p.queue.push(batch, func(env *Envelope, why Reason) { p.t.discard(p, env, why) })
}

// addresses are where the node may be now.
func (p *peer) addresses() []string {
	return p.t.cfg.Resolve(p.node, p.t.admission.told(p.node))
}

func (p *peer) status() PeerStatus {
	st := PeerStatus{Node: p.node, Dropped: p.dropped.Load()}
	st.Addr = p.seeker.Last()
	st.Identity, st.Told = p.t.admission.presented(p.node)
	st.QueueMessages, st.QueueBytes = p.queue.length()
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Since, st.LastError, st.Connects = p.changed, p.lastErr, p.connects
	if p.session != nil {
		st.Up = true
		st.RTT = time.Duration(p.session.rtt.Load())
	}
	return st
}

// raftCargo is the peer as its raft link sees it. Once something was sent to
// the peer, the link is kept as long as the peer has an address: that the
// connection stands is how nodes know of each other.
type raftCargo peer

func (c *raftCargo) wait(ctx context.Context) {
	p := (*peer)(c)
	known := slices.ContainsFunc(p.addresses(), func(addr string) bool { return addr != "" })
	if p.wanted && known {
		return
	}
	select {
	case <-p.queue.wake:
		p.wanted = true
	case <-ctx.Done():
	}
}

func (c *raftCargo) fill(buf []byte) (_ []byte, n int) {
	p := (*peer)(c)
	batch := p.nextBatch()
	defer func() { clear(p.batch) }() // it must not keep payloads alive
	if len(batch) == 0 {
		return buf, 0
	}
	p.current().lost.wrote(batch)
	for i := range batch {
		p.t.count.sent[typeIndex(&batch[i])].Add(1)
	}
	start := len(buf)
	buf = appendBatch(beginFrame(buf, frameEnvelopes), p.t.self.Node, p.node, batch)
	return endFrame(buf, start), 1
}

// nextBatch returns what goes into the next frame; nothing if the queue is empty.
func (p *peer) nextBatch() []Envelope {
	for {
		p.batch = p.queue.take(p.batch[:0], targetFrame)
		batch := p.batch
		if p.t.cfg.faults != nil {
			batch = p.t.cfg.faults(p.node, batch, func(env *Envelope) {
				p.t.discard(p, env, DropInjectedFault)
			})
		}
		if batch = p.fitting(batch); len(batch) > 0 || len(p.batch) == 0 {
			return batch
		}
	}
}

// fitting drops what is larger than the peer takes. That can only be a single
// envelope: more than one are never put into more than targetFrame bytes.
func (p *peer) fitting(batch []Envelope) []Envelope {
	if len(batch) != 1 {
		return batch
	}
	size := sizeEnvelope(&batch[0]) + batchOverhead
	if uint64(size) <= p.current().welcome.maxFrame {
		return batch
	}
	p.t.discard(p, &batch[0], DropOversized)
	return nil
}

// current returns the session. Only the link's goroutine calls it, while up.
func (p *peer) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

func (c *raftCargo) received(t frameType, _ []byte) error {
	return unexpected(t, ClassRaft)
}

func (c *raftCargo) up(s *session) {
	p := (*peer)(c)
	p.mu.Lock()
	p.session, p.changed, p.lastErr = s, time.Now(), nil
	p.connects++
	p.mu.Unlock()
	p.queue.open()
	p.queue.poke()
	p.t.cfg.Handler.PeerChanged(p.node, true)
}

// down leaves the queue closed until there is a connection: what is sent
// meanwhile would be out of date by then.
func (c *raftCargo) down(err error) {
	p := (*peer)(c)
	p.mu.Lock()
	s := p.session
	p.session, p.lastErr = nil, err
	if s != nil || p.changed.IsZero() {
		p.changed = time.Now()
	}
	p.mu.Unlock()
	why := DropUnreachable
	if errors.Is(err, ErrClosed) {
		why = DropClosed
	}
	p.queue.close(why, func(env *Envelope, why Reason) { p.t.discard(p, env, why) })
	if s == nil || why == DropClosed {
		return
	}
	p.t.reporter.addPairs(p.node, s.lost.lost())
	p.t.cfg.Handler.PeerChanged(p.node, false)
}
