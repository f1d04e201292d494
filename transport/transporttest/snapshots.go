package transporttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/transport"
)

// writerTo is a snapshot's body made of a function.
type writerTo func(w io.Writer) (int64, error)

// WriteTo implements [io.WriterTo].
func (f writerTo) WriteTo(w io.Writer) (int64, error) { return f(w) }

// pattern returns n bytes that do not repeat soon.
func pattern(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for h := sha256.Sum256(nil); len(b) < n; h = sha256.Sum256(h[:]) {
		b = append(b, h[:]...)
	}
	return b[:n]
}

func testSnapshotArrives(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	for _, size := range []int{0, 1, 256 << 10, 1<<20 + 77} {
		data := pattern(size)
		var got []byte
		b.onSnapshot(func(_ context.Context, env transport.Envelope, body io.Reader) error {
			if env.Message.GetSnapshot().GetMetadata().GetIndex() != 9 {
				t.Errorf("snapshot of %v", env.Message)
			}
			var err error
			got, err = io.ReadAll(body)
			return err
		})
		err := a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8), bytes.NewReader(data))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("SendSnapshot of %d bytes = %v, %d bytes arrive", size, err, len(got))
		}
	}
	if got := b.Stats(); got.SnapshotsReceived != 4 || got.SnapshotBytesReceived < 1<<20 {
		t.Errorf("%d snapshots of %d bytes are counted as received",
			got.SnapshotsReceived, got.SnapshotBytesReceived)
	}
	eventually(t, "slots are given back", func() bool {
		return a.Stats().SnapshotsSending == 0 && b.Stats().SnapshotsReceiving == 0
	})
}

func testSnapshotVerdict(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	// The handler refuses in the middle; the sender must not go on to the end.
	b.onSnapshot(func(_ context.Context, _ transport.Envelope, body io.Reader) error {
		if _, err := io.CopyN(io.Discard, body, 1000); err != nil {
			return err
		}
		return &transport.RemoteError{Code: 3, Message: "disk full"}
	})
	endless := writerTo(func(w io.Writer) (n int64, err error) {
		for chunk := pattern(100_000); err == nil; n += int64(len(chunk)) {
			_, err = w.Write(chunk)
		}
		return n, err
	})
	err := a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8), endless)
	remote, ok := errors.AsType[*transport.RemoteError](err)
	if !ok || remote.Code != 3 || remote.Message != "disk full" {
		t.Errorf("SendSnapshot = %v, want the handler's error", err)
	}
	// So it is when the handler is content with a part.
	b.onSnapshot(func(context.Context, transport.Envelope, io.Reader) error { return nil })
	err = a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8), endless)
	if err != nil {
		t.Errorf("SendSnapshot = %v, want nil", err)
	}
}

func testSnapshotBusy(t *testing.T, c *cluster) {
	a, d := c.add(1), c.add(3)
	b := c.add(2, func(cfg *transport.Config) { cfg.MaxSnapshotsIn = 1 })
	running := make(chan struct{})
	b.onSnapshot(func(_ context.Context, _ transport.Envelope, body io.Reader) error {
		close(running)
		<-b.released
		_, err := io.Copy(io.Discard, body)
		return err
	})
	first := make(chan error, 1)
	go func() {
		first <- a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8),
			bytes.NewReader(pattern(10)))
	}()
	<-running
	err := d.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 3, 2, 8),
		writerTo(func(io.Writer) (int64, error) {
			t.Error("the body is written though the receiver is busy")
			return 0, nil
		}))
	if !errors.Is(err, transport.ErrBusy) || !transport.NotDelivered(err) {
		t.Errorf("SendSnapshot = %v, want ErrBusy", err)
	}
	b.release()
	if err := <-first; err != nil {
		t.Errorf("the first SendSnapshot = %v", err)
	}
}

func testSnapshotBrokenBySender(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	got := make(chan error, 1)
	b.onSnapshot(func(_ context.Context, _ transport.Envelope, body io.Reader) error {
		_, err := io.ReadAll(body)
		got <- err
		return err
	})
	broken := errors.New("disk error")
	err := a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8),
		writerTo(func(w io.Writer) (int64, error) {
			n, err := w.Write(pattern(600_000))
			return int64(n), errors.Join(err, broken)
		}))
	if !errors.Is(err, broken) {
		t.Errorf("SendSnapshot = %v, want the body's error", err)
	}
	if err := <-got; err == nil {
		t.Error("the receiver sees a clean end")
	}
}

func testSnapshotBrokenByReceiver(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	running := make(chan struct{})
	b.onSnapshot(func(ctx context.Context, _ transport.Envelope, _ io.Reader) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	})
	go func() {
		<-running
		b.stop()
	}()
	err := a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8),
		bytes.NewReader(pattern(1000)))
	if !errors.Is(err, transport.ErrUnknown) {
		t.Errorf("SendSnapshot = %v, want ErrUnknown", err)
	}
	err = a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 8), nil)
	if !errors.Is(err, transport.ErrUnreachable) {
		t.Errorf("SendSnapshot to nobody = %v, want ErrUnreachable", err)
	}
}

func testSnapshotCanceled(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	running := make(chan struct{})
	ended := make(chan struct{})
	b.onSnapshot(func(ctx context.Context, _ transport.Envelope, body io.Reader) error {
		defer close(ended)
		if _, err := io.ReadAll(body); err != nil {
			return err
		}
		close(running)
		<-ctx.Done() // the connection is lost: nobody waits for the verdict
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-running
		cancel()
	}()
	err := a.SendSnapshot(ctx, message(raftpb.MsgSnap, 1, 2, 8), bytes.NewReader(pattern(1000)))
	if !errors.Is(err, transport.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("SendSnapshot = %v, want ErrUnknown and Canceled", err)
	}
	<-ended
}
