package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// TestUnknownWinsOverNotDelivered: who does not know must not be believed to have
// done nothing, whatever the reason for not knowing.
func TestUnknownWinsOverNotDelivered(t *testing.T) {
	for _, reason := range []error{ErrUnreachable, ErrBusy, ErrTooLarge, ErrInvalid} {
		if !NotDelivered(fmt.Errorf("to node 2: %w", reason)) {
			t.Errorf("NotDelivered(%v) = false", reason)
		}
		for _, err := range []error{
			fmt.Errorf("%w: %w", ErrUnknown, reason), errors.Join(reason, ErrUnknown),
			fmt.Errorf("%w: %w", errBody, reason),
		} {
			if NotDelivered(err) {
				t.Errorf("NotDelivered(%v) = true", err)
			}
		}
		a := answerOf(nil, fmt.Errorf("%w: %w", ErrUnknown, reason))
		if _, err := a.result(); !errors.Is(err, ErrUnknown) || NotDelivered(err) {
			t.Errorf("a handler does not know because of %v, the caller gets %v", reason, err)
		}
	}
}

// TestCauseOfContextIsNoReason: the first of two requests reaches nobody, and that
// is the cause that ends the context of the second, which the peer has in hand.
func TestCauseOfContextIsNoReason(t *testing.T) {
	handling := make(chan struct{}, 2)
	s := newSink()
	s.request = func(ctx context.Context) ([]byte, error) {
		handling <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.snapshot = func(ctx context.Context, _ io.Reader) error {
		handling <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	b := listenTCP(t, 2, s, nil)
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()})
	snap := appendEnvelopeOf(t, raftpb.MsgSnap)
	for name, send := range map[string]func(ctx context.Context) error{
		"request": func(ctx context.Context) error {
			_, err := a.Request(ctx, 2, 1, []byte("x"))
			return err
		},
		"snapshot": func(ctx context.Context) error {
			return a.SendSnapshot(ctx, snap, bytes.NewBufferString("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-handling
				_, err := a.Request(ctx, 9, 1, nil) // there is no such node
				cancel(err)                         // as errgroup.WithContext does
			}()
			err := send(ctx)
			if NotDelivered(err) || !errors.Is(err, ErrUnknown) ||
				!errors.Is(err, context.Canceled) {
				t.Errorf("what the handler has had = %v, want ErrUnknown", err)
			}
			err = send(ctx) // which has ended
			if !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
				t.Errorf("what was never sent = %v, want ErrUnreachable", err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := a.SendSnapshot(ctx, snap, bytes.NewBufferString("x"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a snapshot that takes too long = %v, want its deadline", err)
	}
}

// lossyListener gives connections that break with the second write of the
// acceptor, whose data nobody gets.
type lossyListener struct{ net.Listener }

func (l lossyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: c}, nil
}

type lossyConn struct {
	net.Conn
	writes int
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		closeQuietly(c.Conn)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestSnapshotWhoseAcceptIsLost: the receiver's handler was called, though nothing
// says so.
func TestSnapshotWhoseAcceptIsLost(t *testing.T) {
	called := make(chan struct{})
	s := newSink()
	s.snapshot = func(context.Context, io.Reader) error { close(called); return nil }
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listenTCP(t, 2, s, nil, func(c *Config) { c.Listener = lossyListener{l} })
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: l.Addr().String()})
	snap := appendEnvelopeOf(t, raftpb.MsgSnap)
	err = a.SendSnapshot(t.Context(), snap, bytes.NewBufferString("x"))
	<-called
	if NotDelivered(err) || !errors.Is(err, ErrUnknown) {
		t.Errorf("SendSnapshot = %v, want ErrUnknown", err)
	}
}
