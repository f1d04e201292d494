package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// TestOutgoing: each node gets what is for it in one piece and in order, the nodes come by
// their ids, and nothing comes twice.
func TestOutgoing(t *testing.T) {
	var o outgoing
	for round := range 3 {
		var sent []string
		for i, to := range []raftyard.NodeID{3, 1, 2, 1, 3, 1} {
			o.add(transport.Envelope{
				Group: raftyard.GroupID(10*round + i), To: transport.Endpoint{Node: to},
			})
		}
		send := func(batch []transport.Envelope) {
			var groups []raftyard.GroupID
			for _, env := range batch {
				groups = append(groups, env.Group)
			}
			sent = append(sent, fmt.Sprint(batch[0].To.Node, groups))
		}
		o.flush(send)
		o.flush(send)
		want := []string{
			fmt.Sprint(1, []int{10*round + 1, 10*round + 3, 10*round + 5}),
			fmt.Sprint(2, []int{10*round + 2}), fmt.Sprint(3, []int{10 * round, 10*round + 4}),
		}
		if !slices.Equal(sent, want) {
			t.Errorf("round %d: sent %q, want %q", round, sent, want)
		}
	}
}

// TestOutgoingKeepsLittle: what a burst has needed is let go.
func TestOutgoingKeepsLittle(t *testing.T) {
	var o outgoing
	env := transport.Envelope{To: transport.Endpoint{Node: 1}}
	for range 2 * keepOutgoing {
		o.add(env)
	}
	o.flush(func([]transport.Envelope) {})
	if got := cap(o.boxes[0].batch); got != 0 {
		t.Errorf("room for %d envelopes is kept", got)
	}
	for i := range keepOutboxes + 1 {
		env.To.Node = raftyard.NodeID(i + 1)
		o.add(env)
	}
	o.flush(func([]transport.Envelope) {})
	if len(o.boxes) != 0 || o.waiting != 0 {
		t.Errorf("%d outboxes are kept, %d envelopes wait", len(o.boxes), o.waiting)
	}
}
