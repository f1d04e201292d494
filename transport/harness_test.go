package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
)

// sink is a handler that keeps what it gets.
type sink struct {
	mu        sync.Mutex
	envelopes []Envelope
	arrived   []time.Time
	up        map[raftyard.NodeID]bool
	dropped   []Dropped
	request   func(ctx context.Context) ([]byte, error)
	snapshot  func(ctx context.Context, body io.Reader) error
}

func newSink() *sink { return &sink{up: make(map[raftyard.NodeID]bool)} }

func (s *sink) HandleEnvelopes(_ Identity, batch []Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.envelopes = append(s.envelopes, batch...)
	for range batch {
		s.arrived = append(s.arrived, time.Now())
	}
}

func (s *sink) HandleRequest(
	ctx context.Context, _ Identity, _ uint8, body []byte,
) ([]byte, error) {
	if s.request == nil {
		return body, nil
	}
	return s.request(ctx)
}

func (s *sink) HandleSnapshot(ctx context.Context, _ Identity, _ Envelope, body io.Reader) error {
	if s.snapshot == nil {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	return s.snapshot(ctx, body)
}

func (s *sink) PeerChanged(node raftyard.NodeID, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up[node] = up
}

func (s *sink) HandleUnreachable(_ raftyard.NodeID, dropped []Dropped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, dropped...)
}

func (s *sink) isUp(node raftyard.NodeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up[node]
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.envelopes)
}

// epochs returns the epochs of the envelopes, by which tests number them.
func (s *sink) epochs() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var epochs []uint64
	for i := range s.envelopes {
		epochs = append(epochs, s.envelopes[i].Epoch)
	}
	return epochs
}

func testIdentity(node raftyard.NodeID) Identity {
	return Identity{Cluster: uuid.UUID{1}, Node: node, Store: uuid.UUID{2, byte(node)}, Boot: 1}
}

// processOf is a process that runs as a node.
func processOf(node raftyard.NodeID) Identity {
	id := testIdentity(node)
	id.Process = uuid.UUID{byte(node)}
	return id
}

// listenTCP starts a node on loopback that finds others in book.
func listenTCP(
	t *testing.T, node raftyard.NodeID, h Handler, book map[raftyard.NodeID]string,
	change ...func(*Config),
) *Transport {
	t.Helper()
	cfg := Config{
		Identity: testIdentity(node), Listen: "127.0.0.1:0", Handler: h,
		Resolve:      resolveIn(book),
		PingInterval: 20 * time.Millisecond, DeadAfter: 400 * time.Millisecond,
		MinBackoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		UnreachableInterval: 10 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	tr, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return tr
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// rawPeer is a peer that speaks the protocol by hand.
type rawPeer struct {
	net.Conn
	frames frameReader
}

// dialRaw connects to node 2 and shakes hands as node from.
func dialRaw(t *testing.T, addr string, from raftyard.NodeID, class Class) *rawPeer {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeQuietly(c) })
	h := hello{
		minVersion: 1, maxVersion: 1, class: class, expect: 2, addr: addr, maxFrame: 1 << 20,
		from: processOf(from),
	}
	if err = writeHandshake(c, frameHello, encodeHello(&h), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	typ, body, err := readHandshake(c, 5*time.Second)
	if err != nil || typ != frameWelcome {
		t.Fatalf("handshake = type %d %q, %v", typ, body, err)
	}
	p := &rawPeer{Conn: c, frames: frameReader{r: bufio.NewReader(c), limit: 1 << 20}}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *rawPeer) send(t *testing.T, typ frameType, body []byte) {
	t.Helper()
	if _, err := p.Write(appendFrame(nil, typ, body)); err != nil {
		t.Fatal(err)
	}
}

// closed waits until the node has closed the connection.
func (p *rawPeer) closed(t *testing.T) {
	t.Helper()
	for {
		_, _, err := p.frames.read(nil)
		if err == nil {
			continue
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Error("the connection is not closed")
		}
		return
	}
}

// answers makes sure that the connection still works.
func (p *rawPeer) answers(t *testing.T) {
	t.Helper()
	p.send(t, framePing, make([]byte, pingBody))
	if typ, _, err := p.frames.read(nil); err != nil || typ != framePong {
		t.Errorf("ping is answered by type %d, %v", typ, err)
	}
}

// acceptRaw takes connections as a node, and gives them to serve after the
// handshake. It ends with the test.
func acceptRaw(t *testing.T, node raftyard.NodeID, serve func(p *rawPeer)) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				if _, _, err := readHandshake(c, 5*time.Second); err != nil {
					return
				}
				w := welcome{
					version: 1, maxFrame: 16 << 20,
					from: processOf(node),
				}
				err := writeHandshake(c, frameWelcome, encodeWelcome(&w), 5*time.Second)
				if err == nil && c.SetDeadline(time.Time{}) == nil {
					serve(&rawPeer{
						Conn: c, frames: frameReader{r: bufio.NewReader(c), limit: 16 << 20},
					})
				}
			})
		}
	})
	t.Cleanup(func() {
		closeQuietly(l)
		mu.Lock()
		for _, c := range conns {
			closeQuietly(c)
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}
