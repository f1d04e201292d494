package simnet

import (
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/seek"
	"github.com/raftyard/raftyard/transport"
)

var (
	errRefused  = errors.New("nobody listens there")
	errNowhere  = errors.New("its address is not known")
	errAnother  = errors.New("another node listens there")
	errNoAnswer = errors.New("no answer")
	errBroken   = errors.New("connection broken")
	errReset    = errors.New("connection reset by the peer")
	errGivenUp  = errors.New("connections to the node are given up")
)

// connState says where a connection stands.
//
//	idle ──▶ dialling ──▶ up
//	             ▲  │      │
//	             │  ▼      │
//	            failing ◀──┘
type connState uint8

const (
	idle     connState = iota
	dialling           // what is to be sent waits
	up
	failing // what is to be sent is lost, until the next attempt
)

// A conn is what an endpoint has dialled, or wants to, to one peer.
type conn struct {
	from  *Endpoint
	to    raftyard.NodeID
	state connState
	life  uint64 // of the present connection; what belongs to another is lost

	seeker   seek.Seeker
	addr     string    // at which it was dialled last; empty: none was known
	remote   *Endpoint // while up
	since    time.Time
	made     time.Duration // when it came up
	lastErr  error
	backoff  time.Duration
	arrival  int64 // of the last envelope: those after it come later
	cutSince int64 // when the route was cut; for an attempt, when it began
	connects uint64

	waiting []func()             // what is done when the connection is there, or healed
	flight  []*request           // requests that may have reached the peer
	queued  []*request           // requests that wait for the connection
	held    []transport.Envelope // envelopes that wait for the connection
}

// fault returns what is wrong with the route.
func (c *conn) fault() *Faults { return c.from.net.route(Route{c.from.id.Node, c.to}) }

// want has the connection made if there is none.
func (c *conn) want() {
	if c.state == idle {
		c.dial()
	}
}

// dial tries to connect. A cut route gives no answer.
func (c *conn) dial() {
	c.state = dialling
	c.life++
	life, n := c.life, c.from.net
	c.addr, _ = c.seeker.Next(c.from.cfg.Resolve(c.to, c.from.told[c.to]))
	if c.fault().Cut {
		n.s.After(n.cfg.DialTimeout, func() {
			if c.life == life && c.state == dialling {
				c.fail(errNoAnswer)
			}
		})
		return
	}
	n.s.After(2*n.latency(c.fault()), func() {
		if c.life == life && c.state == dialling {
			c.shake()
		}
	})
}

// shake is the handshake, with whoever listens at the address that the peer is said to
// have.
func (c *conn) shake() {
	if c.fault().Cut {
		c.fail(errNoAnswer)
		return
	}
	remote := c.from.net.at(c.addr)
	switch {
	case c.addr == "":
		c.fail(errNowhere)
	case remote == nil:
		c.fail(errRefused)
	case remote.id.Node != c.to:
		c.fail(errAnother)
	default:
		if err := introduce(c.from, remote); err != nil {
			c.fail(err)
			return
		}
		c.established(remote)
	}
}

func (c *conn) established(remote *Endpoint) {
	c.state, c.remote, c.lastErr, c.backoff = up, remote, nil, 0
	c.since = c.from.st.Now()
	c.made = c.from.net.s.Time()
	c.arrival = 0
	c.connects++
	c.from.net.event(c.from.id.Node, "connected", c.to, "")
	c.from.peerChanged(c.to, true)
	c.release()
	c.ping(c.life)
}

// pingEvery is how often a connection is probed.
const pingEvery = time.Second

// ping has the peer look, now and then, whether it still admits the node that has dialled.
func (c *conn) ping(life uint64) {
	c.from.net.s.After(pingEvery, func() {
		switch {
		case c.life != life || c.state != up || c.from.closed:
			return
		case c.fault().Cut || c.remote.closed || c.remote.cfg.Admit == nil:
		default:
			if refusal := c.remote.cfg.Admit(c.from.id); refusal != nil {
				c.fail(refusal)
				return
			}
		}
		c.ping(life)
	})
}

// release lets go what has waited for the connection.
func (c *conn) release() {
	held, queued := c.held, c.queued
	c.held, c.queued = nil, nil
	for i := range held {
		c.carry(held[i])
	}
	for _, r := range queued {
		r.start() // what was let go before may have broken the connection
	}
}

// fail ends an attempt or a connection. The next attempt comes after a pause.
func (c *conn) fail(why error) {
	wasUp := c.state == up
	if !wasUp {
		c.seeker.Missed(c.addr)
	}
	remote := c.remote
	c.state, c.remote, c.lastErr = failing, nil, why
	c.since = c.from.st.Now()
	c.life++
	held, queued, flight := c.held, c.queued, c.flight
	c.held, c.queued, c.flight, c.waiting = nil, nil, nil, nil
	for i := range held {
		c.from.lost(&held[i])
	}
	for _, r := range queued {
		r.end(nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, why))
	}
	for _, r := range flight {
		r.outlive(remote)
		r.end(nil, fmt.Errorf("%w: connection lost: %w", transport.ErrUnknown, why))
	}
	n := c.from.net
	if wasUp {
		n.counts.Breaks++
		n.event(c.from.id.Node, "disconnected", c.to, why.Error())
		c.from.peerChanged(c.to, false)
	}
	c.backoff = min(max(2*c.backoff, 50*time.Millisecond), time.Second)
	life := c.life
	pause := c.backoff - time.Duration(n.dice.Int64N(int64(c.backoff)/2))
	n.s.After(pause, func() {
		if c.life == life && !c.from.closed {
			c.dial()
		}
	})
	c.from.st.Touch()
}

// giveUp ends a connection that is not wanted any more, or an attempt.
func (c *conn) giveUp() {
	c.fail(errGivenUp)
	c.life++ // there is no next attempt
}

// cutChanged hears that the route was cut or healed.
func (c *conn) cutChanged(cut bool) {
	n := c.from.net
	switch {
	case c.state != up:
	case cut:
		life := c.life
		c.cutSince = int64(n.s.Time())
		since := c.cutSince
		n.s.After(n.cfg.DeadAfter, func() {
			if c.life == life && c.fault().Cut && c.cutSince == since {
				c.fail(errNoAnswer)
			}
		})
	case c.remote.closed:
		c.fail(errReset)
	default:
		waiting := c.waiting
		c.waiting = nil
		for _, fn := range waiting {
			fn()
		}
		c.release()
	}
}

// passes runs fn, which is of this life of the connection, unless the connection is
// lost; while the route is cut it waits.
func (c *conn) passes(life uint64, fn func()) {
	switch {
	case c.life != life:
	case c.fault().Cut:
		c.waiting = append(c.waiting, func() { c.passes(life, fn) })
	default:
		fn()
	}
}

// reset tells the dialler that the peer is gone.
func (c *conn) reset() {
	n, life := c.from.net, c.life
	n.s.After(n.latency(c.fault()), func() {
		if c.life == life && !c.fault().Cut {
			c.fail(errReset)
		}
	})
}
