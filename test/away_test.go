//go:build unix

package test

import (
	"cmp"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestChangesWhileAway moves one group away from a node that is down, deletes
// another, and deletes and creates a third. The node must learn of it all when it
// comes back, disturb nobody, and keep nothing that it ought not to have.
func TestChangesWhileAway(t *testing.T) {
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	groups := groupIDs(4)
	moved, deleted, again, kept := groups[0], groups[1], groups[2], groups[3]
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	for _, g := range groups {
		if err := put(t, c.Node(1), g, "old", []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	verifyHashes(t, c.Nodes()[:3], groups)

	away := c.Node(3)
	away.Kill()
	others := []*cluster.Node{c.Node(1), c.Node(2), c.Node(4)}
	a := c.Node(1).SetMembers(
		t.Context(), moved, client.Members{Voters: []raftyard.NodeID{1, 2, 4}}, moveLimit)
	if a.Error() != nil {
		t.Fatal(a)
	}
	for _, g := range []raftyard.GroupID{deleted, again} {
		if a := c.Node(2).Delete(t.Context(), g); a.Error() != nil {
			t.Fatal(a)
		}
	}
	// Of a group with a member that is down the creation is decided, and goes on.
	if a := c.Node(1).Create(t.Context(), again, kvGroup(1, 2, 3)); a.Error() != nil {
		t.Fatal(a)
	}
	for _, g := range []raftyard.GroupID{moved, again, kept} {
		if err := put(t, c.Node(2), g, "new", []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	before := raftOf(t, c.Node(1), moved)

	away.Start()
	begun := time.Now()
	c.AwaitReady(startLimit)
	cluster.Eventually(t, moveLimit, "node 3 is in step", func() error {
		return cmp.Or(
			hasReplica(t, away, moved, []raftyard.NodeID{1, 2, 4}),
			isGone(t, away, deleted),
			hasMembers(t, away, again, []raftyard.NodeID{1, 2, 3}),
			hasReplica(t, away, again, []raftyard.NodeID{1, 2, 3}),
		)
	})
	t.Logf("all that it had to learn it has learnt %.2fs after its start",
		time.Since(begun).Seconds())
	wantKeys(t, c, again, "new")
	wantKeys(t, c, kept, "new", "old")
	wantKeys(t, c, moved, "new", "old")
	verifyHashes(t, c.Nodes()[:3], []raftyard.GroupID{again, kept})
	verifyHashes(t, others, []raftyard.GroupID{moved})
	// It stays so.
	span := cluster.Sized(2*time.Second, time.Minute)
	watchQuiet(t, c.Node(1), moved, before, span, func() error {
		return cmp.Or(
			hasReplica(t, away, moved, []raftyard.NodeID{1, 2, 4}), isGone(t, away, deleted),
		)
	})

	// Also when the node starts again.
	away.Kill()
	away.Start()
	c.AwaitReady(startLimit)
	if err := cmp.Or(
		hasReplica(t, away, moved, []raftyard.NodeID{1, 2, 4}), isGone(t, away, deleted),
	); err != nil {
		t.Error(err)
	}
	wantKeys(t, c, again, "new")
	verifyDisks(t, c, placed{
		moved: {1, 2, 4}, again: {1, 2, 3}, kept: {1, 2, 3},
	})
}

// watchQuiet looks at a group through a node for a time, in which neither its leader nor
// its term may change, and a check must hold.
func watchQuiet(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, before cluster.Raft, span time.Duration,
	check func() error,
) {
	t.Helper()
	until := time.Now().Add(span)
	cluster.Eventually(t, span+startLimit, "time goes by", func() error {
		r := raftOf(t, n, g)
		if r.Term != before.Term || r.Leader != before.Leader {
			t.Fatalf("group %d was led by replica %d at term %d, and is by %d at term %d",
				g, before.Leader, before.Term, r.Leader, r.Term)
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		return want(time.Now().After(until), "not yet")
	})
}
