package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/linear"
	"github.com/raftyard/raftyard/test/sim/internal/machine"
	"github.com/raftyard/raftyard/transport"
)

func aPut() []byte {
	return machine.Encode(linear.Op{Kind: linear.Put, Key: "k", Value: "v"})
}

// other returns a node that is none of those.
func other(not ...raftyard.NodeID) raftyard.NodeID {
	for id := raftyard.NodeID(1); ; id++ {
		taken := false
		for _, n := range not {
			taken = taken || n == id
		}
		if !taken {
			return id
		}
	}
}

func isAppend(env *transport.Envelope) bool {
	return env.Group == 1 && env.Message != nil && env.Message.GetType() == raftpb.MsgApp &&
		len(env.Message.GetEntries()) > 0
}

// TestHeldAppendIsNotAcknowledged keeps the leader's appends back: nothing may be
// acknowledged before they arrive.
func TestHeldAppendIsNotAcknowledged(t *testing.T) {
	s := Start(t, Config{Seed: 1})
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	leader := s.Leader(1)
	s.Intercept(func(env *transport.Envelope) Verdict {
		if isAppend(env) {
			return Verdict{Hold: "appends"}
		}
		return Verdict{}
	})
	done := s.Begin(leader, func(ctx context.Context, n *node.Node) error {
		_, err := n.Propose(ctx, 1, aPut())
		return err
	})
	s.Until("both appends are held", func() bool { return s.Held("appends") >= 2 })
	s.Run(100 * time.Millisecond)
	if ended, err := done(); ended {
		t.Fatalf("the proposal has ended without a follower: %v", err)
	}
	s.Intercept(nil)
	s.Release("appends", true)
	s.Until("the proposal has ended", func() bool { ended, _ := done(); return ended })
	if _, err := done(); err != nil {
		t.Fatalf("the proposal has ended with %v", err)
	}
}

// TestCrashOfTheLeaderLosesNothing crashes a leader as soon as it has acknowledged.
func TestCrashOfTheLeaderLosesNothing(t *testing.T) {
	s := Start(t, Config{Seed: 2})
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	leader := s.Leader(1)
	res, err := s.Propose(leader, 1, aPut())
	if err != nil {
		t.Fatal(err)
	}
	s.Crash(leader)
	if _, err = s.Propose(leader, 1, nil); !errors.Is(err, ErrDown) {
		t.Errorf("error on a node that is down is %v", err)
	}
	s.Until("another leads", func() bool { l := s.Leader(1); return l != 0 && l != leader })
	s.Until("what was acknowledged is applied", func() bool {
		return s.Applied(s.Leader(1), 1) >= res.Index
	})
	s.Restart(leader)
	s.Until("the old leader has it, too", func() bool { return s.Applied(leader, 1) >= res.Index })
}

// TestFollowerThatNeedsASnapshot cuts the log behind a follower, which then gets a
// snapshot whose stream breaks at first.
func TestFollowerThatNeedsASnapshot(t *testing.T) {
	s := Start(t, Config{Seed: 3})
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	leader := s.Leader(1)
	behind := other(leader)
	s.Isolate(behind)
	third := other(leader, behind) // it may lead by then
	first := func() uint64 { return min(s.First(leader, 1), s.First(third, 1)) }
	for i := 0; first() <= s.Applied(behind, 1)+1; i++ {
		if i == 300 {
			t.Fatalf("the logs begin at %d after %d writes", first(), i)
		}
		if _, err := s.Propose(other(behind), 1, aPut()); err != nil {
			t.Fatal(err)
		}
	}
	want := s.Applied(s.Leader(1), 1)
	s.Heal()
	s.Until("it has caught up", func() bool { return s.Applied(behind, 1) >= want })
	s.Until("a snapshot has arrived", func() bool { return s.w.net.Counts().Snapshots > 0 })
}

// TestJoins has a node join, which is started before anybody knows of it, and gives it
// a replica.
func TestJoins(t *testing.T) {
	s := Start(t, Config{Seed: 20, Nodes: 3, Groups: 1, Guests: 1})
	const guest = 4
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	s.Inject(Fault{Kind: Join, Node: guest, For: time.Second})
	s.Until("the node is ready", func() bool { return !s.w.host(guest).unready() })
	with := node.Members{Voters: []raftyard.NodeID{1, 2, 3}, Learners: []raftyard.NodeID{guest}}
	if err := setMembers(s, guest, with, true); err != nil {
		t.Fatal(err)
	}
	res, err := s.Propose(guest, 1, aPut())
	if err != nil {
		t.Fatal(err)
	}
	s.Until("it has all", func() bool { return s.Applied(guest, 1) >= res.Index })
}
