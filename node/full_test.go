package node

import "testing"

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
	c.moveLeader(1, 2)
	c.add(3, 1, "b")
	if leader, ok := c.nodes[3].Leader(1); ok && leader == 2 {
		t.Error("node 3 has heard of the new leader")
	}
	c.held[3].Store(false)
	close(release)
	c.wantWords(3, 1, "a", "b")
}
