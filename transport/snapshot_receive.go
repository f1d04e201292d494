package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// serveSnapshot receives the one snapshot of a connection. The handler reads
// the stream from the connection itself, so a handler that is slow holds up the
// sender, and nobody else.
func (t *Transport) serveSnapshot(
	ctx context.Context, cancel context.CancelFunc, c *frameConn, from Identity,
) error {
	typ, head, err := c.readFrame(nil)
	switch {
	case err != nil:
		return err
	case typ != frameSnapshot:
		return unexpected(typ, ClassSnapshot)
	}
	env, why, err := decodeSnapshotHead(head, from, t.self.Node)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	r := &snapshotReceiver{t: t, conn: c}
	if why != dropNothing {
		t.refuseEnvelope(from, &env, why)
		return r.conclude(&RemoteError{Message: "envelope refused: " + why.String()})
	}
	select {
	case t.snapshotsIn <- struct{}{}:
		defer func() { <-t.snapshotsIn }()
	default:
		t.count.snapshotsBusy.Add(1)
		return r.conclude(fmt.Errorf("%w: %d snapshots are being received",
			ErrBusy, t.cfg.MaxSnapshotsIn))
	}
	if err := r.writeFrame(appendFrame(nil, frameAccept, nil)); err != nil {
		return err
	}
	return r.receive(ctx, cancel, from, &env)
}

// snapshotReceiver is the receiving end of one snapshot.
type snapshotReceiver struct {
	t       *Transport
	conn    *frameConn
	writing sync.Mutex // held while frames are written
}

func (r *snapshotReceiver) writeFrame(frame []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.conn.writeFrames(frame, 1)
}

// conclude sends the verdict. Then it reads, for a while, what the sender has sent
// before it saw the verdict and closed the connection: closing a socket with
// unread data could take the verdict back.
func (r *snapshotReceiver) conclude(verdict error) error {
	a := answerOf(nil, verdict)
	err := r.writeFrame(endFrame(appendAnswer(beginFrame(nil, frameVerdict), &a), 0))
	if err != nil {
		return err
	}
	var buf []byte
	for until := time.Now().Add(r.conn.readTimeout); time.Now().Before(until); {
		if _, buf, err = r.conn.readFrame(buf); err != nil {
			return nil //nolint:nilerr // that the connection has ended is what we wait for
		}
	}
	return nil
}

func (r *snapshotReceiver) receive(
	ctx context.Context, cancel context.CancelFunc, from Identity, env *Envelope,
) error {
	stop := context.AfterFunc(ctx, func() { closeQuietly(r.conn) })
	defer stop()
	body := &snapshotBody{ctx: ctx, t: r.t, conn: r.conn, hash: sha256.New()}
	pinging, quit := context.WithCancel(ctx)
	var helper sync.WaitGroup
	helper.Go(func() {
		var frame []byte
		pingEvery(pinging, r.t.cfg.PingInterval, func() error {
			frame = appendTaken(beginFrame(frame[:0], framePing), body.taken.Load())
			err := r.writeFrame(endFrame(frame, 0))
			if err != nil {
				cancel() // the sender is gone: the handler should stop
			}
			return err
		})
	})
	verdict := r.t.cfg.Handler.HandleSnapshot(ctx, from, *env, body)
	quit()
	helper.Wait()

	if verdict == nil {
		r.t.count.snapshotsReceived.Add(1)
	} else {
		r.t.count.snapshotsRejected.Add(1)
		r.t.log.warn("snapshot not taken", uint64(from.Node),
			slog.Uint64("node", uint64(from.Node)), slog.Uint64("group", uint64(env.Group)),
			slog.Any("error", verdict))
	}
	if errors.Is(body.err, errProtocol) {
		r.t.count.badFrames.Add(1)
	}
	return r.conclude(verdict)
}

// snapshotBody is the stream as the handler reads it.
type snapshotBody struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no way to pass it
	t      *Transport
	conn   *frameConn
	hash   hash.Hash
	buf    []byte        // of the last frame
	rest   []byte        // of the last chunk, in buf
	offset uint64        // of what comes after rest
	taken  atomic.Uint64 // bytes that the handler has been given
	err    error         // how the stream has ended; io.EOF only if it is whole
}

// Read implements [io.Reader].
func (b *snapshotBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil && len(p) > 0 {
		b.rest, b.err = b.next()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	b.taken.Add(uint64(n))
	return n, nil
}

// next returns the next chunk, or nothing after a ping.
func (b *snapshotBody) next() ([]byte, error) {
	typ, body, err := b.conn.readFrame(b.buf)
	if err != nil {
		return nil, fmt.Errorf("snapshot cut short after %d bytes: %w", b.offset, noEOF(err))
	}
	b.buf = body
	switch typ {
	case framePing:
		return nil, nil
	case frameChunk:
		data, err := decodeChunk(body, b.offset)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errProtocol, err)
		}
		if err := b.t.rateIn.WaitN(b.ctx, len(data)); err != nil {
			return nil, fmt.Errorf("snapshot cut short after %d bytes: %w", b.offset, err)
		}
		b.hash.Write(data)
		b.offset += uint64(len(data))
		b.t.count.snapshotBytesReceived.Add(uint64(len(data)))
		return data, nil
	case frameEnd:
		return nil, b.end(body)
	case frameAbort:
		why, err := decodeAbort(body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errProtocol, err)
		}
		return nil, fmt.Errorf("snapshot given up by its sender after %d bytes: %s", b.offset, why)
	default:
		return nil, unexpected(typ, ClassSnapshot)
	}
}

// end checks the end of the stream and returns io.EOF if it holds.
func (b *snapshotBody) end(body []byte) error {
	e, err := decodeEnd(body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errProtocol, err)
	case e.size != b.offset:
		return fmt.Errorf("%w: snapshot of %d bytes, %d have come", errProtocol, e.size, b.offset)
	case !bytes.Equal(b.hash.Sum(nil), e.hash[:]):
		return fmt.Errorf("%w: hash of a snapshot of %d bytes does not hold", errProtocol, e.size)
	}
	return io.EOF
}
