package node

import (
	"context"
	"errors"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// TestMessageToMadeUpReplica sends messages to replica ids that were never given out: of a
// group whose only voter is there, at the epoch that the voter is at itself, and of a group
// that has nothing there. The voter stays, and no replica comes to be that would keep those
// away that will be given out.
func TestMessageToMadeUpReplica(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	c.create(2, 2)
	c.add(1, 1, "a")
	n := c.nodes[1]
	from := c.nodes[2].identity()
	c.eventually("node 1 listens to node 2", func() bool { return n.accept(from) == nil })
	refused := n.metrics.messagesRefused.Load()
	(&handler{n}).HandleEnvelopes(from, []transport.Envelope{
		envelopeTo(1, c.incarnation(1, 1), 1<<40),
		envelopeTo(2, c.incarnation(1, 2), 1<<41),
	})
	c.eventually("both are looked into", func() bool {
		return n.metrics.messagesRefused.Load() >= refused+2
	})
	if err := n.lifecycle.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := n.replica(1); r == nil || r.id != 1 {
		t.Errorf("the only voter of group 1 is destroyed; there is %v", r)
	}
	if r := n.replica(2); r != nil {
		t.Errorf("%v was made, whose id was never given out", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	// A state for such a replica is not waited for.
	if _, err := n.replicaFor(ctx, envelopeTo(2, c.incarnation(1, 2), 1<<41)); !errors.Is(
		err, ErrNoReplica,
	) {
		t.Errorf("replicaFor = %v, want ErrNoReplica", err)
	}
	if _, err := c.nodes[2].AddLearner(ctx, 2, 1); err != nil {
		t.Errorf("node 1 cannot be attached to group 2 any more: %v", err)
	}
}

// TestVouching says what an answer must have for a replica to be made, or destroyed.
func TestVouching(t *testing.T) {
	c := newCluster(t, 1)
	own := c.nodes[1].ownStore()
	st := holding{Epoch: 7, Next: 5, Members: []MemberStatus{
		{Replica: 1, Node: 2}, {Replica: 4, Node: 1, Store: own.String()},
	}}
	if !st.gives(4, 1, own) || st.gives(3, 1, own) || st.gives(5, 1, own) || st.gives(1, 1, own) {
		t.Error("an id is given out by the members that have it on this node, and by nothing else")
	}
	st.Members[1].Store = "another"
	if st.gives(4, 1, own) {
		t.Error("what another directory was given is taken for this one's")
	}
	for _, tt := range []struct {
		name   string
		id     uint64
		at     uint64
		proven bool
	}{
		{"removed since", 3, 6, true},
		{"knows as much", 3, 7, false},
		{"a member", 4, 6, false},
		{"not given out", 5, 6, false},
	} {
		if _, proven := st.proves(raftyard.ReplicaID(tt.id), tt.at); proven != tt.proven {
			t.Errorf("%s: proven %t", tt.name, proven)
		}
	}
	empty := holding{Epoch: 9, Next: 9}
	if _, proven := empty.proves(3, 6); proven {
		t.Error("who knows no members proves that there is no such member")
	}
}

// TestClaimsAreBounded: more than fit are dropped, which is counted, and those that are open
// are all looked into, whatever becomes of the others.
func TestClaimsAreBounded(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[1]
	cs := newClaims(n) // which nobody runs
	for g := range raftyard.GroupID(maxClaims) {
		if env := envelopeTo(g+1, raftyard.Incarnation{1}, 1); cs.add(&env) == nil {
			t.Fatalf("claim %d is dropped", g)
		}
	}
	dropped, refused := n.metrics.messagesDropped.Load(), n.metrics.messagesRefused.Load()
	env := envelopeTo(maxClaims+1, raftyard.Incarnation{1}, 1)
	if cs.add(&env) != nil || n.metrics.messagesDropped.Load() != dropped+1 {
		t.Error("a claim too many is taken up, or not counted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cs.lookAll(ctx)
	if got := n.metrics.messagesRefused.Load() - refused; got != maxClaims || len(cs.all()) != 0 {
		t.Errorf("%d of %d claims are judged, %d stay", got, maxClaims, len(cs.all()))
	}
}
