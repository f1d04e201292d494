//go:build unix

package test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/test/cluster"
)

// placed says on which nodes groups have a replica. A group that is not in it has
// none anywhere.
type placed map[raftyard.GroupID][]raftyard.NodeID

// awaitPlaced waits until every node says that a group has just these voters, and has a
// replica if it is one of them, and none otherwise.
func awaitPlaced(
	t *testing.T, nodes []*cluster.Node, g raftyard.GroupID, voters []raftyard.NodeID,
) {
	t.Helper()
	voters = slices.Sorted(slices.Values(voters))
	for _, n := range nodes {
		what := fmt.Sprintf("node %d is as it ought to be", n.ID())
		cluster.Eventually(t, moveLimit, what, func() error {
			if err := hasMembers(t, n, g, voters); err != nil {
				return err
			}
			return hasReplica(t, n, g, voters)
		})
	}
}

// verifyDisks stops the nodes and looks at their disks: each must have a sound replica
// of each group that has a member there, the same group everywhere, and nothing of any
// other group or replica, but tombstones.
func verifyDisks(t *testing.T, c *cluster.Cluster, where placed) {
	t.Helper()
	disks := stoppedDisks(t, c)
	incarnations := make(map[raftyard.GroupID]raftyard.Incarnation)
	for i, n := range c.Nodes() {
		if err := verifyDisk(disks[i], n.ID(), where, incarnations); err != nil {
			t.Errorf("on the disk of node %d: %v", n.ID(), err)
		}
	}
}

// stoppedDisks stops all nodes and returns what is on their disks. Nodes that were
// interrupted in deleting something are given the time for it.
func stoppedDisks(t *testing.T, c *cluster.Cluster) []cluster.Disk {
	t.Helper()
	const tries = 5
	for try := 1; ; try++ {
		var running []*cluster.Node
		for _, n := range c.Nodes() {
			if n.Running() {
				running = append(running, n)
			}
		}
		terminate(t, running...)
		disks := readDisks(t, c.Nodes())
		if try == tries || !slices.ContainsFunc(disks, cluster.Disk.Purging) {
			return disks
		}
		for _, n := range running {
			n.Start()
		}
		c.AwaitReady(startLimit)
	}
}

func readDisks(t *testing.T, nodes []*cluster.Node) []cluster.Disk {
	t.Helper()
	disks, errs := make([]cluster.Disk, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { disks[i], errs[i] = n.Disk() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return disks
}

// verifyDisk checks one disk, and that the groups on it are those of the other disks.
func verifyDisk(
	d cluster.Disk, n raftyard.NodeID, where placed,
	incarnations map[raftyard.GroupID]raftyard.Incarnation,
) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range d.Replicas {
		r := &d.Replicas[i]
		switch {
		case r.Group == raftyard.SystemGroup:
		case r.Tombstone != nil && !r.Tombstone.Purged:
			wrong("something of replica %d of group %d is still to be deleted", r.ID, r.Group)
		case r.Tombstone == nil && !slices.Contains(where[r.Group], n):
			wrong("there is replica %d of group %d, which has its members on %v",
				r.ID, r.Group, where[r.Group])
		case r.Damage != nil:
			wrong("replica %d of group %d: %w", r.ID, r.Group, r.Damage)
		}
	}
	for g, nodes := range where {
		r, ok := d.Live(g)
		if !ok && slices.Contains(nodes, n) {
			wrong("there is no replica of group %d", g)
		}
		if ok {
			errs = append(errs, sameIncarnation(incarnations, &r))
		}
	}
	if left := d.Leftovers(); len(left) > 0 {
		wrong("there is left of replicas that are gone: %s", strings.Join(left, ", "))
	}
	return errors.Join(errs...)
}

// sameIncarnation checks that a group is the same everywhere.
func sameIncarnation(
	seen map[raftyard.GroupID]raftyard.Incarnation, r *storage.Replica,
) error {
	if first, ok := seen[r.Group]; ok && first != r.Incarnation {
		return fmt.Errorf("group %d is incarnation %s, elsewhere %s", r.Group, r.Incarnation, first)
	}
	seen[r.Group] = r.Incarnation
	return nil
}
