package transport

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"
)

// snapshotLimiter returns a limiter of bytes, whose burst is one chunk.
func snapshotLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond < 0 {
		return rate.NewLimiter(rate.Inf, chunkBytes)
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), chunkBytes)
}

// SendSnapshot sends a MsgSnap, and with it what body writes, to the node in
// env.To, on a connection of its own, and returns the verdict of the receiver's
// handler: nil if that has returned nil. It waits for a slot first, if
// Config.MaxSnapshotsOut are on their way already. body.WriteTo is called at most
// once, on the caller's goroutine, and not unless the receiver has a slot; it
// gets an error from its writer when the snapshot is not wanted any more.
//
// The error wraps [ErrUnreachable], [ErrBusy], [ErrTooLarge] or [ErrInvalid] if
// the receiver's handler certainly was not called, is a [*RemoteError] if it has
// returned an error, wraps the error of body.WriteTo if that is why the stream
// has ended, and [ErrUnknown] if the verdict was lost.
func (t *Transport) SendSnapshot(ctx context.Context, env Envelope, body io.WriterTo) error {
	err := t.sendSnapshot(ctx, &env, body)
	if err == nil {
		t.count.snapshotsSent.Add(1)
		return nil
	}
	t.count.snapshotsFailed.Add(1)
	return fmt.Errorf("snapshot for node %d: %w", env.To.Node, err)
}

func (t *Transport) sendSnapshot(ctx context.Context, env *Envelope, body io.WriterTo) error {
	if why := t.checkOutgoing(env); why == DropOversized {
		return fmt.Errorf("%w: its message alone", ErrTooLarge)
	} else if why != dropNothing {
		return fmt.Errorf("%w: %s", ErrInvalid, why)
	}
	if env.Message.GetType() != raftpb.MsgSnap {
		return fmt.Errorf("%w: %s", ErrInvalid, env.Message.GetType())
	}
	ctx, end := t.bothContexts(ctx)
	defer end(nil)

	select {
	case t.snapshotsOut <- struct{}{}:
		defer func() { <-t.snapshotsOut }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	}
	p := t.peer(env.To.Node)
	if p == nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, ErrClosed)
	}
	conn, w, err := t.connect(ctx, p, ClassSnapshot)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer t.admission.leave(env.To.Node, conn.Conn)
	// The receiver may be slow to take data without being dead: whether it lives,
	// and how far its handler is, is told by its pings.
	conn.writeTimeout = t.cfg.SnapshotStall
	s := &snapshotSender{
		t: t, conn: conn, ctx: ctx, cancel: end, accepted: make(chan struct{}),
		progress: progress{stall: t.cfg.SnapshotStall, verdict: t.cfg.SnapshotVerdict},
	}
	if size := sizeEnvelope(env) + batchOverhead; uint64(size) > w.maxFrame {
		closeQuietly(conn)
		return fmt.Errorf("%w: its message alone, for the peer", ErrTooLarge)
	}
	return s.send(env, body)
}

// bothContexts returns a context that ends with the caller's, with the transport
// and by end. Its cause is never that of the caller's context, which may be an
// error of another request and would be taken for one of this snapshot.
func (t *Transport) bothContexts(
	caller context.Context,
) (ctx context.Context, end context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	stopCaller := context.AfterFunc(caller, func() { cancel(caller.Err()) })
	stopOwn := context.AfterFunc(t.ctx, func() { cancel(ErrClosed) })
	switch { // each of those has a goroutine, and may come late
	case caller.Err() != nil:
		cancel(caller.Err())
	case t.ctx.Err() != nil:
		cancel(ErrClosed)
	}
	return ctx, func(cause error) {
		stopCaller()
		stopOwn()
		cancel(cause)
	}
}

// snapshotSender is the sending end of one snapshot. The caller's goroutine
// writes; one reads what the receiver says, and one pings.
type snapshotSender struct {
	t      *Transport
	conn   *frameConn
	ctx    context.Context // ends when the snapshot has to
	cancel context.CancelCauseFunc

	accepted chan struct{} // closed when the receiver wants the body

	writing sync.Mutex // held while frames are written

	progress progress // of the receiver's handler

	// verdict is what the receiver has said, set by the reader before ctx ends.
	verdict *answer
}

// errVerdict is the cause of the end of a sender's context when the receiver
// has answered.
var errVerdict = errors.New("the receiver has answered")

// errBody marks an error of what was to be sent: the stream was not completed,
// so no receiver has taken it.
var errBody = errors.New("stream not completed")

func (s *snapshotSender) send(env *Envelope, body io.WriterTo) error {
	stop := context.AfterFunc(s.ctx, func() { closeQuietly(s.conn) })
	defer stop()
	var helpers sync.WaitGroup
	helpers.Go(s.read)
	helpers.Go(s.ping)

	err := s.write(env, body)
	if err == nil {
		<-s.ctx.Done() // the verdict, or the loss of the connection
	}
	s.cancel(err)
	closeQuietly(s.conn)
	helpers.Wait()

	switch {
	case errors.Is(err, errBody) && (s.verdict == nil || s.verdict.status != answerOK):
		return err
	case s.verdict != nil:
		_, err = s.verdict.result()
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(s.ctx))
	}
}

// write sends everything. As soon as the head may be on its way, the receiver's
// handler may have been called: that it accepts can get lost.
func (s *snapshotSender) write(env *Envelope, body io.WriterTo) error {
	head := beginFrame(nil, frameSnapshot)
	head = appendBatch(head, s.t.self.Node, env.To.Node, []Envelope{*env})
	if err := s.writeFrame(endFrame(head, 0)); err != nil {
		return err
	}
	select {
	case <-s.accepted:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	w := &chunkWriter{s: s, hash: sha256.New()}
	if _, err := body.WriteTo(w); err != nil {
		if w.err != nil {
			return w.err
		}
		abort := endFrame(appendAbort(beginFrame(nil, frameAbort), err.Error()), 0)
		_ = s.writeFrame(abort) // closing the connection says it, too
		return fmt.Errorf("%w: %w", errBody, err)
	}
	return w.end()
}

func (s *snapshotSender) writeFrame(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.conn.writeFrames(frame, 1)
}

// read takes what the receiver says until the verdict, or the end of the
// connection.
func (s *snapshotSender) read() {
	var buf []byte
	accepted := false
	for {
		typ, body, err := s.conn.readFrame(buf)
		if err != nil {
			s.cancel(fmt.Errorf("read: %w", noEOF(err)))
			return
		}
		buf = body
		switch {
		case typ == framePing:
			taken, err := decodeTaken(body)
			if err != nil {
				s.cancel(fmt.Errorf("%w: %w", errProtocol, err))
				return
			}
			if err = s.progress.heard(taken, time.Now()); err != nil {
				s.cancel(err)
				return
			}
		case typ == frameAccept && !accepted:
			accepted = true
			s.progress.begin(time.Now())
			close(s.accepted)
		case typ == frameVerdict:
			a, err := decodeVerdict(append([]byte(nil), body...))
			if err != nil {
				s.cancel(fmt.Errorf("%w: %w", errProtocol, err))
				return
			}
			s.verdict = &a
			s.cancel(errVerdict)
			return
		default:
			s.cancel(unexpected(typ, ClassSnapshot))
			return
		}
	}
}

// ping tells the receiver that the sender is alive while body takes its time.
func (s *snapshotSender) ping() {
	ping := appendFrame(nil, framePing, make([]byte, pingBody))
	pingEvery(s.ctx, s.t.cfg.PingInterval, func() error { return s.writeFrame(ping) })
}

// pingEvery calls ping at each interval until ctx ends or ping fails.
func pingEvery(ctx context.Context, d time.Duration, ping func() error) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if ping() != nil {
				return
			}
		}
	}
}

// chunkWriter cuts what is written to it into chunks.
type chunkWriter struct {
	s      *snapshotSender
	hash   hash.Hash
	buf    []byte // one frame: header, offset, data
	offset uint64 // of the data in buf
	err    error  // the first error
}

// Write may keep nothing of p.
func (w *chunkWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if w.err != nil {
			return n, w.err
		}
		if len(w.buf) == 0 {
			w.buf = appendChunk(beginFrame(w.buf, frameChunk), w.offset, nil)
		}
		const whole = frameHeader + minChunkFrame + chunkBytes
		part := p[:min(len(p), whole-len(w.buf))]
		w.buf = append(w.buf, part...)
		n += len(part)
		p = p[len(part):]
		if len(w.buf) == whole {
			w.flush()
		}
	}
	return n, w.err
}

func (w *chunkWriter) flush() {
	if w.err != nil || len(w.buf) == 0 {
		return
	}
	data := w.buf[frameHeader+minChunkFrame:]
	w.hash.Write(data)
	if err := w.s.t.rateOut.WaitN(w.s.ctx, len(data)); err != nil {
		w.err = fmt.Errorf("%w: %w", err, context.Cause(w.s.ctx))
		return
	}
	w.offset += uint64(len(data))
	w.s.progress.sending(w.offset, false)
	if w.err = w.s.writeFrame(endFrame(w.buf, 0)); w.err != nil {
		return
	}
	w.s.t.count.snapshotBytesSent.Add(uint64(len(data)))
	w.buf = w.buf[:0]
}

// end completes the stream.
func (w *chunkWriter) end() error {
	w.flush()
	if w.err != nil {
		return w.err
	}
	w.s.progress.sending(w.offset, true)
	e := snapshotEnd{size: w.offset}
	w.hash.Sum(e.hash[:0])
	return w.s.writeFrame(endFrame(appendEnd(beginFrame(nil, frameEnd), &e), 0))
}
