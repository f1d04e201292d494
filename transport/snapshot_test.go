package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// TestSnapshotWhoseHandlerHangs: that the receiver's process lives does not keep
// the sender waiting for its handler.
func TestSnapshotWhoseHandlerHangs(t *testing.T) {
	for name, handle := range map[string]func(ctx context.Context, body io.Reader) error{
		"takes nothing": func(ctx context.Context, _ io.Reader) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"said nothing": func(ctx context.Context, body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		},
		"and no more": func(ctx context.Context, body io.Reader) error {
			_, err := io.CopyN(io.Discard, body, 10)
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			s := newSink()
			s.snapshot = func(ctx context.Context, body io.Reader) error {
				defer close(ended)
				return handle(ctx, body)
			}
			b := listenTCP(t, 2, s, nil)
			a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()},
				func(c *Config) {
					c.SnapshotStall, c.SnapshotVerdict = 50*time.Millisecond, 100*time.Millisecond
				})
			err := a.SendSnapshot(t.Context(), appendEnvelopeOf(t, raftpb.MsgSnap),
				bytes.NewBuffer(make([]byte, 100<<10)))
			if !errors.Is(err, ErrUnknown) ||
				!strings.Contains(err.Error(), "the receiver has taken") {
				t.Errorf("SendSnapshot = %v, want ErrUnknown", err)
			}
			<-ended // the handler is told
		})
	}
}

// TestSlowSnapshotIsNoStall: neither a sender that has nothing to send for a while
// nor a handler that takes little at a time is given up.
func TestSlowSnapshotIsNoStall(t *testing.T) {
	const stall = 200 * time.Millisecond
	s := newSink()
	s.snapshot = func(ctx context.Context, body io.Reader) error {
		tick := time.NewTicker(stall / 4)
		defer tick.Stop()
		buf := make([]byte, 32<<10)
		for {
			if _, err := io.ReadFull(body, buf); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	b := listenTCP(t, 2, s, nil)
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()},
		func(c *Config) { c.SnapshotStall = stall })
	err := a.SendSnapshot(t.Context(), appendEnvelopeOf(t, raftpb.MsgSnap), halting{2 * stall})
	if err != nil {
		t.Errorf("SendSnapshot = %v", err)
	}
}

// TestSnapshotsWithoutASlot: more snapshots than may be received at a time are refused before
// anything of them is sent; how many are under way is told on both sides.
func TestSnapshotsWithoutASlot(t *testing.T) {
	s := newSink()
	began, release := make(chan struct{}), make(chan struct{})
	s.snapshot = func(_ context.Context, body io.Reader) error {
		close(began)
		<-release
		_, err := io.Copy(io.Discard, body)
		return err
	}
	b := listenTCP(t, 2, s, nil, func(c *Config) { c.MaxSnapshotsIn = 1 })
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()})
	send := func() error {
		return a.SendSnapshot(t.Context(), appendEnvelopeOf(t, raftpb.MsgSnap),
			bytes.NewBuffer(make([]byte, 100<<10)))
	}
	first := make(chan error, 1)
	go func() { first <- send() }()
	<-began
	if err := send(); !errors.Is(err, ErrBusy) {
		t.Errorf("a second snapshot = %v, want ErrBusy", err)
	}
	from, to := a.Stats(), b.Stats()
	if from.SnapshotsSending != 1 || to.SnapshotsReceiving != 1 || to.SnapshotsBusy != 1 {
		t.Errorf("%d are sent, %d received, and %d were refused, want one each",
			from.SnapshotsSending, to.SnapshotsReceiving, to.SnapshotsBusy)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	eventually(t, "nothing is under way", func() bool {
		return a.Stats().SnapshotsSending == 0 && b.Stats().SnapshotsReceiving == 0
	})
}

// halting writes one chunk, waits, and writes another.
type halting struct{ pause time.Duration }

func (h halting) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, chunkBytes))
	<-time.After(h.pause)
	m, err2 := w.Write(make([]byte, chunkBytes))
	return int64(n + m), errors.Join(err, err2)
}

func TestProgress(t *testing.T) {
	began := time.Unix(100, 0)
	type step struct {
		after int // seconds since the beginning
		sent  uint64
		whole bool
		taken uint64
		want  string // a part of the error
	}
	for name, steps := range map[string][]step{
		"goes on":      {{1, 10, false, 5, ""}, {6, 10, false, 6, ""}, {11, 20, true, 20, ""}},
		"idle sender":  {{1, 10, false, 10, ""}, {90, 10, false, 10, ""}, {94, 20, false, 10, ""}},
		"stands still": {{1, 10, false, 5, ""}, {6, 10, false, 5, ""}, {7, 10, false, 5, "more"}},
		"takes none":   {{5, 10, true, 0, ""}, {6, 10, true, 0, "0 of 10"}},
		"verdict":      {{5, 9, true, 9, ""}, {25, 9, true, 9, ""}, {26, 9, true, 9, "all 9"}},
		"empty":        {{20, 0, true, 0, ""}, {21, 0, true, 0, "said nothing"}},
		"more":         {{1, 10, false, 11, "protocol"}},
		"back":         {{1, 10, false, 5, ""}, {2, 10, false, 4, "protocol"}},
	} {
		p := progress{stall: 5 * time.Second, verdict: 20 * time.Second}
		p.begin(began)
		for i, s := range steps {
			p.sending(s.sent, s.whole)
			got := ""
			err := p.heard(s.taken, began.Add(time.Duration(s.after)*time.Second))
			if err != nil {
				got = err.Error()
			}
			if (got == "") != (s.want == "") || !strings.Contains(got, s.want) {
				t.Errorf("%s: step %d = %v, want %q", name, i, err, s.want)
			}
		}
	}
}
