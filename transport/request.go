package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
)

// Request sends a request to a node and waits for the answer of its handler, for
// as long as ctx allows. body must not be changed before Request has returned.
//
// The error wraps [ErrUnreachable], [ErrBusy] or [ErrTooLarge] if the request was
// certainly not handled (see [NotDelivered]), [ErrUnknown] if it may have been,
// and is a [*RemoteError] if the handler has returned an error. If ctx has ended,
// its error is wrapped too.
func (t *Transport) Request(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte,
) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.cfg.RequestTimeout)
		defer cancel()
	}
	t.count.requestsSent.Add(1)
	answer, err := t.request(ctx, to, kind, body)
	if err != nil {
		t.count.requestsFailed.Add(1)
		if _, remote := errors.AsType[*RemoteError](err); !remote {
			err = fmt.Errorf("request to node %d: %w", to, err)
		}
	}
	return answer, err
}

func (t *Transport) request(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte,
) ([]byte, error) {
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	case to == 0 || to == t.self.Node:
		return nil, fmt.Errorf("%w: a node sends no requests to itself", ErrUnreachable)
	case len(body)+requestOverhead > t.cfg.MaxFrameBytes:
		return nil, fmt.Errorf("%w: request of %d bytes, at most %d are possible",
			ErrTooLarge, len(body), t.cfg.MaxFrameBytes-requestOverhead)
	}
	p := t.peer(to)
	if p == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ErrClosed)
	}
	deadline, _ := ctx.Deadline()
	c := &call{kind: kind, body: body, deadline: deadline, done: make(chan struct{})}
	if err := p.requests.start(c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		p.requests.giveUp(c, ctx.Err())
		<-c.done
	}
	return c.answer, c.err
}

// call is one request of this node.
type call struct {
	kind     uint8
	body     []byte
	deadline time.Time

	// These are guarded by the lock of the cargo until done is closed.
	id      uint64
	written bool // it may have reached the peer
	ended   bool
	answer  []byte
	err     error

	done chan struct{}
}

// requestCargo is what a request link carries: the calls to one peer.
//
//	waiting ──▶ written ──▶ answered
//	   │           │
//	   ▼           ▼
//	unreachable  unknown
type requestCargo struct {
	peer  *peer
	wake  chan struct{}
	limit int // most calls that are not ended

	mu      sync.Mutex
	waiting []*call          // not written yet, in order
	bytes   int64            // of the waiting calls' bodies
	calls   map[uint64]*call // written and not ended
	cancels []uint64         // given up, to be told to the peer
	lastID  uint64
	failing error    // not nil: no connection, and none will be tried now
	session *session // nil while there is no connection
}

func newRequestCargo(p *peer) *requestCargo {
	return &requestCargo{
		peer:  p,
		wake:  make(chan struct{}, 1),
		limit: p.t.cfg.MaxRequestsPerPeer,
		calls: make(map[uint64]*call),
	}
}

func (rc *requestCargo) poke() {
	select {
	case rc.wake <- struct{}{}:
	default:
	}
}

// start queues a call, or says why it is not.
func (rc *requestCargo) start(c *call) error {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	cfg := &rc.peer.t.cfg
	switch {
	case rc.failing != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, rc.failing)
	case len(rc.waiting)+len(rc.calls) >= rc.limit:
		rc.peer.t.count.requestsNotQueued.Add(1)
		return fmt.Errorf("%w: %d requests are unanswered", ErrBusy, rc.limit)
	case rc.bytes+int64(len(c.body)) > cfg.MaxQueueBytes:
		rc.peer.t.count.requestsNotQueued.Add(1)
		return fmt.Errorf("%w: %d bytes of requests wait to be sent", ErrBusy, rc.bytes)
	}
	rc.lastID++
	c.id = rc.lastID
	rc.waiting = append(rc.waiting, c)
	rc.bytes += int64(len(c.body))
	rc.poke()
	return nil
}

// giveUp ends a call whose caller waits no longer, unless it has ended. why is
// not the cause of the caller's context: that may be an error of another request,
// which would say of this one that it was not delivered.
func (rc *requestCargo) giveUp(c *call, why error) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if c.ended {
		return
	}
	if c.written {
		delete(rc.calls, c.id)
		if len(rc.cancels) < rc.limit { // the deadline does it, too
			rc.cancels = append(rc.cancels, c.id)
			rc.poke()
		}
		c.endLocked(nil, fmt.Errorf("%w: %w", ErrUnknown, why))
		return
	}
	for i, other := range rc.waiting {
		if other == c {
			rc.waiting = append(rc.waiting[:i], rc.waiting[i+1:]...)
			rc.bytes -= int64(len(c.body))
			break
		}
	}
	c.endLocked(nil, fmt.Errorf("%w: not sent in time: %w", ErrUnreachable, why))
}

// endLocked ends the call. The cargo's lock is held, and the call has not ended.
func (c *call) endLocked(answer []byte, err error) {
	c.answer, c.err, c.ended = answer, err, true
	close(c.done)
}

func (rc *requestCargo) wait(ctx context.Context) {
	for {
		rc.mu.Lock()
		rc.failing = nil
		wanted := len(rc.waiting) > 0
		rc.mu.Unlock()
		if wanted {
			return
		}
		select {
		case <-rc.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (rc *requestCargo) fill(buf []byte) (_ []byte, n int) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for _, id := range rc.cancels {
		start := len(buf)
		buf = endFrame(appendCancel(beginFrame(buf, frameCancel), id), start)
		n++
	}
	rc.cancels = rc.cancels[:0]
	limit := int(min(rc.session.welcome.maxFrame, uint64(rc.peer.t.cfg.MaxFrameBytes)))
	now := time.Now()
	for len(rc.waiting) > 0 && (n == 0 || len(buf) < targetFrame) {
		c := rc.waiting[0]
		rc.waiting[0] = nil
		rc.waiting = rc.waiting[1:]
		rc.bytes -= int64(len(c.body))
		if len(c.body)+requestOverhead > limit {
			c.endLocked(nil, fmt.Errorf("%w: request of %d bytes, the peer takes %d",
				ErrTooLarge, len(c.body), limit-requestOverhead))
			continue
		}
		// From here on the peer may get it: writing may fail after the last byte
		// has left.
		c.written = true
		rc.calls[c.id] = c
		start := len(buf)
		r := request{id: c.id, left: c.deadline.Sub(now), kind: c.kind, body: c.body}
		buf = endFrame(appendRequest(beginFrame(buf, frameRequest), &r), start)
		n++
	}
	return buf, n
}

func (rc *requestCargo) received(t frameType, body []byte) error {
	if t != frameAnswer {
		return unexpected(t, ClassRequest)
	}
	id, a, err := decodeAnswer(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	c := rc.calls[id]
	if c == nil { // given up
		if id > rc.lastID {
			return fmt.Errorf("%w: answer to no request", errProtocol)
		}
		return nil
	}
	delete(rc.calls, id)
	c.endLocked(a.result())
	return nil
}

func (rc *requestCargo) up(s *session) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.session = s
	rc.poke()
}

// down ends all calls. Those that come before the next attempt end at once.
func (rc *requestCargo) down(err error) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.session, rc.failing = nil, err
	for _, c := range rc.waiting {
		c.endLocked(nil, fmt.Errorf("%w: %w", ErrUnreachable, err))
	}
	for _, c := range rc.calls {
		c.endLocked(nil, fmt.Errorf("%w: connection lost: %w", ErrUnknown, err))
	}
	rc.waiting, rc.bytes, rc.cancels = nil, 0, nil
	clear(rc.calls)
}
