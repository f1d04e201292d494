package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// hangLeader has a sync of the node that leads a group take so long, and returns the node,
// when the sync has begun.
func hangLeader(t *testing.T, s *Script, g raftyard.GroupID, d time.Duration) raftyard.NodeID {
	t.Helper()
	s.Until("the group has a leader, and the nodes are ready", func() bool {
		return s.Leader(g) != 0 && !slices.ContainsFunc(s.w.hosts, (*host).unready)
	})
	leader := s.Leader(g)
	h := s.w.host(leader)
	h.hang = d
	s.Begin(leader, func(ctx context.Context, n *node.Node) error {
		_, err := n.Propose(ctx, g, aPut())
		return err
	})
	s.Until("a sync hangs", func() bool { return h.hang == 0 })
	return leader
}

// TestHangingSync: who leads and has a sync that does not come back is followed by others,
// and takes part again when it has come back.
func TestHangingSync(t *testing.T) {
	const g raftyard.GroupID = 1
	s := Start(t, Config{Seed: 72, Nodes: 3, Groups: 2})
	leader := hangLeader(t, s, g, stuckSync+time.Second)
	began := s.Time()
	next := other(leader)
	s.Until("somebody else leads", func() bool {
		l := s.Leader(g)
		return l != 0 && l != leader
	})
	if took := s.Time() - began; took > stuckSync+time.Second {
		t.Errorf("somebody else leads after %v", took)
	}
	res, err := s.Propose(next, g, aPut())
	if err != nil {
		t.Fatal(err)
	}
	s.Until("the node takes part again", func() bool { return s.Applied(leader, g) >= res.Index })
	if h := s.w.host(leader); h.broken || h.state != running {
		t.Errorf("the node has been given up: broken %t, state %v", h.broken, h.state)
	}
}

// TestSyncThatNeverComesBack: a node whose sync does not come back fails, and comes back
// when it is started again.
func TestSyncThatNeverComesBack(t *testing.T) {
	const g raftyard.GroupID = 1
	s := Start(t, Config{Seed: 73, Nodes: 3, Groups: 2})
	leader := hangLeader(t, s, g, time.Hour)
	h := s.w.host(leader)
	starts := h.starts
	res, err := s.Propose(other(leader), g, aPut())
	for err != nil && s.Time() < time.Minute {
		res, err = s.Propose(other(leader), g, aPut())
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Until("the node is started again", func() bool { return h.starts > starts })
	s.Until("it has everything", func() bool { return s.Applied(leader, g) >= res.Index })
}
