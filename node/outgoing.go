package node

import (
	"cmp"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// outgoing are the envelopes that a worker has in a round, for each node in the order in
// which they came. What they are in is used again in the next round.
type outgoing []outbox

type outbox struct {
	to    raftyard.NodeID
	batch []transport.Envelope
}

const (
	// keepOutboxes and keepOutgoing bound what is kept for the next round.
	keepOutboxes = 64
	keepOutgoing = 1024
)

func (o *outgoing) add(env transport.Envelope) {
	at, found := slices.BinarySearchFunc(*o, env.To.Node, func(b outbox, to raftyard.NodeID) int {
		return cmp.Compare(b.to, to)
	})
	if !found {
		*o = slices.Insert(*o, at, outbox{to: env.To.Node})
	}
	b := &(*o)[at]
	b.batch = append(b.batch, env)
}

// flush sends everything, with one call for each node, by the nodes' ids.
func (o *outgoing) flush(send func([]transport.Envelope)) {
	for i := range *o {
		b := &(*o)[i]
		if len(b.batch) == 0 {
			continue
		}
		send(b.batch)
		clear(b.batch)
		if b.batch = b.batch[:0]; cap(b.batch) > keepOutgoing {
			b.batch = nil
		}
	}
	if len(*o) > keepOutboxes {
		*o = nil
	}
}
