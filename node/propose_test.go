package node

import (
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestAsksTheOnlyMemberAgain: the node where a group began has no replica of it any more,
// and the only member that there is does not answer the first time. It is asked again.
func TestAsksTheOnlyMemberAgain(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 3) // its seed
	c.add(3, 1, "before")
	ctx := within(t, testTimeout)
	if _, err := c.nodes[2].SetMembers(ctx, 1, Members{Voters: nodeIDs(1)}, true); err != nil {
		t.Fatal(err)
	}
	c.eventually("the replica of node 3 is gone", func() bool {
		return c.nodes[3].replica(1) == nil
	})
	c.close(1)
	asked := make(chan error, 1)
	go func() {
		_, err := c.nodes[3].Query(ctx, 1, Linearizable, nil)
		asked <- err
	}()
	c.eventually("node 3 has tried, and has nobody who leads", func() bool {
		_, known := c.nodes[3].Leader(1)
		return !known
	})
	c.open(1, nil)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
}

func TestNextToAsk(t *testing.T) {
	for _, tc := range []struct {
		name    string
		members []raftyard.NodeID
		avoid   raftyard.NodeID
		want    []raftyard.NodeID
	}{
		{name: "nobody"},
		{name: "only this node", members: nodeIDs(3), want: nil},
		{name: "the others", members: nodeIDs(1, 2, 3), want: nodeIDs(1, 2)},
		{name: "not the same again", members: nodeIDs(1, 2), avoid: 1, want: nodeIDs(2)},
		{name: "nobody else", members: nodeIDs(1), avoid: 1, want: nodeIDs(1)},
		{name: "nobody else but this node", members: nodeIDs(1, 3), avoid: 1, want: nodeIDs(1)},
		{name: "nobody else, named twice", members: nodeIDs(1, 1), avoid: 1, want: nodeIDs(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const self = 3
			got := whomToAsk(slices.Clone(tc.members), self, tc.avoid)
			if !slices.Equal(got, tc.want) {
				t.Errorf("of %v, avoiding %d: %v, want %v", tc.members, tc.avoid, got, tc.want)
			}
		})
	}
}
