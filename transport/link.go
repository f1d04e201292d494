package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

// A link keeps a connection of one class to one peer. It dials, writes what its
// cargo has, probes the other end, and dials again when the connection is lost:
//
//	        wanted             handshake done
//	idle ───────────▶ dialling ──────────────▶ up
//	 ▲                    │ failed              │ lost
//	 └──── pause over ── pausing ◀──────────────┘
//
// until the peer is given up. It has one goroutine, which is also the writer, and a
// second one that reads while a connection is up.
type link struct {
	t     *Transport
	peer  *peer
	class Class
	cargo cargo
	wake  <-chan struct{} // has a value when there may be something to write
}

// cargo is what a link carries. Its methods are called from the link's
// goroutine, except that received is called from the reader's.
type cargo interface {
	// wait returns when a connection is wanted, or ctx ends. It is called before
	// each attempt to connect, after the pause since the one before.
	wait(ctx context.Context)

	// fill appends frames with what waits to be written, up to about
	// targetFrame bytes. n is their number.
	fill(buf []byte) (_ []byte, n int)

	// received takes a frame that has come back.
	received(t frameType, body []byte) error

	// up tells that there is a connection; down that it is lost, or could not be
	// made.
	up(s *session)
	down(err error)
}

// targetFrame is about how much is put into one frame, and one write.
const targetFrame = 64 << 10

// session is one connection of a link.
type session struct {
	*frameConn
	welcome welcome
	began   time.Time

	written   uint64        // bytes, used by the writer only
	read      atomic.Uint64 // bytes that the peer has said to have read
	lastHeard atomic.Int64  // when a pong came, in nanoseconds since began
	rtt       atomic.Int64  // nanoseconds; 0 before the first pong
	lost      unacked
}

// pingBody is what a ping carries and a pong brings back: when it was sent, in
// nanoseconds since the session began, and how many bytes were written before.
const pingBody = 16

// slowestLink is the rate, in bytes a second, at which a peer is given time to
// read what was written before a ping.
const slowestLink = 1 << 20

func (l *link) run() {
	t, ctx := l.t, l.peer.ctx
	pauses := newBackoff(t.cfg.MinBackoff, t.cfg.MaxBackoff)
	for {
		l.cargo.wait(ctx)
		if ctx.Err() != nil {
			break
		}
		conn, w, err := t.connect(ctx, l.peer, l.class)
		if err == nil {
			t.count.connects.Add(1)
			s := &session{frameConn: conn, welcome: w, began: time.Now()}
			err = l.serve(s)
			t.admission.leave(l.peer.node, conn.Conn)
			t.count.disconnects.Add(1)
			if s.rtt.Load() > 0 {
				pauses.reset()
			}
		} else {
			t.count.dialFailures.Add(1)
		}
		if ctx.Err() != nil {
			break
		}
		l.complain(err)
		l.cargo.down(err)
		if !sleep(ctx, pauses.pause()) {
			break
		}
	}
	if t.ctx.Err() == nil {
		l.cargo.down(errGivenUp)
		return
	}
	l.cargo.down(ErrClosed)
}

// errGivenUp is why there is no connection with a node after [Transport.Disconnect].
var errGivenUp = errors.New("connections to the node are given up")

func (l *link) complain(err error) {
	event := "connection to peer lost or not made"
	if ref, ok := errors.AsType[*RefusalError](err); ok {
		event = "connection to peer refused: " + ref.Code.String()
	}
	l.t.log.warn(event, uint64(l.peer.node), slog.Uint64("node", uint64(l.peer.node)),
		slog.String("class", l.class.String()), slog.Any("error", err))
}

// serve uses the connection until it fails or the transport is closed.
func (l *link) serve(s *session) error {
	s.readTimeout = 0 // the pings watch over the connection
	reading := make(chan error, 1)
	go func() { reading <- l.read(s) }()
	stop := context.AfterFunc(l.peer.ctx, func() { closeQuietly(s) })
	defer stop()

	l.cargo.up(s)
	writeErr, readErr := l.write(s, reading)
	closeQuietly(s)
	if readErr == nil {
		readErr = <-reading
	}
	// A peer that closes the connection makes both fail; reading says why.
	if writeErr == nil || errors.Is(readErr, errProtocol) {
		return fmt.Errorf("read: %w", noEOF(readErr))
	}
	return writeErr
}

// write is the writer. It returns its own error, or that of the reader.
func (l *link) write(s *session, reading <-chan error) (writeErr, readErr error) {
	ticker := time.NewTicker(l.t.cfg.PingInterval)
	defer ticker.Stop()
	buf, err := l.ping(s, nil)
	if err != nil {
		return err, nil
	}
	for {
		select {
		case readErr = <-reading:
			return nil, readErr
		case <-ticker.C:
			if buf, err = l.ping(s, buf); err != nil {
				return err, nil
			}
		case <-l.wake:
			// Who sends now sends more, mostly: one write to the socket for all of it, unless
			// nobody else is ready to run, and then this takes less than a microsecond.
			runtime.Gosched()
			if buf, err = l.drain(s, buf, ticker.C); err != nil {
				return err, nil
			}
		}
	}
}

// drain writes until the cargo has nothing more, with pings in between when
// they are due.
func (l *link) drain(s *session, buf []byte, tick <-chan time.Time) ([]byte, error) {
	for {
		frames, n := l.cargo.fill(buf[:0])
		if n == 0 {
			return frames, nil
		}
		if err := s.writeFrames(frames, n); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		s.written += uint64(len(frames))
		buf = trim(frames)
		select {
		case <-tick:
			var err error
			if buf, err = l.ping(s, buf); err != nil {
				return nil, err
			}
		default:
		}
	}
}

// trim returns the memory of buf to be used again, unless it is large.
func trim(buf []byte) []byte {
	if cap(buf) > 4*targetFrame {
		return nil
	}
	return buf[:0]
}

// ping probes the peer, unless it has not been heard of for too long.
func (l *link) ping(s *session, buf []byte) ([]byte, error) {
	now := time.Since(s.began)
	silent := now - time.Duration(s.lastHeard.Load())
	unread := s.written - s.read.Load()
	allowed := l.t.cfg.DeadAfter + time.Duration(float64(unread)/slowestLink*float64(time.Second))
	if silent > allowed {
		return nil, fmt.Errorf("no answer for %v, %d bytes unread", silent, unread)
	}
	if ref := l.t.readmit(s.welcome.from); ref != nil {
		return nil, ref
	}
	s.lost.pinging(s.written)
	buf = beginFrame(buf[:0], framePing)
	buf = binary.BigEndian.AppendUint64(buf, uint64(max(now, 1)))
	buf = binary.BigEndian.AppendUint64(buf, s.written)
	buf = endFrame(buf, 0)
	s.written += uint64(len(buf))
	if err := s.writeFrames(buf, 1); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return buf, nil
}

// read takes what comes back until the connection fails or is closed.
func (l *link) read(s *session) error {
	var buf []byte
	for {
		typ, body, err := s.readFrame(buf)
		if err != nil {
			return err
		}
		if typ != framePong {
			buf = nil // the body may be in it, and belongs to the cargo now
			if err := l.cargo.received(typ, body); err != nil {
				return err
			}
			continue
		}
		if err := s.pong(body); err != nil {
			return err
		}
		buf = body
	}
}

func (s *session) pong(body []byte) error {
	if len(body) != pingBody {
		return fmt.Errorf("%w: pong of %d bytes", errProtocol, len(body))
	}
	sent, bytes := binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])
	now := time.Since(s.began)
	if sent > uint64(now)+1 || bytes < s.read.Load() {
		return fmt.Errorf("%w: pong to no ping", errProtocol)
	}
	s.lastHeard.Store(int64(now))
	s.rtt.Store(max(int64(now)-int64(sent), 1))
	s.read.Store(bytes)
	s.lost.acked(bytes)
	return nil
}
