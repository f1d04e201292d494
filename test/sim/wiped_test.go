package sim

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

// wipeWhole takes the disk of a node, and returns the replica ids that it had.
func wipeWhole(s *Script, id raftyard.NodeID) (before map[raftyard.GroupID]raftyard.ReplicaID) {
	s.t.Helper()
	s.Until("its disk can be lost", func() bool { return s.w.whole(id) })
	before = make(map[raftyard.GroupID]raftyard.ReplicaID)
	for i := range s.w.host(id).seen.Replicas {
		r := &s.w.host(id).seen.Replicas[i]
		before[r.Group] = r.ID
	}
	lost := s.w.counts.Wipes
	s.Inject(Fault{Kind: Wipe, Node: id, For: 10 * time.Millisecond})
	s.Until("its disk is lost", func() bool { return s.w.counts.Wipes > lost })
	return before
}

// backWhole waits until a node votes in every group that it had a replica of, under
// another id, and has what is applied elsewhere.
func backWhole(s *Script, id raftyard.NodeID, before map[raftyard.GroupID]raftyard.ReplicaID) {
	s.t.Helper()
	for g, old := range before {
		s.Until(fmt.Sprintf("node %d votes in group %d", id, g), func() bool {
			leader := s.Leader(g)
			if leader == 0 {
				return false
			}
			l, _ := s.replica(leader, g)
			m, ok := l.State.Descriptor.MemberOn(id)
			r, there := s.replica(id, g)
			return ok && there && m.Role == group.Voter && m.ID > old && r.ID == m.ID &&
				r.Serving && r.State.Descriptor.Epoch == l.State.Descriptor.Epoch &&
				s.Applied(id, g) == s.Applied(leader, g)
		})
	}
}

// rounds is how often it is done, with other seeds each time.
func rounds() int {
	if os.Getenv("RAFTYARD_TEST_SCALE") == "full" {
		return 30
	}
	return 1
}

// TestWipedNodeComesBack wipes a node, and has it or those who help it lose power in each
// of their syncs until it is back.
func TestWipedNodeComesBack(t *testing.T) {
	const wiped = 3
	victims := map[string]func(s *Script) raftyard.NodeID{
		"itself":              func(*Script) raftyard.NodeID { return wiped },
		"its group's leader":  func(s *Script) raftyard.NodeID { return s.Leader(1) },
		"the system's leader": func(s *Script) raftyard.NodeID { return s.Leader(0) },
	}
	for name, victim := range victims {
		for seed := range uint64(rounds()) {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				tripped := true
				for n := uint64(1); tripped && n < 200; n++ {
					if testing.Short() && n%7 != 1 {
						continue
					}
					t.Run(fmt.Sprintf("sync %d", n), func(t *testing.T) {
						s := Start(t, Config{Seed: 1000*seed + n, Nodes: 3, Groups: 1})
						if _, err := s.Propose(1, 1, aPut()); err != nil {
							t.Fatal(err)
						}
						before := wipeWhole(s, wiped)
						s.Until("groups are led", func() bool {
							return s.Leader(0) != 0 && s.Leader(1) != 0
						})
						trips := s.w.counts.Trips
						s.Inject(Fault{
							Kind: Trip, Node: victim(s), N: n, For: 300 * time.Millisecond,
						})
						backWhole(s, wiped, before)
						tripped = s.w.counts.Trips > trips
					})
				}
			})
		}
	}
}

// TestWipedTwice wipes a node again in every stage of its return, and then another one.
func TestWipedTwice(t *testing.T) {
	for i := range 9 * rounds() {
		after := time.Duration(i%9) * time.Second
		t.Run(fmt.Sprintf("%d after %v", i, after), func(t *testing.T) {
			s := Start(t, Config{Seed: 11 + uint64(i), Nodes: 3, Groups: 1})
			if _, err := s.Propose(1, 1, aPut()); err != nil {
				t.Fatal(err)
			}
			before := wipeWhole(s, 3)
			s.Run(after)
			s.w.turns.After(0, s.w.host(3).wipe)
			s.Run(time.Millisecond)
			backWhole(s, 3, before)
			backWhole(s, 1, wipeWhole(s, 1))
		})
	}
}

// TestReplacedLeader lets the system group be led by a node that has been replaced, and
// another node come back that has not heard of that: it must listen to who leads. If it has
// been started anew meanwhile it is not ready before it does.
func TestReplacedLeader(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %t", restarted), func(t *testing.T) {
			s := Start(t, Config{Seed: 3, Nodes: 5, Groups: 1})
			s.Until("node 1 can be done without", func() bool { return s.w.whole(1) })
			s.Isolate(5)
			replaceAndLead(s, 1)
			if restarted {
				s.Crash(5)
				s.Restart(5)
				s.Run(time.Second)
			}
			s.Heal()
			s.Until("node 5 hears it", func() bool {
				return s.Leader(0) == 1 && s.Applied(5, 0) == s.Applied(1, 0)
			})
		})
	}
}

// TestUnknownLeader lets the system group be led by a node that was let in while another one
// was cut off: that one must listen to a node that it has never heard of.
func TestUnknownLeader(t *testing.T) {
	s := Start(t, Config{Seed: 4, Nodes: 3, Guests: 2, Groups: 1})
	s.Isolate(3)
	for _, id := range []raftyard.NodeID{4, 5} {
		joins := s.w.counts.Joins
		s.Inject(Fault{Kind: Join, Node: id})
		s.Until("it has joined", func() bool { return s.w.counts.Joins > joins })
		s.Isolate(3)
	}
	s.Until("it votes", func() bool {
		r, ok := s.replica(4, 0)
		m, member := r.State.Descriptor.MemberOn(4)
		return ok && member && m.Role == group.Voter
	})
	leads(s, 4)
	s.Heal()
	s.Until("node 3 hears it", func() bool {
		return s.Leader(0) == 4 && s.Applied(3, 0) == s.Applied(4, 0)
	})
}

// replaceAndLead wipes a node, and has it lead the system group when it is back.
func replaceAndLead(s *Script, id raftyard.NodeID) {
	h := s.w.host(id)
	h.downUntil = s.Time() + 10*time.Millisecond
	s.w.turns.After(0, h.wipe)
	s.Until("it votes again", func() bool {
		r, ok := s.replica(id, 0)
		m, member := r.State.Descriptor.MemberOn(id)
		return ok && member && m.Role == group.Voter && m.ID == r.ID && r.ID > 5
	})
	leads(s, id)
}

// leads has a node lead the system group.
func leads(s *Script, id raftyard.NodeID) {
	s.t.Helper()
	s.Until("it leads", func() bool {
		if s.Leader(0) != id {
			_ = s.On(2, func(ctx context.Context, n *node.Node) error {
				return n.TransferLeader(ctx, 0, id)
			})
		}
		return s.Leader(0) == id
	})
}
