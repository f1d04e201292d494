package simnet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
	"github.com/raftyard/raftyard/transport"
)

// An Endpoint is one start of a node, as the network knows it. It is what a node has
// in place of a [transport.Transport].
type Endpoint struct {
	net     *Network
	st      *turns.Station
	id      transport.Identity
	handler transport.Handler
	cfg     transport.Config

	conns  []*conn                                // by peer, in the order of ids
	seen   map[raftyard.NodeID]transport.Identity // who has presented itself
	told   map[raftyard.NodeID]string             // where they say that they are
	closed bool

	ctx      context.Context // ends with the endpoint
	cancel   context.CancelFunc
	serving  int // requests and snapshots that handlers work on
	sending  int // snapshots that are sent
	taking   int // snapshots that are received
	inbox    []delivery
	notices  []func(transport.Handler)
	helpers  int // processes that deliver
	reports  []*report
	requests uint64
}

// delivery is a batch that has arrived.
type delivery struct {
	from  transport.Identity
	batch []transport.Envelope
}

// Address is where a node listens if it has said nothing else.
func Address(node raftyard.NodeID) string { return fmt.Sprintf("sim:%d", node) }

// at returns who listens at an address, or nil.
func (n *Network) at(addr string) *Endpoint {
	for _, id := range n.nodeIDs() {
		if e := n.ends[id]; e.cfg.Listen == addr {
			return e
		}
	}
	return nil
}

// Listen connects a start of a node to the network, at the address that it is
// configured with. Those who look for a node look where their Resolve says that it is.
func (n *Network) Listen(st *turns.Station, cfg transport.Config) *Endpoint {
	e := &Endpoint{
		net: n, st: st, id: cfg.Identity, handler: cfg.Handler, cfg: cfg,
		seen: make(map[raftyard.NodeID]transport.Identity),
		told: make(map[raftyard.NodeID]string),
	}
	if e.cfg.MaxSnapshotsIn == 0 {
		e.cfg.MaxSnapshotsIn = 4
	}
	if e.cfg.MaxSnapshotsOut == 0 {
		e.cfg.MaxSnapshotsOut = 4
	}
	e.cfg.Listen = cmp.Or(cfg.Listen, Address(e.id.Node))
	if cfg.Resolve == nil {
		e.cfg.Resolve = func(id raftyard.NodeID, told string) []string {
			return []string{told, Address(id)}
		}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	n.ends[e.id.Node] = e
	e.helpers = 2
	st.Go("network", e.deliver)
	st.Go("network notices", e.tell)
	n.event(e.id.Node, "listens", 0, "")
	return e
}

// Crash takes a node off the network, as when its machine loses power: what it has
// sent still arrives.
func (n *Network) Crash(node raftyard.NodeID) {
	if e := n.ends[node]; e != nil {
		e.gone()
	}
}

// gone ends the endpoint for everybody else.
func (e *Endpoint) gone() {
	if e.closed {
		return
	}
	e.closed = true
	e.cancel()
	delete(e.net.ends, e.id.Node)
	for _, id := range e.net.nodeIDs() {
		other := e.net.ends[id]
		if c := other.known(e.id.Node); c != nil && c.state == up && c.remote == e {
			c.reset()
		}
	}
}

// nodeIDs are the nodes that listen, in order.
func (n *Network) nodeIDs() []raftyard.NodeID {
	ids := make([]raftyard.NodeID, 0, len(n.ends))
	for id := range n.ends {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// deliver gives envelopes to the handler.
func (e *Endpoint) deliver() {
	defer func() { e.helpers-- }()
	for {
		e.st.Until(func() bool { return len(e.inbox) > 0 || e.closed })
		if e.closed {
			return
		}
		d := e.inbox[0]
		e.inbox = slices.Delete(e.inbox, 0, 1)
		e.handler.HandleEnvelopes(d.from, d.batch)
	}
}

// tell tells the handler of peers and of what was lost.
func (e *Endpoint) tell() {
	defer func() { e.helpers-- }()
	for {
		e.st.Until(func() bool { return len(e.notices) > 0 || e.closed })
		if e.closed {
			return
		}
		fn := e.notices[0]
		e.notices = slices.Delete(e.notices, 0, 1)
		fn(e.handler)
	}
}

func (e *Endpoint) notify(fn func(transport.Handler)) {
	if !e.closed {
		e.notices = append(e.notices, fn)
		e.st.Touch()
	}
}

func (e *Endpoint) peerChanged(node raftyard.NodeID, isUp bool) {
	e.notify(func(h transport.Handler) { h.PeerChanged(node, isUp) })
}

// introduce has two endpoints judge each other's identity, as a handshake does.
func introduce(a, b *Endpoint) error {
	if err := b.judge(a.id); err != nil {
		return err
	}
	if err := a.judge(b.id); err != nil {
		return err
	}
	a.meet(b)
	b.meet(a)
	return nil
}

// meet hears who another endpoint is, and where.
func (e *Endpoint) meet(other *Endpoint) {
	e.seen[other.id.Node] = other.id
	if at := other.cfg.Advertise; at != "" {
		e.told[other.id.Node] = at
	}
}

// judge says whether id may be the process that the node has now.
func (e *Endpoint) judge(id transport.Identity) error {
	if e.cfg.Admit != nil {
		if ref := e.cfg.Admit(id); ref != nil {
			return ref
		}
	}
	before, known := e.seen[id.Node]
	if !known {
		return nil
	}
	c := e.known(id.Node)
	connected := c != nil && c.state == up && c.remote.id == before
	switch {
	case before.Store != id.Store && connected:
		return &transport.RefusalError{Code: transport.RefusedClone, Text: "another store"}
	case before.Store == id.Store && id.Boot < before.Boot:
		return &transport.RefusalError{
			Code: transport.RefusedStale,
			Text: fmt.Sprintf("node %d has been seen at start %d, not %d",
				id.Node, before.Boot, id.Boot),
		}
	case before != id && connected:
		c.fail(errReset) // another start: the old one is dead
	}
	return nil
}

// known returns the connection to a peer if there was ever one wanted.
func (e *Endpoint) known(to raftyard.NodeID) *conn {
	i, ok := slices.BinarySearchFunc(e.conns, to,
		func(c *conn, to raftyard.NodeID) int { return int(c.to) - int(to) })
	if !ok {
		return nil
	}
	return e.conns[i]
}

// conn returns the connection to a peer, and has it made.
func (e *Endpoint) conn(to raftyard.NodeID) *conn {
	c := e.known(to)
	if c == nil {
		c = &conn{from: e, to: to}
		e.conns = append(e.conns, c)
		slices.SortFunc(e.conns, func(a, b *conn) int { return int(a.to) - int(b.to) })
	}
	c.want()
	return c
}

// Connect has a connection to a node made and kept.
func (e *Endpoint) Connect(to raftyard.NodeID) {
	if !e.closed && to != 0 && to != e.id.Node {
		e.conn(to)
	}
}

// Disconnect gives the connection to a node up.
func (e *Endpoint) Disconnect(to raftyard.NodeID) {
	c := e.known(to)
	if c == nil || e.closed {
		return
	}
	e.conns = slices.DeleteFunc(e.conns, func(o *conn) bool { return o == c })
	c.giveUp()
}

// Peers returns what is known of the peers, in the order of their ids.
func (e *Endpoint) Peers() []transport.PeerStatus {
	out := make([]transport.PeerStatus, 0, len(e.conns))
	for _, c := range e.conns {
		out = append(out, transport.PeerStatus{
			Node: c.to, Addr: c.addr, Identity: e.seen[c.to],
			Up: c.state == up && !e.closed, Since: c.since, LastError: c.lastErr,
			Connects: c.connects, Told: e.told[c.to],
		})
	}
	return out
}

// Stats returns no counts: those of a simulation are the network's.
func (e *Endpoint) Stats() transport.Stats {
	return transport.Stats{
		Sent: map[string]uint64{}, Received: map[string]uint64{}, Dropped: map[string]uint64{},
		DroppedBy: map[string]uint64{}, RefusedBy: map[string]uint64{},
		HandshakesRefused: map[string]uint64{},
	}
}

// Close takes the node off the network and waits for the handler.
func (e *Endpoint) Close() error {
	e.gone()
	for _, c := range e.conns {
		c.life++
		for _, r := range slices.Concat(c.queued, c.flight) {
			r.end(nil, fmt.Errorf("%w: %w", transport.ErrUnknown, transport.ErrClosed))
		}
		c.queued, c.flight, c.held = nil, nil, nil
	}
	e.st.Touch()
	e.st.Until(func() bool { return e.serving+e.sending+e.helpers == 0 })
	return nil
}
