package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// loseEarly wipes a founding node. If it has not taken part in the system group, nothing
// of it is lost.
func loseEarly(s *Script, id raftyard.NodeID) {
	h := s.w.host(id)
	r, ok := s.replica(id, raftyard.SystemGroup)
	h.downUntil = s.Time() + 5*time.Millisecond
	s.w.turns.After(0, func() {
		if ok && (r.Term > 1 || r.Last > 1) {
			h.wipe()
		} else {
			h.crash((*simdisk.Disk).Wipe, check.LostNothing)
		}
	})
	s.Run(time.Millisecond)
}

// takesPart reports whether the system group is founded and every node votes in it and
// has all that is decided.
func (s *Script) takesPart(nodes int) bool {
	leader := s.Leader(raftyard.SystemGroup)
	if leader == 0 {
		return false
	}
	r, ok := s.replica(leader, raftyard.SystemGroup)
	if !ok || len(r.State.Descriptor.Voters()) != nodes {
		return false
	}
	for id := range raftyard.NodeID(nodes) {
		if s.Applied(id+1, 0) != s.Applied(leader, 0) {
			return false
		}
	}
	return true
}

// TestWipedBeforeItIsKnown wipes a founding node in the first moments of a cluster, with
// one of the others cut off from it until then, and the third from then on: the two that
// are together do not know, or have forgotten, what the other two have decided. They must
// not found the cluster a second time.
func TestWipedBeforeItIsKnown(t *testing.T) {
	for at := time.Millisecond; at < 120*time.Millisecond; at += 3 * time.Millisecond {
		t.Run(at.String(), func(t *testing.T) {
			s := begin(t, Config{Seed: uint64(at), Nodes: 3, Groups: -1})
			s.Isolate(2)
			s.Run(at)
			loseEarly(s, 3)
			s.Heal()
			s.Isolate(1)
			s.Run(3 * time.Second)
			s.Heal()
			s.Until("the cluster is founded", func() bool { return s.takesPart(3) })
		})
	}
}

// TestFirstMoments cuts nodes of a new cluster off and wipes a minority of them, at random
// times. It must be founded once, with all of them.
func TestFirstMoments(t *testing.T) {
	seeds := uint64(100 * rounds())
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1))
			nodes := 3 + 2*int(seed%2)
			s := begin(t, Config{Seed: seed, Nodes: nodes, Groups: -1})
			some := func() raftyard.NodeID { return raftyard.NodeID(1 + dice.IntN(nodes)) }
			pause := func() time.Duration {
				return time.Duration(dice.IntN(20*(1+dice.IntN(10)))) * time.Millisecond
			}
			lost := make(map[raftyard.NodeID]bool)
			for range 2 + dice.IntN(8) {
				s.Run(pause())
				switch id := some(); dice.IntN(4) {
				case 0:
					s.Isolate(id)
				case 1:
					s.Cut(id, some())
				case 2:
					s.Heal()
				default:
					if len(lost) < nodes/2 && !lost[id] {
						lost[id] = true
						loseEarly(s, id)
					}
				}
			}
			s.Run(2 * time.Second)
			s.Heal()
			s.Until("the cluster is founded", func() bool { return s.takesPart(nodes) })
		})
	}
}

// TestLateFounder lets a founding node come when the others that it founds the cluster with
// are no more than half: they have left. It takes part under another replica id.
func TestLateFounder(t *testing.T) {
	s := begin(t, Config{Seed: 5, Nodes: 5, Groups: -1})
	s.Isolate(5)
	s.Until("the cluster is founded without it", func() bool {
		return !slices.ContainsFunc(s.w.hosts[:4], (*host).unready)
	})
	// Nobody knows the directory in which this one is to begin.
	spec := s.w.spec(&groupInfo{id: 1}, node.Members{Voters: []raftyard.NodeID{5}})
	spec.ID = stuck
	create := func(ctx context.Context, n *node.Node) error {
		_, err := n.CreateGroup(ctx, spec)
		return err
	}
	if err := s.On(1, create); err != nil {
		t.Fatal(err)
	}
	s.wantNowhere(1, "no_replica", "which is not live")
	for _, id := range []raftyard.NodeID{3, 4} {
		s.Crash(id)
		var st node.NodeStatus
		for st.State != "removed" {
			if err := s.On(1, func(ctx context.Context, n *node.Node) (err error) {
				st, err = n.RemoveNode(ctx, id, true)
				return err
			}); err != nil && !errors.Is(err, node.ErrNodeInUse) {
				t.Fatal(err)
			}
			s.Run(time.Second) // whether it is live shows only some time after
		}
	}
	s.Heal()
	s.Until("it takes part", func() bool {
		r, ok := s.replica(5, 0)
		return ok && r.ID > 5 && r.Serving && s.Applied(5, 0) == s.Applied(1, 0)
	})
	allReady(s)
	for _, id := range []raftyard.NodeID{1, 2, 5} {
		s.wantNowhere(id, "seed_lost", "delete the group")
	}
	for _, fn := range []func(ctx context.Context, n *node.Node) error{
		func(ctx context.Context, n *node.Node) error { return n.DeleteGroup(ctx, stuck) }, create,
	} {
		if err := s.On(2, fn); err != nil {
			t.Fatal(err)
		}
	}
}

// wantNowhere waits until a node shows that nobody has the group, and why.
func (s *Script) wantNowhere(id raftyard.NodeID, problem, why string) {
	s.t.Helper()
	var st node.GroupStatus
	for range 30 {
		err := s.On(id, func(ctx context.Context, n *node.Node) (err error) {
			st, err = n.Group(ctx, stuck)
			return err
		})
		if err == nil && slices.Contains(st.Problems, problem) &&
			strings.Contains(st.Steering, why) {
			return
		}
		s.Run(time.Second)
	}
	s.t.Fatalf("node %d shows problems %q, steering %q", id, st.Problems, st.Steering)
}

// TestFoundersOneByOne starts the nodes of a new cluster one after the other, with long
// pauses. None of them is late when the last one has come: all take part under the ids that
// they founded the cluster with.
func TestFoundersOneByOne(t *testing.T) {
	for seed := range uint64(10 * rounds()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := begin(t, Config{Seed: seed, Nodes: 3, Groups: -1})
			s.Isolate(2)
			s.Isolate(3)
			s.Run(20 * time.Second)
			s.Mend(1, 2)
			s.Mend(2, 1)
			s.Run(time.Duration(15+seed%10) * time.Second)
			s.Heal()
			s.Until("the cluster is founded", func() bool { return s.takesPart(3) })
			s.Run(10 * time.Second)
			r, _ := s.replica(s.Leader(0), 0)
			for _, m := range r.State.Descriptor.Members {
				if m.ID != raftyard.ReplicaID(m.Node) {
					t.Errorf("node %d takes part as replica %d", m.Node, m.ID)
				}
			}
		})
	}
}
