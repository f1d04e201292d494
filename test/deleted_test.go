//go:build unix

package test

import (
	"cmp"
	"net/http"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestDeletedWithoutMembers deletes groups while one of three members is down, and while
// two are. The one must be remembered for the node that is down; the other must be
// refused, unless it is forced by somebody who names the very group. The id must be free
// for another group at once, and in the end nothing of the old ones may be anywhere.
func TestDeletedWithoutMembers(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 5})
	c.Start()
	groups := groupIDs(2)
	plain, forced := groups[0], groups[1]
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	for _, g := range groups {
		for i := range 20 {
			key := "old-" + raftyard.NodeID(i).String()
			if err := put(t, c.Nodes()[i%5], g, key, make([]byte, 64<<10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Node(3).Kill()
	if a := c.Node(4).Delete(t.Context(), plain); a.Status != http.StatusOK {
		t.Fatalf("delete a group of which one of three is down: %v", a)
	}
	// The cluster goes on, the group does not.
	c.Node(2).Kill()
	up := []*cluster.Node{c.Node(1), c.Node(4), c.Node(5)}
	for _, n := range up {
		a := n.Delete(t.Context(), forced)
		if a.Outcome != cluster.NotApplied || a.Why != client.CodeNoQuorum {
			t.Errorf("delete a group of which two of three are down: %v", a)
		}
	}
	was, err := c.Node(5).Group(t.Context(), forced)
	if err != nil {
		t.Fatalf("the group is to be there: %v", err)
	}
	a := c.Node(4).ForceDelete(t.Context(), forced, "01234567-89ab-4cde-8f01-23456789abcd")
	if a.Outcome != cluster.NotApplied {
		t.Errorf("another group is deleted than was named: %v", a)
	}
	a = c.Node(4).ForceDelete(t.Context(), forced, was.Incarnation)
	if a.Status != http.StatusOK {
		t.Fatalf("delete by force: %v", a)
	}
	t.Logf("deleted by force: %s", a.Body)
	for _, n := range up {
		for _, g := range groups {
			cluster.Eventually(t, moveLimit, "it is gone", func() error { return isGone(t, n, g) })
		}
	}
	createGroups(t, up, groups, kvGroup(1, 4, 5))
	for _, g := range groups {
		if err := put(t, c.Node(1), g, "new", []byte("value")); err != nil {
			t.Error(err)
		}
	}
	c.Node(2).Start()
	c.Node(3).Start()
	c.AwaitReady(startLimit)
	for _, g := range groups {
		awaitPlaced(t, c.Nodes(), g, []raftyard.NodeID{1, 4, 5})
		wantKeys(t, c, g, "new")
		verifyHashes(t, up, []raftyard.GroupID{g})
	}
	verifyDisks(t, c, placed{plain: {1, 4, 5}, forced: {1, 4, 5}})
}

// TestForgotten deletes a group, and has the cluster forget it: no tombstone may stay,
// once every node has cleaned up, and none may go before.
func TestForgotten(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	const g = 1
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2, 3))
	if err := put(t, c.Node(1), g, "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if a := c.Node(4).Forget(t.Context(), g); a.Outcome != cluster.NotApplied {
		t.Errorf("forget a group that is not deleted: %v", a)
	}
	c.Node(3).Kill()
	if a := c.Node(4).Delete(t.Context(), g); a.Error() != nil {
		t.Fatal(a)
	}
	if a := c.Node(1).Forget(t.Context(), g); a.Error() == nil {
		t.Errorf("a group is forgotten of which node 3 has not cleaned up: %v", a)
	}
	c.Node(3).Start()
	c.AwaitReady(startLimit)
	cluster.Eventually(t, moveLimit, "it can be forgotten", func() error {
		a := c.Node(2).Forget(t.Context(), g)
		if a.Why == client.CodeGroupNotFound { // by one of the attempts before
			return nil
		}
		return a.Error()
	})
	for _, n := range c.Nodes() {
		cluster.Eventually(t, moveLimit, "it is gone", func() error { return isGone(t, n, g) })
	}
	disks := stoppedDisks(t, c)
	for i, d := range disks {
		for j := range d.Replicas {
			if r := &d.Replicas[j]; r.Group == g {
				t.Errorf("node %d remembers group %d: %+v", i+1, g, r)
			}
		}
	}
	for _, n := range c.Nodes() {
		n.Start()
	}
	c.AwaitReady(startLimit)
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(2, 3, 4))
	wantKeys(t, c, g)
	awaitPlaced(t, c.Nodes(), g, []raftyard.NodeID{2, 3, 4})
	_, err := c.Node(1).Group(t.Context(), g)
	if err = cmp.Or(err, put(t, c.Node(1), g, "key", []byte("value"))); err != nil {
		t.Error(err)
	}
	verifyDisks(t, c, placed{g: {2, 3, 4}})
}
