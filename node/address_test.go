package node

import (
	"errors"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// TestLateRequestIsForOneIncarnation has requests arrive at a leader's node, as those do
// that were on their way while the link was cut, when the group for which they were meant
// is deleted, and another one has its id. What is left of the caller's time is counted
// from their arrival, so only the incarnation shows that they are late.
func TestLateRequestIsForOneIncarnation(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "old")
	old, err := c.nodes[1].address(1)
	if err != nil || old.incarnation != c.incarnation(1, 1) {
		t.Fatalf("the address is %v, %v", old, err)
	}
	ctx := within(t, testTimeout)
	if err := c.nodes[3].DeleteGroup(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes[3].address(1); !errors.Is(err, ErrNoReplica) {
		t.Errorf("the address of a group that is deleted: %v", err)
	}
	c.create(1, 1, 2, 3)
	c.add(1, 1, "new")
	var leader raftyard.NodeID
	c.eventually("it leads", func() bool { leader = c.leader(1); return leader != 0 })
	n, from := c.nodes[leader], c.nodes[leader%3+1].identity()
	c.eventually("it is listened to", func() bool { return n.accept(from) == nil })

	id := n.newMessageID()
	command := func(b []byte) []byte {
		return wire.AppendBytes(wire.AppendID(b, id), []byte("late"))
	}
	bodies := map[uint8]func([]byte) []byte{
		askPropose:  command,
		askThrough:  command,
		askAppend:   command,
		askQuery:    func(b []byte) []byte { return wire.AppendBytes(append(b, byte(Stale)), nil) },
		askTransfer: func(b []byte) []byte { return wire.AppendUvarint(b, uint64(from.Node)) },
		askSnapshot: func(b []byte) []byte { return b },
		askRetry:    func(b []byte) []byte { return b },
		askRebuild:  func(b []byte) []byte { return b },
	}
	for kind, body := range bodies {
		nobody := address{group: 1}
		for _, at := range []address{old, nobody} {
			answer, err := n.serve(ctx, &from, kind, wire.NewReader(body(at.append(nil))))
			if err == nil || at == old && !errors.Is(err, ErrNoReplica) {
				t.Errorf("request %d to incarnation %v = %q, %v", kind, at.incarnation, answer, err)
			}
		}
	}
	c.wantWords(leader, 1, "new")
	for _, kind := range []uint8{askTransfer, askRetry, askRebuild} {
		delete(bodies, kind) // they would change what the others find
	}
	for kind, body := range bodies {
		at, err := c.nodes[from.Node].address(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = n.serve(ctx, &from, kind, wire.NewReader(body(at.append(nil)))); err != nil {
			t.Errorf("request %d to the incarnation that is there = %v", kind, err)
		}
	}
}
