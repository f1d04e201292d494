package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// poison has the state machines on some nodes fail at a word, and returns the index of the
// entry when they stand there.
func (c *cluster) poison(word string, on ...raftyard.NodeID) uint64 {
	c.t.Helper()
	c.breakWord(word, on...)
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	if _, err := c.anyNode().Propose(ctx, 1, []byte(word)); NotApplied(err) {
		c.t.Fatalf("Propose of what breaks the state machines = %v, want an unknown outcome", err)
	}
	var index uint64
	for _, id := range on {
		c.eventually("the entry is found", func() bool {
			index = c.inQuarantine(id).Index // zero while several were applied at once
			return index != 0
		})
	}
	return index
}

func (c *cluster) skip(index uint64, force bool) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	n := c.anyNode()
	rec, _ := n.registry.Group(1)
	_, err := n.SkipEntry(ctx, 1, Skip{
		Index: index, Confirm: rec.Incarnation.String(), Force: force,
	})
	return err
}

// wantStale waits until the replicas of group 1 on some nodes hold words.
func (c *cluster) wantStale(want []string, on ...raftyard.NodeID) {
	c.t.Helper()
	for _, id := range on {
		c.eventually(fmt.Sprintf("node %d holds %q", id, want), func() bool {
			return slices.Equal(c.stale(id, 1), want)
		})
	}
}

// TestPoisonedEntryIsSkipped has all state machines fail at an entry, and skips it. It is
// skipped for ever, also where the state machine would take it later.
func TestPoisonedEntryIsSkipped(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hooked", "brittle"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t, 4)
			c.awaitReady(1, 2, 3, 4)
			c.createSpec(Spec{
				ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3},
				SnapshotEntries: 20, TrailingEntries: 5,
			})
			c.add(1, 1, "a")
			index := c.poison("bad", 1, 2, 3)
			st, err := c.nodes[4].Group(t.Context(), 1)
			if p := st.Poison; err != nil || p == nil || p.Index != index || p.Bytes == 0 ||
				p.Hash == "" || len(p.Nodes) != 3 || !slices.Contains(st.Problems, "poison") {
				t.Errorf("Group = poison %+v, problems %q, %v; want entry %d of three nodes",
					st.Poison, st.Problems, err, index)
			}
			if err = c.skip(index-1, false); !errors.Is(err, ErrInvalid) {
				t.Errorf("SkipEntry of an entry that was applied = %v, want ErrInvalid", err)
			}
			_, err = c.nodes[1].SkipEntry(t.Context(), 1, Skip{Index: index, Confirm: "not it"})
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("SkipEntry without the incarnation = %v, want ErrInvalid", err)
			}
			if err := c.skip(index, false); err != nil {
				t.Fatalf("SkipEntry = %v", err)
			}
			c.wantStale([]string{"a"}, 1, 2, 3)
			want := []string{"a", "b"}
			c.add(2, 1, "b")
			c.wantStale(want, 1, 2, 3)
			c.mend()
			for _, id := range []raftyard.NodeID{1, 2, 3} {
				c.close(id)
				c.open(id, nil)
			}
			c.wantStale(want, 1, 2, 3)
			c.write(1, &want, 40) // the log is cut
			c.attach(4, 4)        // with a snapshot
			c.wantStale(want, 1, 2, 3, 4)
			if err := c.skip(index, false); !errors.Is(err, ErrInvalid) {
				t.Errorf("SkipEntry again = %v, want ErrInvalid", err)
			}
		})
	}
}

// TestSkipOfWhatOneHasApplied skips an entry by force that a node which is away has
// applied. What that one holds is replaced when it is back.
func TestSkipOfWhatOneHasApplied(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hooked", "brittle"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t, 3)
			c.createSpec(Spec{ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3}})
			c.add(1, 1, "a")
			index := c.poison("bad", 1, 2)
			c.wantStale([]string{"a", "bad"}, 3)
			if err := c.skip(index, true); !errors.Is(err, ErrInvalid) {
				t.Errorf("SkipEntry of what node 3 has applied = %v, want ErrInvalid", err)
			}
			c.close(3)
			if err := c.skip(index, false); !errors.Is(err, ErrUnhealthy) {
				t.Errorf("SkipEntry without node 3 = %v, want ErrUnhealthy", err)
			}
			if err := c.skip(index, true); err != nil {
				t.Fatalf("SkipEntry by force = %v", err)
			}
			c.wantStale([]string{"a"}, 1, 2)
			c.add(1, 1, "b")
			c.mend()
			c.open(3, nil)
			c.wantStale([]string{"a", "b"}, 1, 2, 3)
		})
	}
}
