//go:build unix

package test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// moveLimit is how long a change of members may take.
const moveLimit = 60 * time.Second

// TestCreateMoveDelete creates groups, moves them to other nodes and back, and
// deletes them, while clients write to them through all nodes. No request may
// fail otherwise than by a named problem with a known outcome, nothing that was
// acknowledged may be lost, and no replica may stay where none is wanted.
func TestCreateMoveDelete(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	groups := groupIDs(cluster.Sized(3, 16))
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = 300 // some of the new replicas begin with a snapshot

	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: cluster.Sized(12, 48),
		keys: cluster.Sized(2_000, 20_000), size: 150,
	})
	l.start(t)
	l.grant(1, 1)
	create(t, c, groups, spec)
	l.awaitApplied(t, 200)

	before := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for round := range cluster.Sized(2, 8) {
		for _, g := range groups {
			r, err := c.Node(1).Raft(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			if r.Replica.Replica <= before[g] {
				t.Errorf("group %d: replica %d on node 1 again after it was removed; it was %d",
					g, r.Replica.Replica, before[g])
			}
			before[g] = r.Replica.Replica
		}
		begun := time.Now()
		moveAll(t, c, groups, 2, 3, 4)
		away := time.Since(begun)
		l.awaitApplied(t, 200)
		begun = time.Now()
		moveAll(t, c, groups, 1, 2, 3)
		t.Logf("round %d: %d groups moved 1,2,3 → 2,3,4 in %.2fs and back in %.2fs",
			round+1, len(groups), away.Seconds(), time.Since(begun).Seconds())
		l.awaitApplied(t, 200)
	}
	moveAll(t, c, groups, 2, 3, 4)
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	l.verifyLists(t, c.Nodes())
	verifyHashes(t, []*cluster.Node{c.Node(2), c.Node(3), c.Node(4)}, groups)

	deleteUnderLoad(t, c, groups)
	// The id can be used again, and nothing of what was there comes back.
	create(t, c, groups, kvGroup(1, 2, 3))
	for _, n := range c.Nodes() {
		err := n.List(t.Context(), groups[0], client.Linearizable, func(item client.Item) {
			t.Errorf("node %d: key %s is back in a new group", n.ID(), item.Key)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// create creates the groups, and checks that every node knows each at once.
func create(
	t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID, spec client.Spec,
) {
	t.Helper()
	createGroups(t, c.Nodes(), groups, spec)
	for _, g := range groups {
		for _, n := range c.Nodes() {
			if err := hasMembers(t, n, g, spec.Voters); err != nil {
				t.Errorf("just after its creation: %v", err)
			}
		}
	}
}

// moveAll gives every group other members, all groups at the same time, and
// checks that they have them on every node, and that nothing stays behind.
func moveAll(
	t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID, voters ...raftyard.NodeID,
) {
	t.Helper()
	err := eachGroup(groups, len(groups), func(i int, g raftyard.GroupID) error {
		a := c.Nodes()[i%len(c.Nodes())].SetMembers(
			t.Context(), g, client.Members{Voters: voters}, moveLimit)
		if err := a.Error(); err != nil {
			return fmt.Errorf("move group %d to %v: %w", g, voters, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, n := range c.Nodes() {
			cluster.Eventually(t, moveLimit, "the members are known everywhere", func() error {
				return cmp.Or(hasMembers(t, n, g, voters), hasReplica(t, n, g, voters))
			})
		}
	}
}

// hasMembers checks which members a node says a group has.
func hasMembers(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, voters []raftyard.NodeID,
) error {
	got, err := n.Group(t.Context(), g)
	if err != nil {
		return err
	}
	var members []raftyard.NodeID
	for _, m := range got.Members {
		if m.Role != "voter" {
			return fmt.Errorf("node %d: group %d: node %d is a %s", n.ID(), g, m.Node, m.Role)
		}
		members = append(members, m.Node)
	}
	slices.Sort(members)
	return want(slices.Equal(members, voters) && slices.Equal(got.Voters, voters),
		"node %d: group %d has members %v, wants %v; it ought to be %v",
		n.ID(), g, members, got.Voters, voters)
}

// hasReplica checks that a node has a replica just if it is a member.
func hasReplica(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, voters []raftyard.NodeID,
) error {
	r, err := n.Raft(t.Context(), g)
	if slices.Contains(voters, n.ID()) {
		return cmp.Or(err, want(r.Fault == "", "node %d: group %d: %s", n.ID(), g, r.Fault))
	}
	return isProblem(err, client.CodeNoReplica)
}

// isProblem returns nil if err is a problem with one of the codes.
func isProblem(err error, codes ...string) error {
	p, ok := errors.AsType[*client.Problem](err)
	return want(ok && slices.Contains(codes, p.Code), "got %v, want a problem of %v", err, codes)
}

// deleteUnderLoad deletes groups that are written to, and checks that they are
// gone everywhere.
func deleteUnderLoad(t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID) {
	t.Helper()
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: 12, keys: 100_000, prefix: "last", size: 150,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 200)
	begun := time.Now()
	err := eachGroup(groups, len(groups), func(i int, g raftyard.GroupID) error {
		a := c.Nodes()[i%len(c.Nodes())].Delete(t.Context(), g)
		return a.Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	decided := time.Since(begun)
	for _, g := range groups {
		for _, n := range c.Nodes() {
			cluster.Eventually(t, moveLimit, "the group is gone", func() error {
				return isGone(t, n, g)
			})
		}
	}
	t.Logf("%d groups deleted in %.2fs, gone everywhere after %.2fs",
		len(groups), decided.Seconds(), time.Since(begun).Seconds())
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	// Once more is a success, too.
	if a := c.Node(1).Delete(t.Context(), groups[0]); a.Status != http.StatusOK {
		t.Errorf("delete a deleted group: %v", a)
	}
}

// isGone checks that a node neither knows a group nor has anything of it.
func isGone(t *testing.T, n *cluster.Node, g raftyard.GroupID) error {
	_, err := n.Group(t.Context(), g)
	if err = isProblem(err, client.CodeGroupNotFound); err != nil {
		return fmt.Errorf("node %d: group %d: %w", n.ID(), g, err)
	}
	_, err = n.Raft(t.Context(), g)
	if err = isProblem(err, client.CodeGroupNotFound, client.CodeNoReplica); err != nil {
		return fmt.Errorf("node %d: raft of group %d: %w", n.ID(), g, err)
	}
	return nil
}
