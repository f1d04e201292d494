package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestNobodyWaitsForWhatWillNotCome has somebody wait for members that cannot be reached
// yet, and somebody else decide otherwise meanwhile.
func TestNobodyWaitsForWhatWillNotCome(t *testing.T) {
	t.Parallel()
	back := Members{Voters: []raftyard.NodeID{1, 2, 3}}
	tests := []struct {
		name   string
		decide func(ctx context.Context, n *Node) error
	}{
		{"the group is deleted", func(ctx context.Context, n *Node) error {
			return n.DeleteGroup(ctx, 1)
		}},
		{"other members are wanted", func(ctx context.Context, n *Node) error {
			_, err := n.SetMembers(ctx, 1, back, false)
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 4)
			c.create(1, 1, 2, 3)
			c.close(4)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				away := Members{Voters: []raftyard.NodeID{2, 3, 4}}
				_, err := c.nodes[1].SetMembers(ctx, 1, away, true)
				ended <- err
			}()
			c.eventually("the members are decided", func() bool {
				rec, _ := c.nodes[2].registry.Group(1)
				return len(rec.Voters) == 3 && rec.Voters[2] == 4
			})
			begun := time.Now()
			if err := tt.decide(ctx, c.nodes[2]); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, ErrNotReached) || NotApplied(err) {
				t.Errorf("SetMembers = %v, want ErrNotReached, with an effect", err)
			}
			if took := time.Since(begun); took > testTimeout/2 {
				t.Errorf("it went on waiting for %v", took)
			}
		})
	}
}
