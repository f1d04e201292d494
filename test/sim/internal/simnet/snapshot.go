package simnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/transport"
)

const (
	chunkBytes = 512 // small, so that small states are several
	maxChunks  = 4   // that are sent and not read
)

// A stream is a snapshot on its way, on a connection of its own.
type stream struct {
	net      *Network
	from, to *Endpoint
	route    Route

	chunks  [][]byte // that have arrived
	flying  []parcel // in the order in which they arrive
	whole   bool     // the last chunk has arrived
	aborted error
	arrival int64

	broken   error // the connection is lost
	verdict  error
	answered bool
	cancel   context.CancelFunc // of the receiver's handler
}

// A parcel is a chunk on its way, or the end.
type parcel struct {
	data    []byte
	aborted error
	last    bool
}

// SendSnapshot sends a snapshot and returns the receiver's verdict; see
// [transport.Transport.SendSnapshot].
func (e *Endpoint) SendSnapshot(
	ctx context.Context, env transport.Envelope, body io.WriterTo,
) error {
	e.sending++
	defer func() { e.sending-- }()
	err := e.sendSnapshot(ctx, env, body)
	if err != nil {
		e.net.counts.SnapshotsBroken++
		return fmt.Errorf("snapshot for node %d: %w", env.To.Node, err)
	}
	e.net.counts.Snapshots++
	return nil
}

func (e *Endpoint) sendSnapshot(
	ctx context.Context, env transport.Envelope, body io.WriterTo,
) error {
	carried, _, err := transport.Carry(e.id.Node, env.To.Node, []transport.Envelope{env})
	if err != nil || len(carried) != 1 || env.Message.GetType() != raftpb.MsgSnap {
		return fmt.Errorf("%w: %w", transport.ErrInvalid, errors.Join(err))
	}
	if sent := e.net.cfg.Sent; sent != nil {
		sent(e.id.Node, &env)
	}
	s, err := e.openStream(ctx, &carried[0])
	if err != nil {
		return err
	}
	defer s.end(errBroken) // whatever is not over by then
	_, err = body.WriteTo(&chunkWriter{s: s, ctx: ctx})
	if err == nil {
		s.post(parcel{last: true})
	} else if s.broken == nil && ctx.Err() == nil {
		s.post(parcel{aborted: err, last: true})
	}
	e.st.Until(func() bool { return s.over(ctx) })
	switch {
	case s.answered && s.verdict == nil:
		return nil
	case err != nil && s.broken == nil && ctx.Err() == nil:
		return fmt.Errorf("stream not completed: %w", err)
	case s.answered:
		return s.verdict
	case s.broken != nil:
		return fmt.Errorf("%w: %w", transport.ErrUnknown, s.broken)
	case e.closed:
		return fmt.Errorf("%w: %w", transport.ErrUnknown, transport.ErrClosed)
	default:
		return fmt.Errorf("%w: %w", transport.ErrUnknown, ctx.Err())
	}
}

// openStream dials and waits until the receiver's handler is called.
func (e *Endpoint) openStream(ctx context.Context, env *transport.Envelope) (*stream, error) {
	n, route := e.net, Route{e.id.Node, env.To.Node}
	f := n.route(route)
	due := n.s.Time() + 2*n.latency(f)
	limit := n.s.Time() + n.cfg.DialTimeout
	n.s.At(int64(due), e.st.Touch)
	n.s.At(int64(limit), e.st.Touch)
	e.st.Until(func() bool {
		now := n.s.Time()
		return (now >= due && !f.Cut) || now >= limit || ctx.Err() != nil || e.closed
	})
	to := n.ends[env.To.Node]
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, ctx.Err())
	case e.closed:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, transport.ErrClosed)
	case f.Cut:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, errNoAnswer)
	case to == nil:
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, errRefused)
	}
	if err := introduce(e, to); err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, err)
	}
	if to.taking >= to.cfg.MaxSnapshotsIn || n.chance(f.Busy) {
		return nil, fmt.Errorf("%w: %d snapshots are being received", transport.ErrBusy, to.taking)
	}
	s := &stream{net: n, from: e, to: to, route: route}
	n.message(e.id.Node, "streams", to.id.Node, env)
	s.serve(*env)
	if n.cfg.Streamed != nil {
		n.cfg.Streamed(to.id.Node)
	}
	s.watch(0)
	return s, nil
}

// serve has the receiver's handler take the stream.
func (s *stream) serve(env transport.Envelope) {
	e, from := s.to, s.from.id
	ctx, cancel := context.WithCancel(e.ctx)
	s.cancel = cancel
	e.taking++
	e.serving++
	e.st.Go("snapshot", func() {
		defer func() { e.taking--; e.serving-- }()
		defer cancel()
		err := travelled(e.handler.HandleSnapshot(ctx, from, env, s))
		s.net.s.After(s.net.latency(s.fault()), func() { s.answer(err) })
	})
	e.st.Touch()
}

func (s *stream) fault() *Faults { return s.net.route(s.route) }

// watch gives the stream up when an end is gone or nothing passes for too long.
func (s *stream) watch(still time.Duration) {
	const every = 50 * time.Millisecond
	s.net.s.After(every, func() {
		if s.fault().Cut {
			still += every
		} else {
			still = 0
		}
		switch {
		case s.broken != nil || s.answered:
		case still > s.net.cfg.DeadAfter:
			s.end(errNoAnswer)
		case s.from.closed || s.to.closed:
			s.end(errReset)
		default:
			s.watch(still)
		}
	})
}

// answer brings the verdict back.
func (s *stream) answer(err error) {
	if s.broken != nil || s.answered {
		return
	}
	if s.fault().Cut {
		s.net.s.After(20*time.Millisecond, func() { s.answer(err) })
		return
	}
	s.answered, s.verdict = true, err
	s.from.st.Touch()
}

// end breaks the stream, unless it is over.
func (s *stream) end(why error) {
	if s.broken != nil || s.answered {
		return
	}
	s.broken = why
	s.net.event(s.from.id.Node, "snapshot ends", s.to.id.Node, why.Error())
	s.cancel()
	s.from.st.Touch()
	s.to.st.Touch()
}

// over reports whether the sender need not wait for the stream any more.
func (s *stream) over(ctx context.Context) bool {
	return s.answered || s.broken != nil || ctx.Err() != nil || s.from.closed
}

// post sends a chunk, or the end.
func (s *stream) post(p parcel) {
	n, f := s.net, s.fault()
	if n.chance(f.BreakSnapshot) {
		s.end(errBroken)
		return
	}
	s.flying = append(s.flying, p)
	s.arrival = max(s.arrival+1, int64(n.s.Time()+n.latency(f)+f.ChunkDelay))
	n.s.At(s.arrival, s.land)
}

// land puts the next chunk before the reader. One that a cut holds up comes later, and
// those after it not before it.
func (s *stream) land() {
	switch {
	case s.broken != nil:
		return
	case s.fault().Cut:
		s.arrival = max(s.arrival+1, int64(s.net.s.Time()+20*time.Millisecond))
		s.net.s.At(s.arrival, s.land)
		return
	}
	p := s.flying[0]
	s.flying = s.flying[1:]
	if p.last {
		s.whole, s.aborted = true, p.aborted
	} else {
		s.chunks = append(s.chunks, p.data)
	}
	s.to.st.Touch()
}

// Read is how the receiver's handler reads the stream. It ends with io.EOF only if
// everything has arrived.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.to.st.Until(func() bool { return len(s.chunks) > 0 || s.whole || s.broken != nil })
	switch {
	case s.broken != nil:
		return 0, fmt.Errorf("snapshot cut short: %w", s.broken)
	case len(s.chunks) == 0 && s.aborted != nil:
		return 0, fmt.Errorf("snapshot given up by its sender: %s", s.aborted.Error())
	case len(s.chunks) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.chunks[0])
	if s.chunks[0] = s.chunks[0][n:]; len(s.chunks[0]) == 0 {
		s.chunks = s.chunks[1:]
		s.from.st.Touch()
	}
	return n, nil
}

// chunkWriter is the sender's end.
type chunkWriter struct {
	s   *stream
	ctx context.Context //nolint:containedctx // io.Writer has no way to pass it
}

// Write sends chunks, and waits while the receiver is behind.
func (w *chunkWriter) Write(p []byte) (n int, err error) {
	s := w.s
	for len(p) > 0 {
		s.from.st.Until(func() bool {
			return len(s.flying)+len(s.chunks) < maxChunks || s.over(w.ctx)
		})
		if s.over(w.ctx) {
			return n, errBroken
		}
		part := slices.Clone(p[:min(len(p), chunkBytes)])
		s.post(parcel{data: part})
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}
