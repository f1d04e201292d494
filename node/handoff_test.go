package node

import (
	"context"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestDrainPassesOverWhoDeclined: an offer stops proposals for an election timeout, so that
// who has not taken the last one is left alone, and nobody is asked while one is open.
func TestDrainPassesOverWhoDeclined(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	n := c.nodes[1]
	if err := n.TransferLeader(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	r := n.replica(1)
	two, _ := r.view.Load().State.Descriptor.MemberOn(2)
	ask := func() []raftyard.NodeID { return sortedIDs(n.successors(t.Context(), r)) }
	c.eventually("both can follow", func() bool { return slices.Equal(ask(), nodeIDs(2, 3)) })
	within := func(fn func(o *offers)) { onWorker(r, func() { fn(&r.steering.offers) }) }
	within(func(o *offers) {
		o.made(two.ID, false)
		if got := r.worker.successors(r); len(got) != 0 {
			t.Errorf("while an offer is open it goes to %v too", got)
		}
		o.decline(1 << 20)
	})
	seen := 0 // raft forgets now and then of whom it has heard
	c.eventually("the other one can follow", func() bool {
		got := ask()
		if slices.Contains(got, 2) {
			t.Fatalf("those who are asked are %v, and node 2 has just declined", got)
		}
		seen += len(got)
		return seen == 50
	})
	within(func(o *offers) { o.declined = nil })
	c.eventually("both can follow again", func() bool {
		return slices.Equal(ask(), nodeIDs(2, 3))
	})
}

// TestDrainStaysWithTheState has nobody else with the state machine of the group: the
// drained node goes on leading it, and says so at once.
func TestDrainStaysWithTheState(t *testing.T) {
	t.Parallel()
	c := newLogOnlyCluster(t, 3, 2, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.ledBy(1)
	before := c.status(1, 1).Term
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	st, err := c.nodes[2].DrainNode(ctx, 1)
	if err != nil || ctx.Err() != nil || st.Leaders != 1 || st.Problem == "" {
		t.Errorf("DrainNode = %+v, %v; want that it leads the group for good", st, err)
	}
	c.add(2, 1, "a")
	if now := c.status(1, 1); now.Role != "leader" || now.Term != before {
		t.Errorf("it is %s in term %d, was leader in term %d", now.Role, now.Term, before)
	}
}
