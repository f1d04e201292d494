package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestThroughALogOnlyLeader: no voter has the state, only learners have. Requests come from
// a learner, the leader, a follower and a node that is no member, while snapshots are taken.
func TestThroughALogOnlyLeader(t *testing.T) {
	t.Parallel()
	c := newLogOnlyCluster(t, 5, 2, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "kept", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err := c.nodes[4].SetMembers(ctx, 1, Members{
		Voters: []raftyard.NodeID{2, 3}, Learners: []raftyard.NodeID{1, 4},
	}, true)
	if err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	const each = 40
	var wg sync.WaitGroup
	for id := range raftyard.NodeID(5) {
		wg.Go(func() {
			for i := range each {
				cmd := fmt.Sprintf("%d-%d", id+1, i)
				res, err := c.nodes[id+1].Propose(ctx, 1, []byte(cmd))
				if err != nil {
					t.Errorf("propose %s: %v", cmd, err)
					return
				}
				// The answer says which word it was, and a read sees it there.
				at := binary.BigEndian.Uint64(res.Data)
				words := c.words(id+1, 1)
				if uint64(len(words)) < at || words[at-1] != cmd || res.Index == 0 {
					t.Errorf("%s is said to be word %d of %q", cmd, at, words)
				}
			}
		})
	}
	wg.Wait()
	words := c.words(5, 1)
	different := slices.Compact(slices.Sorted(slices.Values(words)))
	if len(words) != 5*each || len(different) != 5*each {
		t.Errorf("%d words, %d of them different, want %d", len(words), len(different), 5*each)
	}
	for _, id := range []raftyard.NodeID{1, 4} {
		e := &c.nodes[id].replica(1).machine.expected
		e.mu.Lock()
		n := len(e.m)
		e.mu.Unlock()
		if n != 0 {
			t.Errorf("%d commands are still expected on node %d", n, id)
		}
	}
}
