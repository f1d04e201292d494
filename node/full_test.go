package node

import (
	"context"
	"slices"
	"testing"
)

// TestDeposedOnAFullDisk: a leader whose commits wait for space, and which another one has
// followed meanwhile, does not say for as long as that lasts that it leads.
func TestDeposedOnAFullDisk(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.moveLeader(1, 3)
	there, release := make(chan struct{}), make(chan struct{})
	c.nodes[3].committer.submit(write{kind: writeNothing, done: func(error) {
		close(there)
		<-release // as a commit does that waits for space
	}})
	<-there
	c.held[3].Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan error, 1)
	go func() {
		_, err := c.nodes[3].Propose(ctx, 1, []byte("b"))
		written <- err
	}()
	c.eventually("another one leads", func() bool {
		leader, ok := c.nodes[1].Leader(1)
		return ok && leader != 3
	})
	c.eventually("node 3 does not say that it leads", func() bool {
		leader, ok := c.nodes[3].Leader(1)
		return !ok || leader != 3
	})
	cancel()
	c.held[3].Store(false)
	close(release)
	t.Logf("what it was asked to write: %v", <-written)
	c.eventually("node 3 knows who leads", func() bool {
		leader, ok := c.nodes[3].Leader(1)
		return ok && leader != 3
	})
}

// TestRequestsPassAFullNode: a node whose log waits for space hears of no new leader. What is
// asked of it goes to the others all the same, and does not wait for that.
func TestRequestsPassAFullNode(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.moveLeader(1, 1)
	c.eventually("node 3 knows", func() bool {
		leader, ok := c.nodes[3].Leader(1)
		return ok && leader == 1
	})
	there, release := make(chan struct{}), make(chan struct{})
	c.nodes[3].committer.submit(write{kind: writeNothing, done: func(error) {
		close(there)
		<-release // as a commit does that waits for space
	}})
	<-there
	c.held[3].Store(true)
	// A replica that waits for its write hears of nothing.
	c.add(1, 1, "b")
	c.eventually("the group's replica on node 3 waits for its write", func() bool {
		c.nodes[3].committer.mu.Lock()
		defer c.nodes[3].committer.mu.Unlock()
		return slices.ContainsFunc(c.nodes[3].committer.pending, func(w write) bool {
			return w.group == 1
		})
	})
	c.moveLeader(1, 2)
	c.add(3, 1, "c")
	if leader, ok := c.nodes[3].Leader(1); ok && leader == 2 {
		t.Error("node 3 has heard of the new leader")
	}
	c.held[3].Store(false)
	close(release)
	c.wantWords(3, 1, "a", "b", "c")
}
