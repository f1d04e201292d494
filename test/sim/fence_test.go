package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
	"github.com/raftyard/raftyard/transport"
)

// TestDeletionByWhoKnowsTooLittle deletes a group while those who have it now are cut off.
// Who answers knows earlier members, or has had a replica and is asked for the later ones
// that it had logged: they are in the tombstone of one that was destroyed on somebody's
// word, and lost with the directory of one that was wiped since.
func TestDeletionByWhoKnowsTooLittle(t *testing.T) {
	for _, how := range []string{"destroyed on somebody's word", "wiped"} {
		t.Run(how, func(t *testing.T) { deletionByWhoKnowsTooLittle(t, how == "wiped") })
	}
}

func deletionByWhoKnowsTooLittle(t *testing.T, wiped bool) {
	const g = 52 // begins on node 2
	s := Start(t, Config{Seed: 302, Nodes: 7, Groups: 1})
	allReady(s)
	members(s, 1, true, 3, 4, 6) // it is in nobody's way
	createOwn(s, 3, g, 1, 2, 5)
	s.Isolate(2)
	s.Until("the group has another leader", func() bool {
		l, system := s.Leader(g), s.Leader(raftyard.SystemGroup)
		return (l == 1 || l == 5) && system != 0 && system != 2
	})
	s.Run(3 * time.Second)
	if !wiped { // it logs its removal, and is not told that it is committed
		s.Intercept(withholdLeave(g, 1))
	}
	members(s, g, true, 5, 6, 7)
	s.Until("node 1 has no replica any more", func() bool { _, ok := s.replica(1, g); return !ok })
	s.Intercept(nil)
	if wiped {
		s.w.host(1).wipe()
		s.Until("node 1 is taken in again", func() bool { return s.w.counts.Returned == 1 })
	}
	separate(s, []raftyard.NodeID{1, 2, 3, 4}, []raftyard.NodeID{5, 6, 7})
	s.Until("the registry has a leader there", func() bool {
		l := s.Leader(raftyard.SystemGroup)
		return l != 0 && l <= 4
	})
	s.Run(3 * time.Second)
	remove := func() error {
		return s.On(2, func(ctx context.Context, n *node.Node) error {
			return n.DeleteGroup(ctx, g)
		})
	}
	if err := remove(); !errors.Is(err, node.ErrNoQuorum) {
		t.Errorf("DeleteGroup = %v, want ErrNoQuorum", err)
	}
	if _, err := s.Propose(5, g, aPut()); err != nil {
		t.Errorf("the group does not go on: %v", err)
	}
	s.Heal()
	s.Until("the group can be deleted", func() bool { return remove() == nil })
	if _, err := s.Propose(5, g, aPut()); err == nil {
		t.Error("after the deletion a write was acknowledged")
	}
}

// withholdLeave lets a node have the entry that ends a joint configuration, and nothing
// that says that it is committed.
func withholdLeave(g raftyard.GroupID, to raftyard.NodeID) func(*transport.Envelope) Verdict {
	leave := uint64(0)
	return func(env *transport.Envelope) Verdict {
		m := env.Message
		if env.Group != g || env.To.Node != to || m == nil {
			return Verdict{}
		}
		drop := leave != 0 && m.GetCommit() >= leave
		for _, e := range m.GetEntries() {
			var cc raftpb.ConfChangeV2
			if e.GetType() == raftpb.EntryConfChangeV2 &&
				proto.Unmarshal(e.GetData(), &cc) == nil && len(cc.GetChanges()) == 0 {
				leave = e.GetIndex()
			}
		}
		return Verdict{Drop: drop}
	}
}

// separate cuts two sides off from each other, and connects those of the first one.
func separate(s *Script, one, other []raftyard.NodeID) {
	for _, a := range one {
		for _, b := range other {
			s.Cut(a, b)
			s.Cut(b, a)
		}
		for _, b := range one {
			if a != b {
				s.Mend(a, b)
			}
		}
	}
}

// TestLateRequestAfterDeletion has a command that was on its way to a group's leader, when
// the link between the two was cut, arrive there when the group is deleted, and the same
// node leads another group of the same id.
func TestLateRequestAfterDeletion(t *testing.T) {
	const g = 53
	s := Start(t, Config{Seed: 306, Nodes: 3, Groups: 1})
	allReady(s)
	lead := func(g raftyard.GroupID) {
		t.Helper()
		s.Until("node 2 leads", func() bool {
			return s.Leader(g) == 2 || s.On(3, func(ctx context.Context, n *node.Node) error {
				return n.TransferLeader(ctx, g, 2)
			}) == nil
		})
	}
	createOwn(s, 3, g, 2, 3)
	lead(g)
	lead(raftyard.SystemGroup)
	if _, err := s.Propose(1, g, aPut()); err != nil {
		t.Fatal(err)
	}
	s.w.net.SetFaults(simnet.Route{From: 1, To: 2}, func(f *simnet.Faults) {
		f.Cut, f.Late = true, 1
	})
	late := s.w.net.Counts().RequestsLate
	if _, err := s.Propose(1, g, aPut()); err == nil || node.NotApplied(err) {
		t.Fatalf("a command over the link that was cut: %v", err)
	}
	if err := s.On(3, func(ctx context.Context, n *node.Node) error {
		return n.DeleteGroup(ctx, g)
	}); err != nil {
		t.Fatal(err)
	}
	createOwn(s, 3, g, 2, 3)
	lead(g)
	before, err := s.Propose(3, g, aPut())
	if err != nil {
		t.Fatal(err)
	}
	if s.w.net.Counts().RequestsLate != late {
		t.Fatal("the request has arrived early")
	}
	s.Heal()
	s.Until("the request has arrived", func() bool { return s.w.net.Counts().RequestsLate > late })
	s.Run(time.Second)
	after, err := s.Propose(3, g, aPut())
	if err != nil {
		t.Fatal(err)
	}
	if after.Index != before.Index+1 || s.Leader(g) != 2 {
		t.Errorf("the next command after %d is at %d, with leader %d: there is one between them",
			before.Index, after.Index, s.Leader(g))
	}
}
