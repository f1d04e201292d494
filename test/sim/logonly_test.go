package sim

import (
	"context"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

// TestLogOnlySeeds runs seeds in which some nodes never have a state machine. Where it is
// three of five there are groups without one among the voters.
func TestLogOnlySeeds(t *testing.T) {
	n := 20
	if testing.Short() {
		n = 5
	}
	Seeds(t, n, Config{Seed: 1, Nodes: 3, Lacking: []raftyard.NodeID{2}})
	Seeds(t, 2*n, Config{Seed: 1000, Nodes: 5, Lacking: []raftyard.NodeID{1, 2, 3}})
}

// busy keeps proposing to both groups until it is told to stop.
func (s *Script) busy(at raftyard.NodeID) (stop func()) {
	going := true
	done := s.Begin(at, func(ctx context.Context, n *node.Node) error {
		for i := 0; going; i++ {
			short, cancel := s.w.clients.WithTimeout(ctx, 500*time.Millisecond)
			if _, err := n.Propose(short, raftyard.GroupID(1+i%2), aPut()); err != nil {
				s.w.log(at, "proposes in vain", err.Error())
			}
			cancel()
		}
		return nil
	})
	return func() {
		going = false
		s.Until("the proposals have ended", func() bool { ended, _ := done(); return ended })
	}
}

// settleLogOnly waits until both groups are well, and every replica is as far as the
// leader, which has the state.
func (s *Script) settleLogOnly() {
	s.t.Helper()
	for g := raftyard.GroupID(1); g <= 2; g++ {
		s.Until("all have caught up", func() bool {
			leader := s.Leader(g)
			if leader == 0 {
				return false
			}
			l, ok := s.replica(leader, g)
			if !ok || l.LogOnly || l.Role != group.Leader || len(l.State.Descriptor.Members) < 3 {
				return false
			}
			for _, m := range l.State.Descriptor.Members {
				r, here := s.replica(m.Node, g)
				if !here || !r.Serving || r.Applied != l.Commit {
					return false
				}
			}
			return s.w.untidy() == ""
		})
	}
}

// TestCrashInEverySyncOfAState has a replica without a state machine lose power in each of
// the syncs in which it comes by states and cuts its log, one after the other.
func TestCrashInEverySyncOfAState(t *testing.T) {
	crashes, states, step := 0, 0, uint64(1)
	if testing.Short() {
		step = 4
	}
	for n := uint64(1); n <= 30; n += step {
		s := Start(t, Config{Seed: 40 + n, Groups: 2, Lacking: []raftyard.NodeID{3}})
		s.settleLogOnly()
		stop := s.busy(1)
		s.Until("a state has come", func() bool { return s.w.check.Tally().States > 0 })
		h := s.w.host(3)
		h.trip, h.tripFor = n, 50*time.Millisecond
		s.Until("it has crashed, or not", func() bool { return h.trip == 0 || s.First(3, 1) > 60 })
		s.Until("it goes on", func() bool { return h.state == running && s.First(3, 1) > 60 })
		stop()
		s.settleLogOnly()
		crashes += s.w.counts.Trips
		states += s.w.check.Tally().States
		s.w.close()
	}
	if crashes < int(20/step) || states < int(100/step) {
		t.Errorf("%d crashes, and %d states came", crashes, states)
	}
}

// TestCrashInEverySyncOfAKindsReturn stops a full replica, has the log cut far beyond it
// while it has no state machine, and crashes it in each sync of the start with which it gets
// its state machine back.
func TestCrashInEverySyncOfAKindsReturn(t *testing.T) {
	crashes, step := 0, uint64(1)
	if testing.Short() {
		step = 3
	}
	for n := uint64(1); n <= 14; n += step {
		s := Start(t, Config{Seed: 80 + n, Groups: 2})
		s.settleLogOnly()
		stop := s.busy(1)
		s.Stop(3)
		s.Lack(3, true)
		s.Restart(3)
		first := s.First(3, 2)
		s.Until("its logs are cut", func() bool {
			return s.First(3, 1) > first+100 && s.First(3, 2) > first+100
		})
		s.Stop(3)
		s.Lack(3, false)
		h := s.w.host(3)
		h.trip, h.tripFor = n, 50*time.Millisecond
		h.wanted = true
		h.start()
		s.Until("it has crashed, or not", func() bool { return h.trip == 0 || h.state == running })
		s.Until("it is up", func() bool { return h.state == running })
		h.trip = 0
		if r, _ := s.replica(3, 2); r.LogOnly || r.Fault != nil {
			t.Fatalf("the replica that has its state machine back: %+v", r)
		}
		stop()
		s.settleLogOnly()
		crashes += s.w.counts.Trips
		s.w.close()
	}
	if crashes < int(5/step) {
		t.Errorf("%d crashes", crashes)
	}
}

// TestLeaderWithoutStateHandsOver cuts the voters with state off until the one without
// leads, through which nobody can write then. When they are back one of them leads again.
func TestLeaderWithoutStateHandsOver(t *testing.T) {
	s := Start(t, Config{Seed: 3, Groups: 2, Lacking: []raftyard.NodeID{2, 3}})
	s.settleLogOnly()
	for range 3 {
		s.Isolate(1)
		s.Until("a replica without a state machine leads", func() bool {
			leader := s.Leader(1)
			return leader > 1 && !s.w.host(leader).unready()
		})
		s.Run(2 * time.Second) // until all know that it is not there
		begun := s.Time()
		_, err := s.Propose(s.Leader(1), 1, aPut())
		if !node.NotApplied(err) {
			t.Errorf("Propose = %v after %v, want an error: nobody has the state",
				err, s.Time()-begun)
		}
		s.Heal()
		s.settleLogOnly()
		if _, err := s.Propose(3, 1, aPut()); err != nil {
			t.Errorf("Propose = %v", err)
		}
	}
}
