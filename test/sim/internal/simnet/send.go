package simnet

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// Send sends envelopes: those for one peer in order, if nothing is wrong.
func (e *Endpoint) Send(batch []transport.Envelope) {
	for len(batch) > 0 {
		to := batch[0].To.Node
		n := 1
		for n < len(batch) && batch[n].To.Node == to {
			n++
		}
		e.send(to, batch[:n])
		batch = batch[n:]
	}
}

// send sends to one peer. Every envelope goes through the real codec.
func (e *Endpoint) send(to raftyard.NodeID, batch []transport.Envelope) {
	if e.closed || to == e.id.Node {
		return
	}
	for i := range batch {
		e.net.message(e.id.Node, "sends", to, &batch[i])
		if sent := e.net.cfg.Sent; sent != nil {
			sent(e.id.Node, &batch[i])
		}
	}
	carried, refused, err := transport.Carry(e.id.Node, to, batch)
	if err != nil {
		e.net.s.Fail(err)
		return
	}
	if refused > 0 {
		e.net.event(e.id.Node, "refused", to, "envelopes that do not pass the checks")
	}
	e.net.counts.Envelopes += uint64(len(carried))
	c := e.conn(to)
	for i := range carried {
		e.post(c, carried[i])
	}
}

// post lets the interceptor see an envelope, and sends it its way.
func (e *Endpoint) post(c *conn, env transport.Envelope) {
	if e.net.intercepted(c, env) {
		return
	}
	switch c.state {
	case up:
		if c.fault().Cut {
			c.held = append(c.held, env)
			return
		}
		c.carry(env)
	case dialling:
		c.held = append(c.held, env)
	default:
		e.lost(&env)
	}
}

// carry lets the dice decide what becomes of an envelope.
func (c *conn) carry(env transport.Envelope) {
	n, f := c.from.net, c.fault()
	switch {
	case c.state != up: // one before it has broken the connection
		c.from.lost(&env)
		return
	case n.chance(f.Break):
		c.from.lost(&env)
		c.fail(errBroken)
		return
	case n.chance(f.Loss):
		n.counts.Lost++
		n.message(c.from.id.Node, "loses", c.to, &env)
		c.from.lost(&env)
		return
	}
	if n.chance(f.Duplicate) {
		n.counts.Duplicated++
		c.fly(copied(c, env), n.latency(f)+n.stray(), false)
	}
	if n.chance(f.Reorder) {
		n.counts.Reordered++
		c.fly(env, n.latency(f)+n.stray(), false)
		return
	}
	c.fly(env, n.latency(f), true)
}

// stray is how late something is that went another way.
func (n *Network) stray() time.Duration {
	return time.Duration(n.dice.Int64N(int64(50 * time.Millisecond)))
}

// copied returns the parcel once more, in memory of its own.
func copied(c *conn, env transport.Envelope) transport.Envelope {
	again, _, err := transport.Carry(c.from.id.Node, c.to, []transport.Envelope{env})
	if err != nil || len(again) != 1 {
		c.from.net.s.Fail(errBroken)
		return env
	}
	return again[0]
}

// fly has a parcel arrive, in order or not.
func (c *conn) fly(env transport.Envelope, d time.Duration, inOrder bool) {
	n := c.from.net
	at := int64(n.s.Time() + d)
	if inOrder {
		c.arrival = max(c.arrival+1, at)
		at = c.arrival
	}
	life, remote := c.life, c.remote
	n.s.At(at, func() {
		switch {
		case c.life != life && !c.from.closed:
			c.from.lost(&env)
		case c.fault().Cut && !c.from.closed:
			c.held = append(c.held, env)
		case !c.fault().Cut:
			remote.arrive(c.from.id, env)
		}
	})
}

// arrive puts an envelope before the handler.
func (e *Endpoint) arrive(from transport.Identity, env transport.Envelope) {
	if e.closed {
		return
	}
	e.net.message(e.id.Node, "gets", from.Node, &env)
	if k := len(e.inbox) - 1; k >= 0 && e.inbox[k].from == from && len(e.inbox[k].batch) < 16 {
		e.inbox[k].batch = append(e.inbox[k].batch, env)
	} else {
		e.inbox = append(e.inbox, delivery{from: from, batch: []transport.Envelope{env}})
	}
	e.st.Touch()
}

// reportEvery is the least time between two reports of one peer.
const reportEvery = 100 * time.Millisecond

// A report is what was not delivered to one peer.
type report struct {
	to      raftyard.NodeID
	dropped []transport.Dropped
	next    int64
	waiting bool
}

// lost has the handler told that an envelope was not delivered.
func (e *Endpoint) lost(env *transport.Envelope) {
	if env.Message == nil || e.closed {
		return
	}
	d := transport.Dropped{
		Group: env.Group, From: env.From.Replica, To: env.To.Replica,
		Snapshot: env.Message.GetType() == raftpb.MsgSnap,
	}
	i := slices.IndexFunc(e.reports, func(r *report) bool { return r.to == env.To.Node })
	if i < 0 {
		i = len(e.reports)
		e.reports = append(e.reports, &report{to: env.To.Node})
	}
	r := e.reports[i]
	same := slices.IndexFunc(r.dropped, func(o transport.Dropped) bool {
		return o.Group == d.Group && o.From == d.From && o.To == d.To
	})
	if same >= 0 {
		r.dropped[same].Snapshot = r.dropped[same].Snapshot || d.Snapshot
	} else {
		r.dropped = append(r.dropped, d)
	}
	if !r.waiting {
		r.waiting = true
		e.net.s.At(max(r.next, int64(e.net.s.Time())), func() { e.flush(r) })
	}
}

func (e *Endpoint) flush(r *report) {
	dropped := r.dropped
	r.dropped, r.waiting = nil, false
	r.next = int64(e.net.s.Time() + reportEvery)
	e.notify(func(h transport.Handler) { h.HandleUnreachable(r.to, dropped) })
}
