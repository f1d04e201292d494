package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/raftyard/raftyard"
)

// Transport is a node's end of the network. Its methods are safe for concurrent
// use.
type Transport struct {
	cfg       Config
	self      Identity
	listener  net.Listener
	log       *limitedLog
	count     counters
	admission admission
	reporter  *reporter
	gate      requestGate // requests of peers that are being handled

	snapshotsOut, snapshotsIn chan struct{} // slots
	rateOut, rateIn           *rate.Limiter

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine of the transport

	mu     sync.Mutex
	closed bool
	peers  map[raftyard.NodeID]*peer
	conns  map[net.Conn]struct{} // that peers have dialled, also before the handshake
}

// TCP is a [Transport] over TCP sockets, as [Listen] returns it.
type TCP = Transport

// MemoryEndpoint is a [Transport] over a [Memory] network. It is the same code
// over other sockets.
type MemoryEndpoint = Transport

const logInterval = time.Minute

// Listen begins to take connections. Connections to peers are made as they are
// needed.
func Listen(cfg Config) (*TCP, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		if cfg.Listener != nil {
			closeQuietly(cfg.Listener)
		}
		return nil, err
	}
	listener := cfg.Listener
	if listener == nil {
		// Keep-alive of TCP is off: see dialTCP.
		lc := net.ListenConfig{KeepAlive: -1}
		l, err := lc.Listen(context.Background(), "tcp", cfg.Listen)
		if err != nil {
			return nil, fmt.Errorf("transport: %w", err)
		}
		listener = l
	}
	return start(cfg, listener), nil
}

func start(cfg Config, listener net.Listener) *Transport {
	ctx, cancel := context.WithCancel(context.Background())
	if cfg.Process == uuid.Nil {
		cfg.Process = uuid.New()
	}
	t := &Transport{
		cfg:      cfg,
		self:     cfg.Identity,
		listener: listener,
		log:      newLimitedLog(cfg.Logger, logInterval),
		admission: admission{
			perNode: cfg.MaxConnectionsPerPeer,
			total:   cfg.MaxConnections,
			members: make(map[raftyard.NodeID]*member),
		},
		reporter:     newReporter(cfg.UnreachableInterval, cfg.Handler.HandleUnreachable),
		gate:         requestGate{maxCount: cfg.MaxRequests, maxBytes: cfg.MaxRequestBytes},
		snapshotsOut: make(chan struct{}, cfg.MaxSnapshotsOut),
		snapshotsIn:  make(chan struct{}, cfg.MaxSnapshotsIn),
		rateOut:      snapshotLimiter(cfg.SnapshotBytesPerSecond),
		rateIn:       snapshotLimiter(cfg.SnapshotBytesPerSecond),
		ctx:          ctx,
		cancel:       cancel,
		peers:        make(map[raftyard.NodeID]*peer),
		conns:        make(map[net.Conn]struct{}),
	}
	t.wg.Go(t.accept)
	t.wg.Go(func() { t.reporter.run(ctx) })
	t.wg.Go(func() { t.log.run(ctx) })
	return t
}

// Addr returns the address that connections are taken at.
func (t *Transport) Addr() net.Addr { return t.listener.Addr() }

// Connect asks for a connection to a node to be made, and kept, though nothing
// is to be sent yet: that it stands is how nodes know of each other.
func (t *Transport) Connect(node raftyard.NodeID) {
	if p := t.peer(node); p != nil {
		p.queue.poke()
	}
}

// Disconnect gives a node up that is not to be talked to any more: the connections to it
// end, and what waits for them is lost. It does not wait for that. Connections that the
// node has dialled end when [Config.Admit] refuses it, at the next ping. Connect, and
// whatever else is for the node, begins anew.
func (t *Transport) Disconnect(node raftyard.NodeID) {
	t.mu.Lock()
	p := t.peers[node]
	delete(t.peers, node)
	t.mu.Unlock()
	if p != nil {
		p.cancel()
	}
}

// Send queues envelopes for the nodes in their To. It never blocks. An envelope
// that no peer would accept, or that its queue has no room for, is dropped and
// counted; the handler is told of the latter. The slice is the caller's again when Send
// returns.
func (t *Transport) Send(batch []Envelope) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].To.Node == batch[0].To.Node {
			n++
		}
		t.sendTo(batch[0].To.Node, batch[:n])
		batch = batch[n:]
	}
}

func (t *Transport) sendTo(node raftyard.NodeID, batch []Envelope) {
	checked := batch
	for i := range batch {
		why := t.checkOutgoing(&batch[i])
		if why == dropNothing {
			if len(checked) < len(batch) {
				checked = append(checked, batch[i])
			}
			continue
		}
		if len(checked) == len(batch) {
			checked = append(make([]Envelope, 0, len(batch)-1), batch[:i]...)
		}
		t.discard(nil, &batch[i], why)
	}
	if len(checked) == 0 {
		return
	}
	p := t.peer(node)
	if p == nil {
		for i := range checked {
			t.discard(nil, &checked[i], DropClosed)
		}
		return
	}
	p.send(checked)
}

func (t *Transport) checkOutgoing(env *Envelope) Reason {
	to := env.To.Node
	if to == 0 || to == t.self.Node {
		return DropWrongNode
	}
	if why := checkEnvelope(env, t.self.Node, to); why != dropNothing {
		return why
	}
	if sizeEnvelope(env)+batchOverhead > t.cfg.MaxFrameBytes {
		return DropOversized
	}
	if len(env.Message.GetEntries()) > maxEntries {
		return DropOversized
	}
	for _, ids := range confIDs(env.Message) {
		if len(ids) > maxConfIDs {
			return DropOversized
		}
	}
	return dropNothing
}

// discard counts an envelope that will not be delivered, and has it reported.
func (t *Transport) discard(p *peer, env *Envelope, why Reason) {
	t.count.dropped[why].Add(1)
	t.count.droppedTypes[typeIndex(env)].Add(1)
	if p != nil {
		p.dropped.Add(1)
	}
	switch why {
	case DropClosed:
	case DropQueueFull, DropUnreachable, DropInjectedFault:
		t.reporter.add(env)
	default:
		// Sending it again would end in the same way, but raft must not wait for it.
		t.reporter.add(env)
		t.log.warn("envelope not sent", uint64(why), slog.String("reason", why.String()),
			slog.Uint64("group", uint64(env.Group)), slog.Uint64("to_node", uint64(env.To.Node)),
			slog.String("type", env.Message.GetType().String()))
	}
}

// peer returns the peer, which it makes if need be, or nil after Close.
func (t *Transport) peer(node raftyard.NodeID) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	p := t.peers[node]
	if p == nil {
		p = newPeer(t, node)
		t.peers[node] = p
	}
	return p
}

// Peers returns the state of every node that something was sent to, by id.
func (t *Transport) Peers() []PeerStatus {
	t.mu.Lock()
	peers := make([]*peer, 0, len(t.peers))
	for _, p := range t.peers {
		peers = append(peers, p)
	}
	t.mu.Unlock()
	status := make([]PeerStatus, 0, len(peers))
	for _, p := range peers {
		status = append(status, p.status())
	}
	slices.SortFunc(status, func(a, b PeerStatus) int { return cmp.Compare(a.Node, b.Node) })
	return status
}

// Close ends all connections and waits until no goroutine is left and no method
// of the handler is running. Requests and snapshots that are under way end with
// an error. It takes as long as the handler's methods, and the logger's, take to
// return, whether or not peers answer. Calls after the first do nothing.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.wg.Wait()
		return nil
	}
	t.closed = true
	t.cancel()
	err := t.listener.Close()
	for c := range t.conns {
		closeQuietly(c)
	}
	t.mu.Unlock()
	t.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("transport: close listener: %w", err)
	}
	return nil
}

// closeQuietly closes what has already failed, or is not wanted any more: there
// is nothing to be done about an error.
func closeQuietly(c io.Closer) { _ = c.Close() }

// sleep waits for d, or until ctx ends; it reports whether it has waited.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
