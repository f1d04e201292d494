package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// TestDeletionWaitsForVoters deletes a group of which a majority cannot be told.
func TestDeletionWaitsForVoters(t *testing.T) {
	if err := deletedWhileItGoesOn(t); err != nil {
		t.Error(err)
	}
}

// deletedWhileItGoesOn has a group deleted by those who have the registry, while a majority
// of its voters is cut off from them. It returns an error if the deletion succeeds and the
// group acknowledges a write after that.
func deletedWhileItGoesOn(t *testing.T) error {
	t.Helper()
	const g = 51
	s := Start(t, Config{Seed: 41, Nodes: 5, Groups: 1})
	allReady(s)
	createOwn(s, 4, g, 3, 4, 5)
	for _, a := range []raftyard.NodeID{4, 5} {
		for _, b := range []raftyard.NodeID{1, 2, 3} {
			s.Cut(a, b)
			s.Cut(b, a)
		}
	}
	s.Until("both sides have what they need", func() bool {
		l, system := s.Leader(g), s.Leader(raftyard.SystemGroup)
		return (l == 4 || l == 5) && system != 0 && system <= 3
	})
	s.Run(3 * time.Second)
	deleted := s.On(1, func(ctx context.Context, n *node.Node) error {
		return n.DeleteGroup(ctx, g)
	})
	if _, err := s.Propose(4, g, aPut()); err != nil {
		t.Fatalf("the group does not go on: %v", err)
	}
	if deleted == nil {
		return fmt.Errorf("group %d was deleted, and acknowledges a write", g)
	}
	return nil
}

// TestServesNobodyBeforeTheRegistry starts a node that does not know that its group was
// deleted.
func TestServesNobodyBeforeTheRegistry(t *testing.T) {
	if err := servedAfterDeletion(t); err != nil {
		t.Error(err)
	}
}

// servedAfterDeletion has a group deleted by force while its only voter is down. That comes
// back, and reaches nobody. It returns an error if the group acknowledges a write then.
func servedAfterDeletion(t *testing.T) error {
	t.Helper()
	const g, only = 52, 3
	s := Start(t, Config{Seed: 42, Nodes: 3, Groups: 1})
	allReady(s)
	createOwn(s, only, g, only)
	var in raftyard.Incarnation
	if r, ok := s.replica(only, g); ok {
		in = r.Incarnation
	}
	s.Kill(only)
	s.Until("the others have the registry", func() bool {
		l := s.Leader(raftyard.SystemGroup)
		return l != 0 && l != only
	})
	err := s.On(1, func(ctx context.Context, n *node.Node) error {
		return n.ForceDeleteGroup(ctx, g, in)
	})
	if err != nil && !errors.Is(err, node.ErrNotReached) {
		t.Fatal(err)
	}
	s.Isolate(only)
	s.Restart(only)
	s.Until("its replica leads", func() bool { return s.Leader(g) == only })
	if _, err := s.Propose(only, g, aPut()); err == nil {
		return fmt.Errorf("group %d was deleted, and acknowledges a write", g)
	}
	return nil
}
