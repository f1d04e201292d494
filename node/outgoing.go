package node

import (
	"cmp"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// outgoing are the envelopes that a worker has in a round, for each node in the order in
// which they came. What they are in is used again in the next round.
type outgoing struct {
	boxes   []outbox
	waiting int // envelopes in all of them
}

type outbox struct {
	to    raftyard.NodeID
	batch []transport.Envelope
}

const (
	// keepOutboxes and keepOutgoing bound what is kept for the next round.
	keepOutboxes = 64
	keepOutgoing = 1024
)

func (b outbox) compare(to raftyard.NodeID) int { return cmp.Compare(b.to, to) }

func (o *outgoing) add(env transport.Envelope) {
	at, found := slices.BinarySearchFunc(o.boxes, env.To.Node, outbox.compare)
	if !found {
		o.boxes = slices.Insert(o.boxes, at, outbox{to: env.To.Node})
	}
	b := &o.boxes[at]
	b.batch = append(b.batch, env)
	o.waiting++
}

// flush sends everything, with one call for each node, by the nodes' ids.
func (o *outgoing) flush(send func([]transport.Envelope)) {
	for i := range o.boxes {
		b := &o.boxes[i]
		if len(b.batch) == 0 {
			continue
		}
		send(b.batch)
		clear(b.batch)
		if b.batch = b.batch[:0]; cap(b.batch) > keepOutgoing {
			b.batch = nil
		}
	}
	if len(o.boxes) > keepOutboxes {
		o.boxes = nil
	}
	o.waiting = 0
}
