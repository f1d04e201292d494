package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// createOwn creates a group that the simulation itself does not know of.
func createOwn(s *Script, at raftyard.NodeID, g raftyard.GroupID, voters ...raftyard.NodeID) {
	s.t.Helper()
	spec := s.w.spec(&groupInfo{id: 1}, node.Members{Voters: voters})
	spec.ID = g
	if err := s.On(at, func(ctx context.Context, n *node.Node) error {
		_, err := n.CreateGroup(ctx, spec)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	s.Until("the group has all its voters", func() bool {
		leader := s.Leader(g)
		if leader == 0 {
			return false
		}
		r, ok := s.replica(leader, g)
		return ok && len(r.State.Descriptor.Voters()) == len(voters)
	})
}

// members changes the members of a group.
func members(
	s *Script, g raftyard.GroupID, wait bool, voters ...raftyard.NodeID,
) {
	s.t.Helper()
	if err := s.On(1, func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, g, node.Members{Voters: voters}, wait)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
}

// nodeRecord is what the registry says of node 3.
func nodeRecord(s *Script) (rec registry.Node) {
	err := s.On(1, func(ctx context.Context, n *node.Node) error {
		return node.View(ctx, n, raftyard.SystemGroup, node.Linearizable,
			func(reg *registry.Registry) error {
				rec, _ = reg.Node(3)
				return nil
			})
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return rec
}

func allReady(s *Script) {
	s.t.Helper()
	s.Until("all are ready", func() bool { return len(s.w.unready()) == 0 })
}

// TestOnlyCopyIsNotGivenUp starts a node with an empty directory while the only voter of
// a group, which is to move elsewhere, is in the one that it had.
func TestOnlyCopyIsNotGivenUp(t *testing.T) {
	for _, moving := range []bool{false, true} {
		t.Run(fmt.Sprintf("moving=%t", moving), func(t *testing.T) {
			const g = 50
			s := Start(t, Config{Seed: 303, Nodes: 4, Groups: 1})
			allReady(s)
			createOwn(s, 1, g, 3)
			if _, err := s.Propose(1, g, aPut()); err != nil {
				t.Fatal(err)
			}
			if moving {
				s.Intercept(func(env *transport.Envelope) Verdict {
					return Verdict{Drop: env.Group == g && env.To.Node == 4}
				})
				members(s, g, false, 4)
				s.Run(time.Second)
			}
			before := nodeRecord(s).Store
			s.w.host(3).wipe()
			s.Run(30 * time.Second)
			s.Intercept(nil)
			if now := nodeRecord(s).Store; now != before {
				t.Errorf("node 3 has directory %v now; the only copy of group %d is in %v, which "+
					"nobody has given up", now, g, before)
			}
			_, err := s.Propose(1, g, aPut())
			t.Logf("propose: %v", err)
		})
	}
}

// TestVacatedAtAnEarlierTime takes a node out that has the only voter of a group, because
// it had nothing when it was about to leave before.
func TestVacatedAtAnEarlierTime(t *testing.T) {
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprintf("twice=%t", twice), func(t *testing.T) {
			const g = 50
			s := Start(t, Config{Seed: 304, Nodes: 4, Groups: 1})
			allReady(s)
			members(s, 1, true, 1, 2)
			on := func(fn func(ctx context.Context, n *node.Node) error) {
				t.Helper()
				if err := s.On(1, fn); err != nil {
					t.Fatal(err)
				}
			}
			leave := func() {
				t.Helper()
				on(func(ctx context.Context, n *node.Node) error {
					_, err := n.DrainNode(ctx, 3)
					if err == nil {
						_, err = n.RemoveNode(ctx, 3, false)
					}
					return err
				})
			}
			s.Kill(4) // nobody can follow node 3 as a voter of the system group
			if twice {
				leave()
				s.Run(10 * time.Second)
				if st := nodeRecord(s).State; st != registry.NodeLeaving {
					t.Fatalf("node 3 is %v", st)
				}
				on(func(ctx context.Context, n *node.Node) error {
					_, err := n.UndrainNode(ctx, 3)
					return err
				})
				s.Run(3 * time.Second)
			}
			createOwn(s, 1, g, 3)
			if _, err := s.Propose(1, g, aPut()); err != nil {
				t.Fatal(err)
			}
			s.Intercept(func(env *transport.Envelope) Verdict {
				m := env.Message
				return Verdict{Drop: env.Group == g && env.To.Node == 1 && m != nil &&
					(m.GetType() == raftpb.MsgSnap || m.GetType() == raftpb.MsgApp)}
			})
			members(s, g, false, 1) // which takes its time
			s.Restart(4)
			leave()
			s.Run(30 * time.Second)
			r, here := s.replica(3, g)
			st := nodeRecord(s).State
			if st == registry.NodeRemoved {
				t.Errorf("node 3 is removed; its replica of group %d: %t, %v", g, here,
					r.State.Descriptor.Members)
			}
			s.Intercept(nil)
			s.Run(5 * time.Second)
			_, err := s.Propose(1, g, aPut())
			t.Logf("node 3 is %v, propose: %v", st, err)
		})
	}
}

// TestOnlyVoterIsNotForcedOut forces a dead node out that has the only voter of a group,
// which is wanted elsewhere since a moment before and has not got there. RemoveNode says that
// such a group keeps the node from being removed until it is deleted.
func TestOnlyVoterIsNotForcedOut(t *testing.T) {
	const g = 50
	s := Start(t, Config{Seed: 305, Nodes: 4, Groups: 1})
	allReady(s)
	members(s, 1, true, 1, 2)
	createOwn(s, 1, g, 3)
	if _, err := s.Propose(1, g, aPut()); err != nil {
		t.Fatal(err)
	}
	s.Intercept(func(env *transport.Envelope) Verdict {
		return Verdict{Drop: env.Group == g && env.To.Node == 1}
	})
	members(s, g, false, 1)
	s.Run(time.Second)
	s.Kill(3)
	s.Run(3 * time.Second)
	if err := s.On(1, func(ctx context.Context, n *node.Node) error {
		_, err := n.RemoveNode(ctx, 3, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Run(30 * time.Second)
	if st := nodeRecord(s).State; st == registry.NodeRemoved {
		t.Errorf("node 3 is removed, and its id spent; it has the only voter of group %d", g)
	}
}

// TestComesBackWhenItIsLetGo has a node come back with a learner that its group has given up
// meanwhile, just when the system group has let the node go, so that it cannot find that out.
func TestComesBackWhenItIsLetGo(t *testing.T) {
	const g = 50
	s := Start(t, Config{Seed: 307, Nodes: 4, Groups: 1})
	allReady(s)
	members(s, 1, true, 1, 2)
	createOwn(s, 1, g, 1, 2)
	follow := node.Members{Voters: []raftyard.NodeID{1, 2}, Learners: []raftyard.NodeID{3}}
	if err := s.On(1, func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, g, follow, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Until("node 3 follows", func() bool { _, ok := s.replica(3, g); return ok })
	s.Kill(3)
	members(s, g, true, 1, 2)
	if err := s.On(1, func(ctx context.Context, n *node.Node) error {
		_, err := n.RemoveNode(ctx, 3, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Until("the system group has let it go", func() bool {
		r, ok := s.replica(s.Leader(raftyard.SystemGroup), raftyard.SystemGroup)
		_, member := r.State.Descriptor.MemberOn(3)
		return ok && !member
	})
	s.Restart(3)
	s.Until("it is there again", func() bool { return len(s.w.net.Connected(3, 0)) == 3 })
	if st := nodeRecord(s).State; st != registry.NodeLeaving {
		t.Fatalf("node 3 is %v already", st)
	}
	s.Run(30 * time.Second)
	if st := nodeRecord(s).State; st != registry.NodeRemoved {
		_, here := s.replica(3, g)
		t.Errorf("node 3 is %v; it has its replica of group %d still: %t", st, g, here)
	}
}
