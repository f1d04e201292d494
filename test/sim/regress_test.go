package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

// setMembers changes the members of group 1, and waits for it if it says so.
func setMembers(s *Script, at raftyard.NodeID, m node.Members, wait bool) error {
	return s.On(at, func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, 1, m, wait)
		return err
	})
}

// TestComesBackBeforeItHears removes a member that is cut off, and adds one on the
// same node again before the first one has heard of that. What it is told must not
// keep its successor from coming.
func TestComesBackBeforeItHears(t *testing.T) {
	s := Start(t, Config{Seed: 4, Nodes: 3, Groups: 1})
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	away := other(s.Leader(1))
	stay := other(away)
	rest := []raftyard.NodeID{stay, other(away, stay)}
	s.Isolate(away)
	if err := setMembers(s, stay, node.Members{Voters: rest}, true); err != nil {
		t.Fatal(err)
	}
	again := node.Members{Voters: rest, Learners: []raftyard.NodeID{away}}
	if err := setMembers(s, stay, again, false); err != nil {
		t.Fatal(err)
	}
	s.Until("the successor is a member", func() bool {
		r, ok := s.replica(s.Leader(1), 1)
		_, member := r.State.Descriptor.MemberOn(away)
		return ok && member
	})
	s.Intercept(func(env *transport.Envelope) Verdict {
		if env.Group == 1 && env.To.Node == away && env.Message != nil {
			return Verdict{Hold: "for the successor"}
		}
		return Verdict{}
	})
	s.Heal()
	s.Until("the first one is gone", func() bool { _, ok := s.replica(away, 1); return !ok })
	s.Intercept(nil)
	s.Release("for the successor", false)
	res, err := s.Propose(stay, 1, aPut())
	if err != nil {
		t.Fatal(err)
	}
	s.Until("the successor has all", func() bool { return s.Applied(away, 1) >= res.Index })
}

// TestMembersChangeDuringTransfer asks for other members while a transfer of the
// leadership to a node that is cut off is under way. They must be reached when it is
// over.
func TestMembersChangeDuringTransfer(t *testing.T) {
	s := Start(t, Config{Seed: 5, Nodes: 3, Groups: 1})
	s.Until("group 1 has a leader", func() bool { return s.Leader(1) != 0 })
	leader, system := s.Leader(1), s.Leader(raftyard.SystemGroup)
	away := other(leader, system)
	if leader == system {
		away = other(leader)
	}
	s.Isolate(away)
	transferred := s.Begin(leader, func(ctx context.Context, n *node.Node) error {
		return n.TransferLeader(ctx, 1, away)
	})
	decided := s.Begin(system, func(ctx context.Context, n *node.Node) error {
		rest := node.Members{Voters: []raftyard.NodeID{leader, other(leader, away)}}
		_, err := n.SetMembers(ctx, 1, rest, false)
		return err
	})
	s.Until("both have ended", func() bool {
		over, _ := transferred()
		done, _ := decided()
		return over && done
	})
	if _, err := decided(); err != nil {
		t.Fatal(err)
	}
	s.Until("the member is gone", func() bool {
		r, ok := s.replica(leader, 1)
		_, member := r.State.Descriptor.MemberOn(away)
		return ok && !member
	})
}

// TestCrashInEverySyncOfARemoval removes a member whose node loses power in each of
// the syncs that this takes, in turn. Whatever it has on its disk then, it comes back,
// is gone in the end, and nothing is wrong with it meanwhile.
func TestCrashInEverySyncOfARemoval(t *testing.T) {
	crashes := 0
	for n := uint64(1); n <= 12; n++ {
		s := Start(t, Config{Seed: 10 + n, Nodes: 3, Groups: 1})
		s.Until("group 1 has a leader, and the nodes are ready", func() bool {
			return s.Leader(1) != 0 && !slices.ContainsFunc(s.w.hosts, (*host).unready)
		})
		goes := other(s.Leader(1))
		rest := []raftyard.NodeID{other(goes), other(goes, other(goes))}
		h := s.w.host(goes)
		h.trip, h.tripFor = n, 50*time.Millisecond
		done := s.Begin(rest[0], func(ctx context.Context, n *node.Node) error {
			_, err := n.SetMembers(ctx, 1, node.Members{Voters: rest}, true)
			for errors.Is(err, node.ErrUnknownOutcome) { // the crash took the registry's leader
				_, err = n.SetMembers(ctx, 1, node.Members{Voters: rest}, true)
			}
			return err
		})
		s.Until("the members are reached", func() bool { ended, _ := done(); return ended })
		if _, err := done(); err != nil {
			t.Fatal(err)
		}
		s.Until("it is gone", func() bool {
			_, here := s.replica(goes, 1)
			return h.state == running && !here
		})
		if h.trip == 0 {
			crashes++
		}
		s.w.close()
	}
	if crashes < 4 {
		t.Errorf("%d crashes, a removal takes more syncs", crashes)
	}
}

// TestMovesAlone has a node come back at another address while there is no majority
// without it, in which its new address could be registered. The other one must learn from
// its call alone where it is.
func TestMovesAlone(t *testing.T) {
	s := Start(t, Config{Seed: 30, Nodes: 3, Groups: 1})
	s.Until("all are ready", func() bool { return len(s.w.unready()) == 0 })
	s.Kill(3)
	s.Inject(Fault{Kind: Move, Node: 1, For: 100 * time.Millisecond})
	h := s.w.host(1)
	s.Until("it has moved", func() bool { return h.moves == 1 && h.state == running })
	s.Until("all are ready again", func() bool { return len(s.w.unready()) == 0 })
}

// TestJoinsUnderAGuest has a node join that knows the founding nodes alone, while one that
// has joined before leads. It must answer whoever calls it.
func TestJoinsUnderAGuest(t *testing.T) {
	s := Start(t, Config{Seed: 31, Nodes: 2, Groups: 1, Guests: 2})
	s.Until("all are ready", func() bool { return len(s.w.unready()) == 0 })
	s.Inject(Fault{Kind: Join, Node: 3})
	s.Until("the first is ready", func() bool { return !s.w.host(3).unready() })
	s.Inject(Fault{Kind: Drain, Node: 1})
	s.Inject(Fault{Kind: Drain, Node: 2})
	s.Until("it leads", func() bool { return s.Leader(0) == 3 })
	s.Inject(Fault{Kind: Join, Node: 4})
	s.Until("the second is ready", func() bool { return !s.w.host(4).unready() })
}

// TestMoveOfAllUnderAGuest has all nodes come back at other addresses at the same time,
// of which the founding ones alone are in each other's configuration. Two that have
// joined must learn where the other is by those between them, though one of them leads.
func TestMoveOfAllUnderAGuest(t *testing.T) {
	s := Start(t, Config{Seed: 32, Nodes: 2, Groups: 1, Guests: 2})
	s.Until("all are ready", func() bool { return len(s.w.unready()) == 0 })
	for _, id := range []raftyard.NodeID{3, 4} {
		s.Inject(Fault{Kind: Join, Node: id})
		s.Until("it is ready", func() bool { return !s.w.host(id).unready() })
	}
	for _, id := range []raftyard.NodeID{1, 2} {
		s.Inject(Fault{Kind: Drain, Node: id})
	}
	s.Until("one that has joined leads", func() bool { return s.Leader(0) > 2 })
	s.Inject(Fault{Kind: Move, Node: 1, N: 1, For: 100 * time.Millisecond})
	s.Until("they have moved", func() bool { return s.w.host(4).moves == 1 })
	s.Until("all are ready again", func() bool {
		return s.w.joining == 0 && len(s.w.unready()) == 0
	})
}
