package simnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// requestTimeout is the deadline of a request whose context has none.
const requestTimeout = 10 * time.Second

// maxFrame is the greatest request or answer.
const maxFrame = 16 << 20

// A request is one that a node waits for.
type request struct {
	conn     *conn
	kind     uint8
	body     []byte
	id       uint64
	deadline time.Time
	life     uint64        // of the connection that it was written to
	left     time.Duration // until the deadline, when it was written

	written bool
	lost    bool // it never arrives
	arrived bool
	off     bool // the peer has heard that nobody waits any more
	ended   bool
	answer  []byte
	err     error

	cancel context.CancelFunc // at the peer, while it is handled
}

// Request sends a request and waits for the answer; see [transport.Transport.Request].
func (e *Endpoint) Request(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte,
) ([]byte, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = e.st.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	answer, err := e.request(ctx, to, kind, body)
	if err == nil {
		return answer, nil
	}
	if _, remote := errors.AsType[*transport.RemoteError](err); !remote {
		err = fmt.Errorf("request to node %d: %w", to, err)
	}
	return nil, err
}

func (e *Endpoint) request(
	ctx context.Context, to raftyard.NodeID, kind uint8, body []byte,
) ([]byte, error) {
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, ctx.Err())
	case e.closed:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, transport.ErrClosed)
	case to == 0 || to == e.id.Node:
		return nil, fmt.Errorf("%w: a node sends no requests to itself", transport.ErrUnreachable)
	case len(body) > maxFrame:
		return nil, fmt.Errorf("%w: request of %d bytes", transport.ErrTooLarge, len(body))
	}
	e.requests++
	deadline, _ := ctx.Deadline()
	r := &request{
		conn: e.conn(to), kind: kind, body: bytes.Clone(body), id: e.requests, deadline: deadline,
	}
	r.start()
	e.st.Until(func() bool { return r.ended || ctx.Err() != nil })
	r.giveUp(ctx.Err())
	return r.answer, r.err
}

// start writes the request, or has it wait for the connection.
func (r *request) start() {
	c := r.conn
	switch c.state {
	case up:
		r.write()
	case dialling:
		c.queued = append(c.queued, r)
	default:
		r.end(nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, c.lastErr))
	}
}

// write puts the request on the connection: from here on the peer may get it.
func (r *request) write() {
	c := r.conn
	c.from.net.counts.Requests++
	r.written, r.life = true, c.life
	r.left = r.deadline.Sub(c.from.st.Now())
	c.flight = append(c.flight, r)
	remote := c.remote
	r.lost = c.from.net.chance(c.fault().LoseRequest)
	r.travel(r.lost, func() { r.arrive(remote) })
}

// travel lets a request, or the answer to it, get to the other end of its connection,
// which breaks if that is lost.
func (r *request) travel(lost bool, arrive func()) {
	c := r.conn
	n := c.from.net
	n.s.After(n.latency(c.fault()), func() {
		c.passes(r.life, func() {
			if lost {
				n.counts.RequestsLost++
				c.fail(errBroken)
				return
			}
			arrive()
		})
	})
}

// A request that is written may arrive when its connection is long gone, if the link was
// cut, or the peer stood still: nothing takes it out of the buffers that it is in. It is
// late by up to as many pauses of at most so long.
const (
	latePauses = 4
	latePause  = 2 * time.Second
)

// outlive has the request arrive late, by chance, after its connection was lost: at the
// same start of the peer, and not before the route is there again.
func (r *request) outlive(e *Endpoint) {
	if e != nil && !r.arrived && !r.lost && r.conn.from.net.chance(r.conn.fault().Late) {
		r.linger(e, latePauses)
	}
}

func (r *request) linger(e *Endpoint, pauses int) {
	n := e.net
	n.s.After(time.Duration(n.dice.Int64N(int64(latePause))), func() {
		switch {
		case e.closed || n.calm:
		case !r.conn.fault().Cut:
			n.counts.RequestsLate++
			n.event(e.id.Node, "gets late", r.conn.from.id.Node, requestNames[r.kind&7])
			r.arrive(e)
		case pauses > 1:
			r.linger(e, pauses-1)
		}
	})
}

// arrive has the peer handle the request, if it does not hear at the same time that nobody
// waits for it. What is left of the caller's time is counted from here.
func (r *request) arrive(e *Endpoint) {
	if e.closed || r.off {
		return
	}
	r.arrived = true
	n, from := e.net, r.conn.from
	if n.chance(r.conn.fault().Busy) {
		r.reply(nil, fmt.Errorf("%w: by chance", transport.ErrBusy))
		return
	}
	if r.left <= 0 {
		r.reply(nil, fmt.Errorf("%w: arrived after its deadline", transport.ErrUnreachable))
		return
	}
	ctx, cancel := e.st.WithTimeout(e.ctx, r.left)
	r.cancel = cancel
	e.serving++
	id := from.id
	e.st.Go(requestNames[r.kind&7], func() {
		defer func() { e.serving-- }()
		defer cancel()
		n.event(e.id.Node, "handles", id.Node, requestNames[r.kind&7])
		answer, err := e.handler.HandleRequest(ctx, id, r.kind, bytes.Clone(r.body))
		if !e.closed {
			r.reply(bytes.Clone(answer), travelled(err))
		}
	})
	e.st.Touch()
}

var requestNames = [8]string{
	"request 0", "request 1", "request 2", "request 3",
	"request 4", "request 5", "request 6", "request 7",
}

// travelled is what becomes of a handler's error on its way, as package transport
// promises.
func travelled(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, transport.ErrBusy):
		return fmt.Errorf("%w: %s", transport.ErrBusy, err.Error())
	case errors.Is(err, transport.ErrUnknown), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s", transport.ErrUnknown, err.Error())
	}
	if remote, ok := errors.AsType[*transport.RemoteError](err); ok {
		out := *remote
		out.Body = bytes.Clone(remote.Body)
		return &out
	}
	return &transport.RemoteError{Message: err.Error()}
}

// reply sends the answer back on the same connection.
func (r *request) reply(answer []byte, err error) {
	r.travel(r.conn.from.net.chance(r.conn.fault().LoseAnswer), func() { r.end(answer, err) })
}

// end ends the request for the one who waits for it.
func (r *request) end(answer []byte, err error) {
	if r.ended {
		return
	}
	r.ended, r.answer, r.err = true, answer, err
	c := r.conn
	same := func(o *request) bool { return o == r }
	c.flight = slices.DeleteFunc(c.flight, same)
	c.queued = slices.DeleteFunc(c.queued, same)
	c.from.st.Touch()
}

// giveUp ends a request that nobody waits for any more, unless it has ended.
func (r *request) giveUp(why error) {
	switch {
	case r.ended:
	case !r.written:
		r.end(nil, fmt.Errorf("%w: not sent in time: %w", transport.ErrUnreachable, why))
	default:
		r.end(nil, fmt.Errorf("%w: %w", transport.ErrUnknown, why))
		c := r.conn
		c.from.net.s.After(c.from.net.latency(c.fault()), func() {
			c.passes(r.life, func() {
				if r.off = true; r.cancel != nil {
					r.cancel()
					c.remote.st.Touch()
				}
			})
		})
	}
}
