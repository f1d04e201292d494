package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// TestTransfersThatAreRefused asks for handovers that cannot be: each ends with its reason,
// and the group takes writes at once.
func TestTransfersThatAreRefused(t *testing.T) {
	c := newCluster(t, 5)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: nodeIDs(1, 2, 3), Learners: nodeIDs(4),
	})
	c.add(1, 1, "a")
	c.moveLeader(1, 1)
	refused := func(to raftyard.NodeID, why string) {
		t.Helper()
		err := c.nodes[5].TransferLeader(within(t, testTimeout), 1, to)
		if !errors.Is(err, ErrTransfer) || !strings.Contains(err.Error(), why) {
			t.Errorf("TransferLeader to node %d = %v, want ErrTransfer with %q", to, err, why)
		}
		c.add(5, 1, "at once")
	}
	refused(4, "learner")
	refused(5, "not a member")
	refused(9, "not a member")
	c.nodes[2].stopReplica(c.nodes[2].replica(1), fmt.Errorf("%w: for a test", ErrFaulty))
	refused(2, "stopped")
	c.close(2)
	refused(2, "cannot be asked")
	c.open(2, nil)
	c.eventually("node 2, which is back, takes the leadership", func() bool {
		return c.nodes[5].TransferLeader(within(t, testTimeout), 1, 2) == nil
	})
	c.add(5, 1, "b")
}

// TestSuccessorThatReachesTheLeaderAlone moves a group away from its leader, whose first
// choice of a successor hears the leader and nobody else, and so never wins an election.
func TestSuccessorThatReachesTheLeaderAlone(t *testing.T) {
	net := transport.NewMemory(8)
	c := newMemoryCluster(t, 5, net)
	c.create(1, 1, 2, 3, 4, 5)
	c.add(1, 1, "a")
	c.moveLeader(0, 5)
	c.moveLeader(1, 1)
	c.eventually("the last of the five is a voter, and that change is over", func() bool {
		d := c.nodes[1].replica(1).view.Load().State.Descriptor
		return !d.IsJoint() && len(wantOf(d).Voters) == 5
	})
	// The leader prefers the lowest id among those that have as much of the log.
	first := raftyard.NodeID(0)
	for _, m := range c.nodes[1].replica(1).view.Load().State.Descriptor.Members {
		if m.Node != 1 {
			first = m.Node
			break
		}
	}
	for id := range raftyard.NodeID(5) {
		if id+1 != 1 && id+1 != first {
			net.CutBoth(first, id+1)
		}
	}
	var rest []raftyard.NodeID
	for id := range raftyard.NodeID(5) {
		if id+1 != 1 {
			rest = append(rest, id+1)
		}
	}
	at := c.nodes[rest[len(rest)-1]]
	if at.cfg.ID == first {
		at = c.nodes[rest[0]]
	}
	_, err := at.SetMembers(within(t, testTimeout), 1, Members{Voters: rest, Force: true}, true)
	if err != nil {
		t.Errorf("SetMembers without the leader, with node %d cut off from the others = %v",
			first, err)
	}
}

func TestOffers(t *testing.T) {
	const timeout = 10
	var o offers
	resting := func() string {
		p := map[raftyard.ReplicaID]group.Progress{1: {}, 2: {}, 3: {}}
		o.mark(p)
		var ids []raftyard.ReplicaID
		for id := raftyard.ReplicaID(1); id <= 3; id++ {
			if p[id].Declined {
				ids = append(ids, id)
			}
		}
		return fmt.Sprint(ids)
	}
	want := func(what, ids string) {
		t.Helper()
		if got := resting(); got != ids {
			t.Errorf("%s: %s are left alone, want %s", what, got, ids)
		}
	}
	ticks := func(n int) {
		for range n {
			o.tick(timeout)
		}
	}
	want("at first", "[]")
	for round, pause := range []int{2, 4, 8, 16, 32, 32} {
		o.made(2, false)
		o.led(0, 1, timeout) // nobody leads for a moment
		o.led(1, 1, timeout) // and then this one again
		ticks(pause*timeout - 1)
		want(fmt.Sprintf("round %d, in the pause", round), "[2]")
		ticks(1)
		want(fmt.Sprintf("round %d, after it", round), "[]")
	}
	o.made(3, false)
	o.led(2, 1, timeout) // another one was faster
	want("when another one leads", "[]")
	o.led(1, 1, timeout)
	want("when this one leads after that", "[]")
	o.made(2, true)
	o.decline(timeout)
	if o.led(2, 1, timeout) {
		t.Error("one that came to nothing has counted for the disk")
	}
	for _, shed := range []bool{true, false} {
		o.made(2, shed)
		if o.led(0, 1, timeout) || o.led(2, 1, timeout) != shed || o.led(2, 1, timeout) {
			t.Errorf("because of the disk: %t, and it has not counted just so", shed)
		}
	}
	o.made(3, true)
	if o.led(2, 1, timeout) {
		t.Error("one that another node has taken has counted for the disk")
	}
	o.made(2, false)
	o.decline(timeout)
	ticks(2*timeout - 1)
	want("after it has led, pauses begin anew", "[2]")
	ticks(1)
	want("after it has led, a pause is short", "[]")
	ticks(3 * maxOfferPause * timeout)
	if len(o.declined) != 0 {
		t.Errorf("%d are remembered for ever", len(o.declined))
	}
}
