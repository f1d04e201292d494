package sim

import (
	"context"
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// TestSnapshotsDoNotWaitForTheKind takes a replica off a node that has lost the kind. The
// directory waits until the kind is known again, the snapshot in it does not: that is the
// node's own.
func TestSnapshotsDoNotWaitForTheKind(t *testing.T) {
	const g raftyard.GroupID = 1
	s := Start(t, Config{Seed: 35, Nodes: 3, Groups: 1})
	if kind := s.w.kindOf(g); kind != "memory" {
		t.Fatalf("group %d is %s", g, kind)
	}
	s.Until("the group has a leader, and the nodes are ready", func() bool {
		return s.Leader(g) != 0 && !slices.ContainsFunc(s.w.hosts, (*host).unready)
	})
	leader := s.Leader(g)
	goes := other(leader)
	for s.snapshotsOf(goes, g) == 0 {
		if _, err := s.Propose(leader, g, aPut()); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill(goes)
	s.Lack(goes, true)
	s.Restart(goes)
	s.Until("it is ready", func() bool { return !s.w.host(goes).unready() })
	if got := s.snapshotsOf(goes, g); got == 0 {
		t.Fatal("there is no snapshot that could wait")
	}
	rest := node.Members{Voters: []raftyard.NodeID{leader, other(leader, goes)}}
	if err := s.On(leader, func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, g, rest, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Until("the replica has gone", func() bool {
		_, here := s.replica(goes, g)
		return !here
	})
	s.Until("its snapshot has gone", func() bool { return s.snapshotsOf(goes, g) == 0 })
	if got := len(s.leftOf(goes, g)); got != 1 {
		t.Errorf("%d directories are left, want the one that waits", got)
	}
	s.w.measure()
	if f := s.w.result(); f != nil {
		t.Error(f)
	}
}

// snapshotsOf counts the snapshot files that a node has of a group.
func (s *Script) snapshotsOf(id raftyard.NodeID, g raftyard.GroupID) (count int) {
	files := s.w.host(id).disk.Files()
	if there, err := files.Exists("/data/replicas"); err != nil || !there {
		return 0
	}
	for _, dir := range s.leftOf(id, g) {
		names, err := files.ReadDir("/data/replicas/" + dir)
		if err != nil {
			s.t.Fatal(err)
		}
		count += snapshotsAmong(names)
	}
	return count
}
