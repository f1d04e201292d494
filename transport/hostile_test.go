package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

func TestUnparsableFrameEndsTheConnection(t *testing.T) {
	s := newSink()
	tr := listenTCP(t, 2, s, nil)
	damaged := appendFrame(nil, frameEnvelopes, []byte("x"))
	damaged[len(damaged)-1]++
	oversized := beginFrame(nil, frameEnvelopes)
	binary.BigEndian.PutUint32(oversized, 17<<20)
	binary.BigEndian.PutUint16(oversized[6:], headSum(oversized))
	tests := []struct {
		name  string
		class Class
		bytes []byte
	}{
		{"garbage", ClassRaft, bytes.Repeat([]byte("garbage "), 10)},
		{"checksum", ClassRaft, damaged},
		{"oversized", ClassRaft, oversized},
		{"batch", ClassRaft, appendFrame(nil, frameEnvelopes, []byte("no batch"))},
		{"type", ClassRaft, appendFrame(nil, frameRequest, nil)},
		{"unknown type", ClassRaft, appendFrame(nil, 77, nil)},
		{"ping", ClassRaft, appendFrame(nil, framePing, []byte("short"))},
		{"request", ClassRequest, appendFrame(nil, frameRequest, []byte{0xff})},
		{"cancel", ClassRequest, appendFrame(nil, frameCancel, nil)},
		{"request ping", ClassRequest, appendFrame(nil, framePing, nil)},
		{"envelopes as request", ClassRequest, appendFrame(nil, frameEnvelopes, nil)},
		{"snapshot", ClassSnapshot, appendFrame(nil, frameSnapshot, []byte{1})},
		{"chunk first", ClassSnapshot, appendFrame(nil, frameChunk, make([]byte, 100))},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := dialRaw(t, tr.Addr().String(), raftyard.NodeID(10+i), tt.class)
			if _, err := p.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			p.closed(t)
			eventually(t, "it is counted", func() bool {
				return tr.Stats().BadFrames >= uint64(i+1)
			})
		})
	}
	if got := s.count(); got != 0 {
		t.Errorf("the handler has got %d envelopes", got)
	}
}

func TestForgedEnvelopesAreNotLetThrough(t *testing.T) {
	s := newSink()
	tr := listenTCP(t, 2, s, nil)
	p := dialRaw(t, tr.Addr().String(), 1, ClassRaft)
	good := appendEnvelopeOf(t, raftpb.MsgApp)
	storage := appendEnvelopeOf(t, raftpb.MsgApp)
	context := appendEnvelopeOf(t, raftpb.MsgHeartbeatResp)
	storage.Message.Type = raftpb.MsgStorageAppendResp.Enum()
	context.Message.Context = []byte{1, 2, 3}
	thread := appendEnvelopeOf(t, raftpb.MsgAppResp)
	thread.From.Replica = ^raftyard.ReplicaID(0)
	unknown := appendEnvelopeOf(t, raftpb.MsgApp)
	unknown.Message.Type = raftpb.MessageType(99).Enum()

	p.send(t, frameEnvelopes, appendBatch(nil, 1, 2,
		[]Envelope{storage, good, context, thread, unknown}))
	p.send(t, frameEnvelopes, appendBatch(nil, 3, 2, []Envelope{good}))
	p.send(t, frameEnvelopes, appendBatch(nil, 1, 4, []Envelope{good}))
	p.answers(t)
	if got := s.count(); got != 1 {
		t.Errorf("the handler has got %d envelopes, want the good one", got)
	}
	by := tr.Stats().RefusedBy
	for reason, want := range map[string]uint64{
		"message_type": 2, "context": 1, "replica_id": 1, "wrong_node": 2,
	} {
		if by[reason] != want {
			t.Errorf("%d are refused for %s, want %d", by[reason], reason, want)
		}
	}
}

func TestConnectionWithoutHandshakeIsClosed(t *testing.T) {
	tr := listenTCP(t, 2, newSink(), nil,
		func(c *Config) { c.DialTimeout = 100 * time.Millisecond })
	for _, first := range []string{"", "raftyard", "GET / HTTP/1.1\r\n\r\n"} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tr.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		if err = c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = c.Read(make([]byte, 100))
		if ne, ok := errors.AsType[net.Error](err); err == nil || ok && ne.Timeout() {
			t.Errorf("after %q: %v, want the connection closed", first, err)
		}
		closeQuietly(c)
	}
}

// TestPeerThatDoesNotRead has one peer that takes connections and reads
// nothing. Sending must not block, the queue must keep its bound, another peer
// must get everything, the silence must be noticed, and Close must end.
func TestPeerThatDoesNotRead(t *testing.T) {
	const bound = 4 << 20
	s2 := newSink()
	book := make(map[raftyard.NodeID]string)
	good := listenTCP(t, 2, s2, nil)
	book[2] = good.Addr().String()
	book[3] = acceptRaw(t, 3, func(*rawPeer) {})
	s1 := newSink()
	tr := listenTCP(t, 1, s1, book, func(c *Config) {
		c.MaxQueueBytes, c.MaxFrameBytes = bound, 1<<20
		c.DeadAfter = 2 * time.Second // by which time the queue is full
	})
	bulk := func(to raftyard.NodeID, n int) Envelope {
		env := numbered(t, raftpb.MsgApp, n)
		env.To.Node = to
		env.Message.Entries[0].Data = make([]byte, 100<<10)
		return env
	}
	worst := time.Duration(0)
	for n := range 400 {
		began := time.Now()
		tr.Send([]Envelope{bulk(3, n)})
		worst = max(worst, time.Since(began))
	}
	if worst > time.Second {
		t.Errorf("one Send has taken %v", worst)
	}
	beat := numbered(t, raftpb.MsgHeartbeat, 0)
	eventually(t, "the other peer gets its messages", func() bool {
		tr.Send([]Envelope{beat})
		return s2.count() > 10
	})
	for _, p := range tr.Peers() {
		if p.QueueBytes > bound {
			t.Errorf("%d bytes wait for node %d, more than the bound", p.QueueBytes, p.Node)
		}
	}
	if tr.Stats().DroppedBy["queue_full"] == 0 {
		t.Error("40 MB have found room in a queue of 4")
	}
	eventually(t, "the peer is given up", func() bool {
		for _, p := range tr.Peers() {
			if p.Node == 3 && p.LastError != nil {
				return true
			}
		}
		return false
	})
	began := time.Now()
	if err := tr.Close(); err != nil || time.Since(began) > 2*time.Second {
		t.Errorf("Close = %v, after %v", err, time.Since(began))
	}
}

// TestPeerThatGoesSilent has a peer that reads on but answers no ping any more:
// to the sender it looks like the other end of a half-open connection.
func TestPeerThatGoesSilent(t *testing.T) {
	var silent atomic.Bool
	book := map[raftyard.NodeID]string{3: acceptRaw(t, 3, func(p *rawPeer) {
		for {
			typ, body, err := p.frames.read(nil)
			if err != nil {
				return
			}
			if typ == framePing && !silent.Load() {
				if _, err := p.Write(appendFrame(nil, framePong, body)); err != nil {
					return
				}
			}
		}
	})}
	s := newSink()
	tr := listenTCP(t, 1, s, book)
	env := numbered(t, raftpb.MsgApp, 0)
	env.To.Node = 3
	tr.Send([]Envelope{env})
	eventually(t, "a round trip is measured", func() bool { return tr.Peers()[0].RTT > 0 })
	began := time.Now()
	silent.Store(true)
	tr.Send([]Envelope{env}) // which may be lost
	eventually(t, "the silence is noticed", func() bool { return !s.isUp(3) })
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("noticed after %v, want little more than 400ms", d)
	}
	eventually(t, "what may be lost is reported", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.dropped) > 0
	})
}

// TestDiallerThatGoesSilent is the other half: what a node reads from.
func TestDiallerThatGoesSilent(t *testing.T) {
	tr := listenTCP(t, 2, newSink(), nil)
	for _, class := range []Class{ClassRaft, ClassRequest, ClassSnapshot} {
		dialRaw(t, tr.Addr().String(), 1, class).closed(t)
	}
	eventually(t, "nothing is left", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.conns) == 0
	})
}

// TestSnapshotDoesNotDelayHeartbeats stops a receiver in the middle of a
// snapshot, with the sockets full, and demands that heartbeats pass.
func TestSnapshotDoesNotDelayHeartbeats(t *testing.T) {
	s2 := newSink()
	begun, resume := make(chan struct{}), make(chan struct{})
	s2.snapshot = func(_ context.Context, body io.Reader) error {
		if _, err := io.CopyN(io.Discard, body, 1); err != nil {
			return err
		}
		close(begun)
		<-resume
		_, err := io.Copy(io.Discard, body)
		return err
	}
	tr2 := listenTCP(t, 2, s2, nil)
	tr := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: tr2.Addr().String()},
		func(c *Config) { c.SnapshotBytesPerSecond = -1 })
	const size = 32 << 20 // more than sockets hold
	done := make(chan error, 1)
	go func() {
		done <- tr.SendSnapshot(t.Context(), appendEnvelopeOf(t, raftpb.MsgSnap),
			bytes.NewReader(make([]byte, size)))
	}()
	<-begun
	last := uint64(0)
	eventually(t, "the snapshot stands still", func() bool {
		now := tr.Stats().SnapshotBytesSent
		stands := now == last && now > 0
		last = now
		return stands
	})
	for n := range 200 {
		tr.Send([]Envelope{numbered(t, raftpb.MsgHeartbeat, n)})
	}
	eventually(t, "heartbeats pass", func() bool { return s2.count() == 200 })
	if got := tr.Stats().SnapshotBytesSent; got >= size {
		t.Errorf("the snapshot of %d bytes was sent meanwhile, which shows nothing", got)
	}
	// It outlasts DeadAfter, because the receiver pings.
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	select {
	case err := <-done:
		t.Errorf("SendSnapshot = %v while the handler stands still", err)
	case <-ctx.Done():
	}
	close(resume)
	if err := <-done; err != nil {
		t.Errorf("SendSnapshot = %v", err)
	}
}

// spoiled is a connection whose written bytes are damaged, or cut, at a place.
type spoiled struct {
	net.Conn
	at      int
	cut     bool
	written int
	total   *atomic.Int64 // what was written, as far as it was
}

func (c *spoiled) Write(p []byte) (int, error) {
	i := c.at - c.written
	if i < 0 || i >= len(p) {
		n, err := c.Conn.Write(p)
		c.written += n
		c.total.Store(int64(c.written))
		return n, err
	}
	if c.cut {
		n, err := c.Conn.Write(p[:i])
		closeQuietly(c.Conn)
		return n, errors.Join(err, io.ErrShortWrite)
	}
	q := bytes.Clone(p)
	q[i] ^= 0x10
	n, err := c.Conn.Write(q)
	c.written += n
	return n, err
}

// TestDamagedSnapshotHasNoCleanEnd damages or cuts the stream at many places.
func TestDamagedSnapshotHasNoCleanEnd(t *testing.T) {
	s2 := newSink()
	var clean atomic.Int32
	s2.snapshot = func(_ context.Context, body io.Reader) error {
		_, err := io.ReadAll(body)
		if err == nil {
			clean.Add(1)
		}
		return err
	}
	tr2 := listenTCP(t, 2, s2, nil)
	var place, total atomic.Int64
	var cut atomic.Bool
	tr := listenTCP(t, 1, newSink(), map[raftyard.NodeID]string{2: tr2.Addr().String()},
		func(c *Config) {
			c.PingInterval = 100 * time.Millisecond // no ping moves the place
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := dialTCP(ctx, addr)
				s := &spoiled{Conn: conn, at: int(place.Load()), cut: cut.Load(), total: &total}
				return s, err
			}
		})
	data := bytes.Repeat([]byte("snapshot"), 75_000) // three chunks
	send := func() error {
		env := appendEnvelopeOf(t, raftpb.MsgSnap)
		return tr.SendSnapshot(t.Context(), env, bytes.NewReader(data))
	}
	place.Store(1 << 40)
	if err := send(); err != nil || clean.Load() != 1 {
		t.Fatalf("undamaged: %v", err)
	}
	end := total.Load()
	for _, at := range []int64{
		150, 180, 230, 300, 1000, 262_500, 500_000, end - 60, end - 46, end - 40, end - 33, end - 1,
	} {
		for _, c := range []bool{false, true} {
			place.Store(at)
			cut.Store(c)
			if err := send(); err == nil {
				t.Errorf("byte %d (cut: %t): no error", at, c)
			}
		}
	}
	if got := clean.Load(); got != 1 {
		t.Errorf("%d damaged streams have ended cleanly", got-1)
	}
}

// TestReconnectStormLeavesNothing breaks the connections between two nodes many
// times, and restarts one of them, and counts what is left.
func TestReconnectStormLeavesNothing(t *testing.T) {
	m := NewMemory(1)
	s1, s2 := newSink(), newSink()
	start := func(node raftyard.NodeID, boot uint64, h Handler) *Transport {
		id := testIdentity(node)
		id.Boot = boot
		tr, err := m.Endpoint(Config{
			Identity: id, Handler: h,
			MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	tr1, tr2 := start(1, 1, s1), start(2, 1, s2)
	defer func() { closeQuietly(tr1); closeQuietly(tr2) }()
	alive := func() bool {
		tr1.Send([]Envelope{numbered(t, raftpb.MsgHeartbeat, 0)})
		_, err := tr1.Request(t.Context(), 2, 1, nil)
		return err == nil && s1.isUp(2)
	}
	eventually(t, "the peer is up", alive)
	before := runtime.NumGoroutine()
	for n := range 100 {
		m.Reset(1, 2)
		if n%10 == 0 {
			closeQuietly(tr2)
			tr2 = start(2, uint64(n+2), s2)
		}
		eventually(t, "the peer is up again", alive)
	}
	eventually(t, "goroutines are as many as before", func() bool {
		return runtime.NumGoroutine() <= before+3
	})
	tr1.admission.mu.Lock()
	if n := len(tr1.admission.members[2].conns); n > 3 {
		t.Errorf("%d connections are remembered", n)
	}
	tr1.admission.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr, l := range m.listeners {
		if len(l.conns) > 3 {
			t.Errorf("%d connections to %s are open", len(l.conns), addr)
		}
	}
}

// TestRequesterThatDoesNotReadAnswers must not make the node keep them all.
func TestRequesterThatDoesNotReadAnswers(t *testing.T) {
	s := newSink()
	s.request = func(context.Context) ([]byte, error) { return make([]byte, 512<<10), nil }
	tr := listenTCP(t, 2, s, nil, func(c *Config) { c.MaxRequestsPerPeer = 8 })
	p := dialRaw(t, tr.Addr().String(), 1, ClassRequest)
	for id := range uint64(1000) {
		body := appendRequest(nil, &request{id: id, left: time.Hour})
		frame := appendFrame(nil, frameRequest, body)
		if _, err := p.Write(frame); err != nil {
			break // it was thrown out
		}
	}
	eventually(t, "the connection is closed", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.conns) == 0
	})
	tr.gate.mu.Lock()
	defer tr.gate.mu.Unlock()
	if tr.gate.count != 0 || tr.gate.bytes != 0 {
		t.Errorf("the gate counts %d requests of %d bytes", tr.gate.count, tr.gate.bytes)
	}
}

// TestRestartAfterPowerLoss: a machine was switched off, so that nothing has closed its
// connections, and comes back. It is let in when the old ones have been silent for
// DeadAfter, and not before: they could be those of a process that runs.
func TestRestartAfterPowerLoss(t *testing.T) {
	tr := listenTCP(t, 2, newSink(), nil)
	addr := tr.Addr().String()
	old := dialRaw(t, addr, 1, ClassRaft)
	old.answers(t)
	later := processOf(1)
	later.Boot, later.Process = 2, [16]byte{9}
	began := time.Now()
	var ref *RefusalError
	eventually(t, "the later start is let in", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer closeQuietly(c)
		h := hello{
			minVersion: 1, maxVersion: 1, class: ClassRaft, expect: 2, addr: addr,
			maxFrame: 1 << 20, from: later,
		}
		if err = writeHandshake(c, frameHello, encodeHello(&h), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		typ, body, err := readHandshake(c, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if typ == frameRefusal {
			if ref, err = decodeRefusal(body); err != nil || ref.Code != RefusedClone {
				t.Fatalf("refused for %v, %v", ref, err)
			}
		}
		return typ == frameWelcome
	})
	if ref == nil || time.Since(began) < tr.cfg.DeadAfter/2 {
		t.Errorf("let in after %v; refused before: %v", time.Since(began), ref)
	}
}
