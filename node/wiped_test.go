package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// wipe takes the data directory of a node that is down.
func (c *cluster) wipe(id raftyard.NodeID) {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Join(c.dir, id.String())); err != nil {
		c.t.Fatal(err)
	}
}

// member returns a group's member on a node, as another node knows it.
func (c *cluster) member(at raftyard.NodeID, g raftyard.GroupID, on raftyard.NodeID) group.Member {
	r := c.nodes[at].replica(g)
	if r == nil {
		return group.Member{}
	}
	m, _ := r.view.Load().State.Descriptor.MemberOn(on)
	return m
}

// backInPlace waits until a node is ready and has voting replicas of groups, the system
// group among them, in the directory that it has now and under ids above those before.
func (c *cluster) backInPlace(
	id, at raftyard.NodeID, before map[raftyard.GroupID]raftyard.ReplicaID,
) {
	c.t.Helper()
	c.awaitReady(id)
	for _, g := range []raftyard.GroupID{0, 1, 2} {
		old, there := before[g]
		if !there {
			continue
		}
		c.eventually("its replica is replaced", func() bool {
			m, r := c.member(at, g, id), c.nodes[id].replica(g)
			return m.Role == group.Voter && m.ID > old && m.Store == c.nodes[id].ownStore() &&
				r != nil && r.serving() && r.id == m.ID && r.view.Load().initialized()
		})
	}
}

// ids returns the replica ids that a node has.
func (c *cluster) ids(id raftyard.NodeID) map[raftyard.GroupID]raftyard.ReplicaID {
	ids := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for _, r := range c.nodes[id].allReplicas() {
		ids[r.group] = r.id
	}
	return ids
}

// TestWipedNodeComesBack takes the directory of each of three nodes, one after the
// other. Each comes back under new replica ids, with all that the groups have.
func TestWipedNodeComesBack(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2, 3)
	c.add(1, 1, "a")
	c.add(1, 2, "b")
	for _, id := range []raftyard.NodeID{3, 1, 2} {
		at := id%3 + 1
		c.eventually("all are members", func() bool {
			return c.systemIs(at, nodeIDs(1, 2, 3), nil) && len(c.problems(at, 1)) == 0 &&
				len(c.problems(at, 2)) == 0
		})
		before := c.ids(id)
		c.close(id)
		c.wipe(id)
		c.add(at, 1, "while "+id.String()+" was away")
		c.open(id, nil)
		c.backInPlace(id, at, before)
	}
	words := []string{"a", "while 3 was away", "while 1 was away", "while 2 was away"}
	for id := range raftyard.NodeID(3) {
		c.wantWords(id+1, 1, words...)
		c.wantWords(id+1, 2, "b")
	}
	c.close(2)
	c.add(1, 1, "last")
	c.wantWords(3, 1, slices.Concat(words, []string{"last"})...)
}

// TestForcedDeletionLetsAWipedNodeIn has groups that cannot do without the directory that a
// node has lost: it is kept out, since what they had may only be there. They can be given
// up one by one, by who says which; the others lose nothing.
func TestForcedDeletionLetsAWipedNodeIn(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 2, 3) // has no majority without it
	c.create(3, 3)    // has nothing
	for _, g := range []raftyard.GroupID{1, 2, 3} {
		c.add(3, g, "kept")
	}
	c.eventually("all are members", func() bool {
		return c.systemIs(1, nodeIDs(1, 2, 3), nil) && len(c.problems(1, 1)) == 0
	})
	before := c.ids(3)
	in := c.incarnation(1, 3)
	c.close(3)
	c.wipe(3)
	c.open(3, nil)
	waitsFor := func(named ...string) {
		t.Helper()
		c.eventually("it says what keeps the node out", func() bool {
			st, err := c.nodes[1].NodeStatus(t.Context(), 3)
			if err != nil || !strings.Contains(st.Problem, "delete them by force") {
				return false
			}
			for _, g := range []string{"group 1 ", "group 2 ", "group 3 "} {
				if strings.Contains(st.Problem, g) != slices.Contains(named, g) {
					return false
				}
			}
			return true
		})
	}
	waitsFor("group 2 ", "group 3 ")
	// The other voter of group 2 stops it, the one of group 3 may go on where it is.
	if err := c.nodes[1].DeleteGroup(within(t, testTimeout), 2); err != nil {
		t.Fatalf("DeleteGroup(2) = %v", err)
	}
	waitsFor("group 3 ")
	if err := c.nodes[1].DeleteGroup(within(t, testTimeout), 3); !errors.Is(err, ErrNoQuorum) {
		t.Fatalf("DeleteGroup(3) = %v, want ErrNoQuorum", err)
	}
	err := c.nodes[1].ForceDeleteGroup(within(t, testTimeout), 3, in)
	if !errors.Is(err, ErrNotReached) {
		t.Fatalf("ForceDeleteGroup(3) = %v, want ErrNotReached", err)
	}
	c.backInPlace(3, 1, map[raftyard.GroupID]raftyard.ReplicaID{0: before[0], 1: before[1]})
	c.wantWords(3, 1, "kept")
	for _, g := range []raftyard.GroupID{2, 3} {
		// Nobody can go on with them any more: the directory is given up.
		if err := c.nodes[1].DeleteGroup(within(t, testTimeout), g); err != nil {
			t.Errorf("DeleteGroup(%d) again = %v", g, err)
		}
		c.create(g, 2, 3)
		c.add(1, g, "new")
		c.wantWords(3, g, "new")
	}
}
