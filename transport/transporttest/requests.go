package transporttest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/transport"
)

func testRequestAnswered(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*100)
			got, err := a.Request(t.Context(), 2, uint8(i), body)
			want := append([]byte{byte(i)}, body...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Request(kind %d) = %d bytes, %v, want %d", i, len(got), err, len(want))
			}
		})
	}
	wg.Wait()
	if got := b.Stats().RequestsHandled; got != 100 {
		t.Errorf("%d requests are counted as handled, want 100", got)
	}
}

type codedError struct{ code byte }

func (codedError) Error() string { return "coded" }

// MarshalWire is how the error travels.
func (e codedError) MarshalWire() []byte { return []byte{e.code} }

func testRequestErrorTravels(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	for _, tt := range []struct {
		name string
		err  error
		want transport.RemoteError
	}{
		{"plain", errors.New("no such group"), transport.RemoteError{Message: "no such group"}},
		{"marshaler", codedError{42}, transport.RemoteError{Message: "coded", Body: []byte{42}}},
		{
			"remote", &transport.RemoteError{Code: 7, Message: "m", Body: []byte("b")},
			transport.RemoteError{Code: 7, Message: "m", Body: []byte("b")},
		},
	} {
		b.onRequest(func(context.Context, uint8, []byte) ([]byte, error) { return nil, tt.err })
		_, err := a.Request(t.Context(), 2, 1, nil)
		got, ok := errors.AsType[*transport.RemoteError](err)
		if !ok || got.Code != tt.want.Code || got.Message != tt.want.Message ||
			!bytes.Equal(got.Body, tt.want.Body) {
			t.Errorf("%s: Request = %#v, want %+v", tt.name, err, tt.want)
		}
		if transport.NotDelivered(err) {
			t.Errorf("%s: NotDelivered(%v) = true", tt.name, err)
		}
	}
	for _, tt := range []struct{ err, want error }{
		{transport.ErrBusy, transport.ErrBusy},
		{transport.ErrUnknown, transport.ErrUnknown},
		{context.DeadlineExceeded, transport.ErrUnknown},
	} {
		b.onRequest(func(context.Context, uint8, []byte) ([]byte, error) { return nil, tt.err })
		if _, err := a.Request(t.Context(), 2, 1, nil); !errors.Is(err, tt.want) {
			t.Errorf("handler returns %v: Request = %v, want %v", tt.err, err, tt.want)
		}
	}
}

func testRequestDeadlineTravels(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	left := make(chan time.Duration, 1)
	ended := make(chan error, 1)
	b.onRequest(func(ctx context.Context, _ uint8, _ []byte) ([]byte, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	const limit = 400 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := a.Request(ctx, 2, 1, nil)
	// The handler may be a moment earlier to say that it is over.
	if !errors.Is(err, transport.ErrUnknown) || transport.NotDelivered(err) {
		t.Errorf("Request = %v, want ErrUnknown", err)
	}
	if got := <-left; got > limit {
		t.Errorf("the handler has %v left, want at most %v", got, limit)
	}
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) { // the caller's word may be quicker
		t.Errorf("the handler's context ends with %v", err)
	}
}

func testRequestCancelTravels(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	running := make(chan struct{})
	ended := make(chan error, 1)
	b.onRequest(func(ctx context.Context, _ uint8, _ []byte) ([]byte, error) {
		close(running)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-running
		cancel()
	}()
	_, err := a.Request(ctx, 2, 1, nil)
	if !errors.Is(err, transport.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("Request = %v, want ErrUnknown and Canceled", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ends with %v, want Canceled", err)
	}
}

func testRequestUnreachable(t *testing.T, c *cluster) {
	a, gone := c.add(1), c.add(2)
	gone.stop()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, request := range map[string]func() error{
		"nobody there": func() error { _, err := a.Request(t.Context(), 2, 1, nil); return err },
		"no address":   func() error { _, err := a.Request(t.Context(), 9, 1, nil); return err },
		"itself":       func() error { _, err := a.Request(t.Context(), 1, 1, nil); return err },
		"context over": func() error { _, err := a.Request(over, 2, 1, nil); return err },
	} {
		err := request()
		if !errors.Is(err, transport.ErrUnreachable) || !transport.NotDelivered(err) {
			t.Errorf("%s: Request = %v, want ErrUnreachable", name, err)
		}
	}
	back := c.add(2, func(cfg *transport.Config) { cfg.Boot = 2 })
	eventually(t, "a request succeeds again", func() bool {
		_, err := a.Request(t.Context(), back.id, 1, nil)
		return err == nil
	})
}

func testRequestUnknown(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	running := make(chan struct{})
	ended := make(chan struct{})
	b.onRequest(func(ctx context.Context, _ uint8, _ []byte) ([]byte, error) {
		close(running)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	go func() {
		<-running
		b.stop()
	}()
	_, err := a.Request(t.Context(), 2, 1, nil)
	if !errors.Is(err, transport.ErrUnknown) || transport.NotDelivered(err) {
		t.Errorf("Request = %v, want ErrUnknown", err)
	}
	<-ended
}

func testRequestBusy(t *testing.T, c *cluster) {
	a := c.add(1)
	b := c.add(2, func(cfg *transport.Config) { cfg.MaxRequestsPerPeer = 4 })
	d := c.add(3, func(cfg *transport.Config) { cfg.MaxRequestsPerPeer = 2 })
	b.onRequest(func(context.Context, uint8, []byte) ([]byte, error) {
		<-b.released
		return nil, nil
	})
	const total = 20
	ask := func(from *node) (busy, done int) {
		results := make(chan error, total)
		for range total {
			go func() {
				_, err := from.Request(t.Context(), 2, 1, nil)
				results <- err
			}()
		}
		released := false
		for i := range total {
			switch err := <-results; {
			case errors.Is(err, transport.ErrBusy) && transport.NotDelivered(err):
				busy++
			case err == nil:
				done++
			default:
				t.Errorf("Request = %v, want nil or ErrBusy", err)
			}
			if !released && i+1 >= total-4 {
				released = true
				b.release()
			}
		}
		return busy, done
	}
	if busy, done := ask(a); busy < total-4 || done < 1 {
		t.Errorf("%d refused and %d answered, want 16 refused by the peer", busy, done)
	}
	// The caller has a bound of its own.
	_, _ = ask(d)
	if got := b.Stats().RequestsBusy; got < total-4 {
		t.Errorf("%d requests are counted as refused, want %d", got, total-4)
	}
}

func testRequestTooLarge(t *testing.T, c *cluster) {
	small := func(cfg *transport.Config) { cfg.MaxFrameBytes = 64 << 10 }
	a, b := c.add(1), c.add(2, small)
	_, err := a.Request(t.Context(), 2, 1, make([]byte, 64<<10))
	if !errors.Is(err, transport.ErrTooLarge) || !transport.NotDelivered(err) {
		t.Errorf("Request = %v, want ErrTooLarge because of the peer's limit", err)
	}
	_, err = b.Request(t.Context(), 1, 1, make([]byte, 64<<10))
	if !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Request = %v, want ErrTooLarge because of the own limit", err)
	}
	a.onRequest(func(context.Context, uint8, []byte) ([]byte, error) {
		return make([]byte, 64<<10), nil
	})
	_, err = b.Request(t.Context(), 1, 1, nil)
	if _, ok := errors.AsType[*transport.RemoteError](err); !ok {
		t.Errorf("Request with a large answer = %v, want a RemoteError", err)
	}
}
