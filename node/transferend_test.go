package node

import (
	"testing"

	"github.com/raftyard/raftyard"
)

// TestTransferEndsWithTheLeaderChange: who hands a thousand groups over, one after the
// other, must not wait for a tick of each.
func TestTransferEndsWithTheLeaderChange(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	// Now and then a tick comes in between, and on a busy machine most of the time.
	c.eventually("a transfer ends without a tick", func() bool {
		from := c.leader(1)
		return from != 0 && c.ticksOfTransfer(from, from%3+1) == 0
	})
}

// ticksOfTransfer hands group 1 over and returns how many ticks have passed until its
// leader was content, or -1 if nobody has taken over.
func (c *cluster) ticksOfTransfer(from, to raftyard.NodeID) int {
	c.t.Helper()
	r := c.nodes[from].replica(1)
	done := make(chan error, 1)
	var transfer *transfer
	onWorker(r, func() {
		r.worker.beginTransfer(r, to, done)
		transfer = r.steering.transfer
	})
	if err := <-done; err != nil || transfer == nil {
		return -1
	}
	return transfer.ticks
}
