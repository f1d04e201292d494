package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
)

// Memory is a network inside the process, for tests: a [Transport] whose sockets
// are in memory runs the same code as one over TCP, handshake, frames, pings and
// all. Faults are set for what one node sends to another. Two kinds of them:
//
//   - Cut, Isolate and SetDelay act on connections, as the network would: while
//     one is cut nothing passes on it, bytes wait as TCP would let them, dialling
//     takes until DialTimeout, and the ends notice after Config.DeadAfter. A cut
//     from one node to another is of the connections that the one has dialled: what
//     the other sends on its own still arrives, which makes one-way cuts last.
//   - SetLoss, SetDuplicate and SetReorder act on the envelopes of Send, by the
//     network's seeded dice, before they enter a connection. (Requests and
//     snapshots are spared: TCP would deliver them or break.)
//
// Time is that of package time, so a test can run it in a testing/synctest
// bubble. Its methods are safe for concurrent use.
type Memory struct {
	mu        sync.Mutex
	dice      *rand.Rand
	listeners map[string]*memoryListener
	nodes     map[string]raftyard.NodeID // by address
	faults    map[route]*fault
	healed    chan struct{} // closed and replaced when a cut ends
}

// route is one direction between two nodes.
type route struct{ from, to raftyard.NodeID }

// fault is what is wrong with a route.
type fault struct {
	cut                      bool
	delay, jitter            time.Duration
	loss, duplicate, reorder float64
	held                     []Envelope // kept back by reorder
}

// NewMemory returns a network without faults, whose dice are seeded with seed.
func NewMemory(seed uint64) *Memory {
	return &Memory{
		dice:      rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)),
		listeners: make(map[string]*memoryListener),
		nodes:     make(map[string]raftyard.NodeID),
		faults:    make(map[route]*fault),
		healed:    make(chan struct{}),
	}
}

// MemoryAddr is the address of a node for which Config.Listen does not give one.
func MemoryAddr(node raftyard.NodeID) string { return fmt.Sprintf("memory-%d", node) }

// Endpoint adds a node. cfg.Listen may be any text; the default is [MemoryAddr],
// and the default of Resolve finds nodes there. Listener and Dial are not looked
// at. An address can be used again after its endpoint is closed.
func (m *Memory) Endpoint(cfg Config) (*MemoryEndpoint, error) {
	if cfg.Listen == "" {
		cfg.Listen = MemoryAddr(cfg.Node)
	}
	if cfg.Resolve == nil {
		cfg.Resolve = func(node raftyard.NodeID, told string) []string {
			return []string{told, MemoryAddr(node)}
		}
	}
	cfg.Listener = nil
	if err := cfg.withDefaults().Validate(); err != nil {
		return nil, err
	}
	l, err := m.listen(cfg.Listen, cfg.Node)
	if err != nil {
		return nil, err
	}
	cfg.Listener = l
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		return m.dial(ctx, cfg.Node, addr)
	}
	cfg.faults = func(to raftyard.NodeID, batch []Envelope, drop func(*Envelope)) []Envelope {
		return m.inject(route{cfg.Node, to}, batch, drop)
	}
	return Listen(cfg)
}

// Cut lets nothing pass on the connections that from has dialled to to.
func (m *Memory) Cut(from, to raftyard.NodeID) { m.setCut(true, route{from, to}) }

// CutBoth cuts both directions between two nodes.
func (m *Memory) CutBoth(a, b raftyard.NodeID) { m.setCut(true, route{a, b}, route{b, a}) }

// Heal ends the cuts of both directions between two nodes.
func (m *Memory) Heal(a, b raftyard.NodeID) { m.setCut(false, route{a, b}, route{b, a}) }

// Isolate cuts a node off from all others that the network knows.
func (m *Memory) Isolate(node raftyard.NodeID) { m.setCut(true, m.routes(node)...) }

// Rejoin ends all cuts of a node.
func (m *Memory) Rejoin(node raftyard.NodeID) { m.setCut(false, m.routes(node)...) }

// HealAll ends all faults.
func (m *Memory) HealAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.faults {
		*f = fault{held: f.held}
	}
	m.wakeLocked()
}

// Reset breaks every connection between two nodes, at both ends and at once.
func (m *Memory) Reset(a, b raftyard.NodeID) {
	m.mu.Lock()
	var conns []*memoryConn
	for _, l := range m.listeners {
		for c := range l.conns {
			if c.route == (route{a, b}) || c.route == (route{b, a}) {
				conns = append(conns, c)
			}
		}
	}
	m.mu.Unlock()
	for _, c := range conns {
		closeQuietly(c)
	}
}

// SetDelay delays every byte from one node to another, and every answer to it,
// by delay and a random part of up to jitter. Order is kept.
func (m *Memory) SetDelay(from, to raftyard.NodeID, delay, jitter time.Duration) {
	m.change(route{from, to}, func(f *fault) { f.delay, f.jitter = delay, jitter })
}

// SetLoss loses each envelope from one node to another with a probability.
func (m *Memory) SetLoss(from, to raftyard.NodeID, probability float64) {
	m.change(route{from, to}, func(f *fault) { f.loss = probability })
}

// SetDuplicate sends each envelope twice with a probability.
func (m *Memory) SetDuplicate(from, to raftyard.NodeID, probability float64) {
	m.change(route{from, to}, func(f *fault) { f.duplicate = probability })
}

// SetReorder has each envelope overtaken by later ones with a probability.
func (m *Memory) SetReorder(from, to raftyard.NodeID, probability float64) {
	m.change(route{from, to}, func(f *fault) { f.reorder = probability })
}

func (m *Memory) change(r route, set func(*fault)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set(m.faultLocked(r))
}

func (m *Memory) setCut(cut bool, routes ...route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range routes {
		m.faultLocked(r).cut = cut
	}
	m.wakeLocked()
}

func (m *Memory) faultLocked(r route) *fault {
	f := m.faults[r]
	if f == nil {
		f = new(fault)
		m.faults[r] = f
	}
	return f
}

func (m *Memory) routes(node raftyard.NodeID) []route {
	m.mu.Lock()
	defer m.mu.Unlock()
	var routes []route
	for _, other := range m.nodes {
		if other != node {
			routes = append(routes, route{node, other}, route{other, node})
		}
	}
	return routes
}

// wakeLocked has everything that waits for a cut to end look again.
func (m *Memory) wakeLocked() {
	close(m.healed)
	m.healed = make(chan struct{})
	for _, l := range m.listeners {
		for c := range l.conns {
			c.up.wake()
			c.down.wake()
		}
	}
}

// passage returns whether a route is open, and how long bytes take now.
func (m *Memory) passage(r route) (open bool, delay time.Duration, healed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.faults[r]
	if f == nil {
		return true, 0, m.healed
	}
	delay = f.delay
	if f.jitter > 0 {
		delay += time.Duration(m.dice.Int64N(int64(f.jitter)))
	}
	return !f.cut, delay, m.healed
}

// faultInjector changes a batch that is about to be sent. drop is called for
// what is left out.
type faultInjector func(to raftyard.NodeID, batch []Envelope, drop func(*Envelope)) []Envelope

func (m *Memory) inject(r route, batch []Envelope, drop func(*Envelope)) []Envelope {
	out, lost := m.roll(r, batch)
	for i := range lost {
		drop(&lost[i])
	}
	return out
}

// roll lets the dice decide about each envelope. Those that are held back go
// after the next batch; without a next one, the empty batch that ends each burst
// brings them out.
func (m *Memory) roll(r route, batch []Envelope) (out, lost []Envelope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.faults[r]
	if f == nil {
		return batch, nil
	}
	if f.loss == 0 && f.duplicate == 0 && f.reorder == 0 && len(f.held) == 0 {
		return batch, nil
	}
	held := f.held
	f.held = nil
	for i := range batch {
		env := batch[i]
		switch {
		case m.dice.Float64() < f.loss:
			lost = append(lost, env)
			continue
		case m.dice.Float64() < f.reorder:
			f.held = append(f.held, env)
			continue
		}
		out = append(out, env)
		if m.dice.Float64() < f.duplicate {
			out = append(out, env)
		}
	}
	m.dice.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	return append(out, held...), lost
}

var errAddressInUse = errors.New("address is in use")

func (m *Memory) listen(addr string, node raftyard.NodeID) (*memoryListener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[addr] != nil {
		return nil, fmt.Errorf("transport: memory: %s: %w", addr, errAddressInUse)
	}
	l := &memoryListener{
		m: m, addr: addr,
		backlog: make(chan *memoryConn),
		closed:  make(chan struct{}),
		conns:   make(map[*memoryConn]struct{}),
	}
	m.listeners[addr] = l
	m.nodes[addr] = node
	return l, nil
}

var errRefused = errors.New("nobody listens there")

// dial connects a node to an address. While the route is cut it waits.
func (m *Memory) dial(ctx context.Context, from raftyard.NodeID, addr string) (net.Conn, error) {
	for {
		m.mu.Lock()
		l, to := m.listeners[addr], m.nodes[addr]
		m.mu.Unlock()
		r := route{from, to}
		open, _, healed := m.passage(r)
		if open && l == nil {
			return nil, fmt.Errorf("memory: %s: %w", addr, errRefused)
		}
		if open {
			return l.connect(ctx, r)
		}
		select {
		case <-healed:
		case <-ctx.Done():
			return nil, fmt.Errorf("memory: %s: %w", addr, context.Cause(ctx))
		}
	}
}
