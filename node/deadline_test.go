package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/group"
)

// TestWhatTheLeaderKnowsIsHeard: a command waits in the leader's queue, behind a write that
// takes long, until its time is over. The leader takes it back, and the node that has passed
// it on must hear so, also if the answer is under way for a moment.
func TestWhatTheLeaderKnowsIsHeard(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	c.add(2, 1, "a")
	r := c.nodes[1].replica(1)
	onWorker(r, func() { r.busy = true })
	defer onWorker(r, func() { r.busy = false })
	var wg sync.WaitGroup
	for _, kind := range []uint8{askPropose, askAppend, askThrough} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			p := group.Proposal{ID: group.CommandID{1, kind}, Data: []byte("never")}
			var err error
			if kind == askAppend {
				_, err = c.nodes[2].appendAt(ctx, 1, r, p)
			} else {
				_, err = c.nodes[2].proposeAt(ctx, 1, kind, 1, p)
			}
			if !NotApplied(err) {
				t.Errorf("request %d: %v, want not applied", kind, err)
			}
		})
	}
	wg.Wait()
}
