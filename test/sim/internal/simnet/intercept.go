package simnet

import (
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// A Verdict is what an interceptor decides about an envelope. The zero value lets it
// pass.
type Verdict struct {
	// Drop loses it; the sender is told, as of any loss that a network notices.
	Drop bool

	// Hold keeps it until [Network.Release] is called with the same name.
	Hold string

	// Delay has it arrive so much later, with others overtaking it.
	Delay time.Duration
}

// hold is an envelope that is kept back.
type hold struct {
	name string
	from raftyard.NodeID
	env  transport.Envelope
}

// Intercept has fn decide about every envelope that is sent, in place of an earlier
// one. fn may look at the envelope, not change it. Nil ends it.
func (n *Network) Intercept(fn func(env *transport.Envelope) Verdict) { n.intercept = fn }

// intercepted asks the interceptor, and reports whether it has dealt with env.
func (n *Network) intercepted(c *conn, env transport.Envelope) bool {
	if n.intercept == nil {
		return false
	}
	v := n.intercept(&env)
	switch {
	case v.Drop:
		n.message(c.from.id.Node, "dropped:", c.to, &env)
		c.from.lost(&env)
	case v.Hold != "":
		n.message(c.from.id.Node, "held:", c.to, &env)
		n.held = append(n.held, &hold{name: v.Hold, from: c.from.id.Node, env: env})
	case v.Delay > 0 && c.state == up:
		n.message(c.from.id.Node, "delayed:", c.to, &env)
		c.fly(env, v.Delay, false)
	default:
		return false
	}
	return true
}

// Held returns how many envelopes are kept back under a name.
func (n *Network) Held(name string) (count int) {
	for _, h := range n.held {
		if h.name == name {
			count++
		}
	}
	return count
}

// Release lets the envelopes arrive that are kept back under a name: the last one
// first, if reversed is set. Those of a sender or to a receiver that has
// been started again since arrive, too.
func (n *Network) Release(name string, reversed bool) {
	var kept, out []*hold
	for _, h := range n.held {
		if h.name == name {
			out = append(out, h)
		} else {
			kept = append(kept, h)
		}
	}
	n.held = kept
	for i := range out {
		h := out[i]
		if reversed {
			h = out[len(out)-1-i]
		}
		n.s.After(n.cfg.Latency+time.Duration(i), func() { n.deliverHeld(h) })
	}
}

// deliverHeld gives a released envelope to the node that it is for, as it is now.
func (n *Network) deliverHeld(h *hold) {
	to := n.ends[h.env.To.Node]
	if to == nil {
		return
	}
	from, known := to.seen[h.from]
	if !known {
		return
	}
	to.arrive(from, h.env)
}
