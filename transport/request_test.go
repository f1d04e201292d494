package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestAnswersAreBounded: what a peer does not read counts until it is written. It
// gets half of the room; what does not fit is dropped, and its caller told so.
func TestAnswersAreBounded(t *testing.T) {
	const size, room, requests = 900 << 10, 16 << 20, 64
	s := newSink()
	s.request = func(context.Context) ([]byte, error) { return make([]byte, size), nil }
	tr := listenTCP(t, 2, s, nil, func(c *Config) {
		c.DeadAfter, c.MaxRequestBytes, c.MaxFrameBytes = time.Minute, room, 1<<20
	})
	p := dialRaw(t, tr.Addr().String(), 1, ClassRequest)
	for id := range uint64(requests) {
		p.send(t, frameRequest, appendRequest(nil, &request{id: id, left: time.Hour}))
	}
	counted := func() int64 {
		tr.gate.mu.Lock()
		defer tr.gate.mu.Unlock()
		return tr.gate.bytes
	}
	eventually(t, "all are handled, and count", func() bool {
		st := tr.Stats()
		return st.RequestsHandled+st.RequestsBusy == requests && counted() >= room/4
	})
	if st := tr.Stats(); st.RequestBytes != counted() || st.RequestsServing == 0 {
		t.Errorf("%d requests of %d bytes are served, %d bytes count",
			st.RequestsServing, st.RequestBytes, counted())
	}
	if held := counted(); held > room/2+size {
		t.Errorf("%d bytes are counted of answers that nobody reads, want about %d", held, room/2)
	}

	// Others have the rest, and the peer gets everything once it reads.
	other := dialRaw(t, tr.Addr().String(), 3, ClassRequest)
	other.send(t, frameRequest, appendRequest(nil, &request{id: 1, left: time.Hour}))
	if a := other.answer(t); a.status != answerOK || len(a.body) != size {
		t.Errorf("another peer's request: status %d, %d bytes", a.status, len(a.body))
	}
	var whole, dropped int
	for range requests {
		switch a := p.answer(t); a.status {
		case answerOK:
			whole++
		case answerUnknown:
			dropped++
		default:
			t.Fatalf("status %d %s", a.status, a.err.Message)
		}
	}
	if whole < 4 || dropped == 0 {
		t.Errorf("%d answers came whole, %d were dropped", whole, dropped)
	}
	if st := tr.Stats(); st.AnswersNoRoom != uint64(dropped) {
		t.Errorf("%d answers are counted as dropped, want %d", st.AnswersNoRoom, dropped)
	}
	eventually(t, "everything is given back", func() bool {
		tr.gate.mu.Lock()
		defer tr.gate.mu.Unlock()
		return tr.gate.count == 0 && tr.gate.bytes == 0
	})
}

// answer reads the next answer.
func (p *rawPeer) answer(t *testing.T) answer {
	t.Helper()
	for {
		typ, body, err := p.frames.read(nil)
		if err != nil {
			t.Fatal(err)
		}
		if typ != frameAnswer {
			continue
		}
		_, a, err := decodeAnswer(body)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// TestBurstOfRefusals: a node may ask for more at a time than its peer handles.
// The rest is refused one by one, and the connection goes on.
func TestBurstOfRefusals(t *testing.T) {
	release := make(chan struct{})
	s := newSink()
	s.request = func(ctx context.Context) ([]byte, error) {
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	const most, requests = 4, 500
	b := listenTCP(t, 2, s, nil, func(c *Config) { c.MaxRequestsPerPeer = most })
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()})
	errs := make(chan error)
	for range requests {
		go func() { _, err := a.Request(t.Context(), 2, 1, []byte("x")); errs <- err }()
	}
	busy := 0
	for i := range requests {
		if i == requests-most {
			close(release)
		}
		switch err := <-errs; {
		case errors.Is(err, ErrBusy):
			busy++
		case err != nil:
			t.Fatalf("after %d refusals: %v", busy, err)
		}
	}
	if refused := b.Stats().RequestsBusy; refused != uint64(busy) {
		t.Errorf("%d are counted as refused, of %d", refused, busy)
	}
	if busy == 0 || b.Stats().BadFrames != 0 {
		t.Errorf("%d were refused, %d bad frames", busy, b.Stats().BadFrames)
	}
}

// TestWhatIsMissingIsCounted: requests for which there is no place are counted apart from
// those for which there are too many bytes.
func TestWhatIsMissingIsCounted(t *testing.T) {
	g := requestGate{maxCount: 2, maxBytes: 100}
	for _, tt := range []struct {
		size        int
		ok, byBytes bool
	}{
		{60, true, false}, {60, false, true}, {40, true, false}, {1, false, false},
	} {
		if ok, byBytes := g.enter(tt.size); ok != tt.ok || byBytes != tt.byBytes {
			t.Errorf("enter(%d) = %t, %t, want %t, %t", tt.size, ok, byBytes, tt.ok, tt.byBytes)
		}
	}
	if count, bytes := g.held(); count != 2 || bytes != 100 {
		t.Errorf("%d of %d bytes are held, want 2 of 100", count, bytes)
	}

	s := newSink()
	s.request = func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	const frame = 1 << 20
	tr := listenTCP(t, 2, s, nil, func(c *Config) {
		c.MaxRequestBytes, c.MaxFrameBytes = frame, frame
	})
	p := dialRaw(t, tr.Addr().String(), 1, ClassRequest)
	for id := range uint64(3) {
		p.send(t, frameRequest, appendRequest(nil, &request{
			id: id, left: time.Hour, body: make([]byte, frame/2-1000),
		}))
	}
	eventually(t, "the third has no room", func() bool {
		st := tr.Stats()
		return st.RequestsServing == 2 && st.RequestsBusy == 1 && st.RequestsNoRoom == 1
	})
}

// TestRequestsThatAreNotQueued: requests beyond those that may wait for a peer are refused
// here, and counted.
func TestRequestsThatAreNotQueued(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	s := newSink()
	s.request = func(context.Context) ([]byte, error) {
		close(began)
		<-release
		return nil, nil
	}
	b := listenTCP(t, 2, s, nil)
	a := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: b.Addr().String()},
		func(c *Config) { c.MaxRequestsPerPeer = 1 })
	first := make(chan error, 1)
	go func() { _, err := a.Request(t.Context(), 2, 1, []byte("x")); first <- err }()
	<-began
	if _, err := a.Request(t.Context(), 2, 1, []byte("x")); !errors.Is(err, ErrBusy) {
		t.Errorf("a second request = %v, want ErrBusy", err)
	}
	if st := a.Stats(); st.RequestsNotQueued != 1 {
		t.Errorf("%d are counted as not queued, want 1", st.RequestsNotQueued)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
