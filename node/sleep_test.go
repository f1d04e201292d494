package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// sleepers counts the replicas that sleep on open nodes.
func (c *cluster) sleepers() (count int) {
	for _, n := range c.nodes {
		count += n.Metrics().Asleep
	}
	return count
}

// asleep waits until so many replicas sleep.
func (c *cluster) asleep(want int) {
	c.t.Helper()
	c.eventually("the groups sleep", func() bool { return c.sleepers() == want })
}

// kill ends a node without handing anything over.
func (c *cluster) kill(id raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.nodes[id].Close(ctx); err != nil {
		c.t.Errorf("close node %d: %v", id, err)
	}
	delete(c.nodes, id)
}

// sent counts the messages that open nodes have sent.
func (c *cluster) sent() (count uint64) {
	for _, n := range c.nodes {
		for kind, sent := range n.Metrics().Transport.Sent {
			if kind != "Notice" {
				count += sent
			}
		}
	}
	return count
}

// TestIdleGroupsSleep has groups sleep, and wakes one by a write at a follower and by a
// read.
func TestIdleGroupsSleep(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 2)
	c.add(1, 1, "a")
	c.asleep(4)
	for id, n := range c.nodes { // whoever asks wakes nobody
		if g, err := n.Group(t.Context(), 1); err != nil || slices.ContainsFunc(g.Replicas,
			func(r ReplicaStatus) bool { return !r.Asleep }) {
			t.Errorf("node %d: %+v, %v, want all asleep", id, g.Replicas, err)
		}
		if st, err := n.RaftStatus(t.Context(), 0); err != nil || st.Asleep {
			t.Errorf("node %d: %+v, %v, want the system group awake", id, st, err)
		}
	}
	c.asleep(4)
	var at raftyard.NodeID = 1
	if c.leader(1) == at {
		at = 2
	}
	c.add(at, 1, "b")
	c.wantWords(at, 1, "a", "b")
	c.asleep(4)
	c.wantWords(3, 1, "a", "b")
	if c.sleepers() == 4 {
		t.Error("a read has not woken the group")
	}
}

// TestSleepersLoseTheirLeader kills the node that leads groups that sleep, of which nobody
// wants anything.
func TestSleepersLoseTheirLeader(t *testing.T) {
	c := newCluster(t, 3)
	for g := range raftyard.GroupID(6) {
		c.create(g+1, 1, 2, 3)
	}
	c.asleep(18)
	dead := c.leader(1)
	c.kill(dead)
	for id, n := range c.nodes {
		if got := n.Metrics().Transport.Received["MsgTimeoutNow"]; got != 0 {
			t.Errorf("node %d was offered %d leaderships", id, got)
		}
	}
	for g := range raftyard.GroupID(6) {
		c.leader(g + 1)
	}
	c.asleep(12) // with a member that is down
	c.add(c.leader(1), 1, "a")
	c.asleep(12)
	c.open(dead, nil)
	c.eventually("the member catches up", func() bool {
		r := c.nodes[dead].replica(1)
		return r != nil && r.applied.Load() == c.nodes[c.leader(1)].replica(1).applied.Load()
	})
	c.asleep(18)
}

// TestSleepersFindAReplicaStopped stops the leader of a group that sleeps while its node
// lives on, and a follower.
func TestSleepersFindAReplicaStopped(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.asleep(3)
	first := c.leader(1)
	n := c.nodes[first]
	n.stopReplica(n.replica(1), faulty(RaftPanicked, errors.New("injected")))
	c.eventually("another one leads", func() bool {
		for id, n := range c.nodes {
			if id != first {
				if v := n.replica(1).view.Load(); v.LeaderNode != 0 && v.LeaderNode != first {
					return true
				}
			}
		}
		return false
	})
}

// TestNobodySleepsWhereOneMayNot opens one of three nodes so that its groups never sleep.
func TestNobodySleepsWhereOneMayNot(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2)
	c.asleep(5)
	c.close(3)
	cfg := c.config(3, nil)
	cfg.SleepTicks = -1
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[3] = n
	c.eventually("only the other group sleeps", func() bool {
		return c.nodes[1].Metrics().NodesLive == 1 && c.sleepers() == 2
	})
	before := c.sent()
	c.eventually("the first goes on", func() bool { return c.sent() > before+20 })
	if got := c.sleepers(); got != 2 {
		t.Errorf("%d replicas sleep, want 2", got)
	}
}

// TestNobodySleepsWhileASnapshotIsOnItsWay: whoever has sent one sends it while it sleeps
// otherwise, also to a member that has what it needs from elsewhere by now.
func TestNobodySleepsWhileASnapshotIsOnItsWay(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.asleep(1)
	n := c.nodes[1]
	r := n.replica(1)
	job := &sendJob{r: r, env: transport.Envelope{Message: &raftpb.Message{}}}
	rests := func() (may bool) {
		onWorker(r, func() { may = r.worker.mayRest(r) })
		return may
	}
	c.eventually("it may sleep", rests)
	onWorker(r, func() { r.sending++ })
	if rests() {
		t.Error("a replica that sends a snapshot may sleep")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it ends at once
	n.sender.send(ctx, job)
	// Something else may keep it awake for a moment.
	c.eventually("it may sleep, as what it has sent has ended", rests)
}
