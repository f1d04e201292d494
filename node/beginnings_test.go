package node

import (
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// TestBeginsOnce has the disk of the node on which a group began lose every trace of that,
// when the group is on others: nobody but those can tell.
func TestBeginsOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	rec, _ := c.nodes[1].registry.Group(1)
	seed := rec.Seed
	others := slices.DeleteFunc(nodeIDs(1, 2, 3), func(id raftyard.NodeID) bool {
		return id == seed
	})
	want := Members{Voters: others}
	if _, err := c.nodes[others[0]].SetMembers(t.Context(), 1, want, true); err != nil {
		t.Fatal(err)
	}
	c.eventually("nothing but a tombstone is left on the seed", func() bool {
		n := c.nodes[seed]
		st, ok := n.store.Replica(1)
		return ok && st.Tombstone != nil && st.Tombstone.Purged && !n.store.Remains(1)
	})
	c.close(seed)
	c.editStore(seed, func(b *storage.Batch) { b.Forget(1) })
	c.open(seed, nil)
	c.eventually("it knows that the group has begun", func() bool {
		st, ok := c.nodes[seed].store.Replica(1)
		if ok && st.Tombstone == nil {
			t.Fatalf("the group begins again, as %+v", st)
		}
		return ok && st.Tombstone.NextReplica == 2 && st.Tombstone.Purged
	})
	held, err := c.nodes[seed].holding(t.Context(), question{
		group: 1, incarnation: rec.Incarnation,
	})
	if err != nil || held.Live || held.Whole || held.Replica != 1 {
		t.Errorf("it says %+v, %v; want that replica 1 has been there, and no more is known",
			held, err)
	}
	c.add(seed, 1, "b")
	c.wantWords(others[0], 1, "a", "b")
	// It is a member again, under a new id.
	want.Learners = []raftyard.NodeID{seed}
	if _, err := c.nodes[others[0]].SetMembers(t.Context(), 1, want, true); err != nil {
		t.Fatal(err)
	}
	c.wantWords(seed, 1, "a", "b")
}

// TestBeginsWhenItsNodeComes creates a group while the node is down on which it is to begin.
func TestBeginsWhenItsNodeComes(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.close(3)
	c.eventually("it is away", func() bool { return !c.nodes[1].liveNodes()[3] })
	begun := make(chan error, 1)
	ctx := within(t, testTimeout)
	go func() {
		_, err := c.nodes[1].CreateGroup(ctx, Spec{ID: 7, Kind: "list", Voters: nodeIDs(3)})
		begun <- err
	}()
	c.eventually("it is created", func() bool {
		_, ok := c.nodes[1].registry.Group(7)
		return ok
	})
	c.open(3, nil)
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	c.add(1, 7, "a")
	c.wantWords(3, 7, "a")
}
