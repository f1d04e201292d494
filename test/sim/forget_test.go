package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
)

// forgetfulSeeds are how many clusters have a node that forgets.
const forgetfulSeeds = 12

// A forgetting is a group of five of which one member is to forget something.
type forgetting struct {
	*Script

	leader, id raftyard.NodeID
	before     world.Replica // of the one
}

const forgetful raftyard.GroupID = 1

func startForgetting(t *testing.T, seed uint64) *forgetting {
	t.Helper()
	s := &forgetting{Script: Start(t, Config{Seed: seed, Nodes: 5, Groups: 1})}
	s.Inject(Fault{Kind: Members, Group: forgetful, N: 1<<5 - 1})
	s.Until("five vote, and the nodes are ready", func() bool {
		s.leader = s.Leader(forgetful)
		r, _ := s.replica(s.leader, forgetful)
		return len(r.State.Descriptor.Voters()) == 5 && !r.State.Descriptor.IsJoint() &&
			!slices.ContainsFunc(s.w.hosts, (*host).unready)
	})
	s.id = other(s.leader)
	s.Until("all have applied that", func() bool {
		return !slices.ContainsFunc(s.w.hosts, func(h *host) bool {
			r, ok := h.replica(forgetful)
			return !ok || len(r.State.Descriptor.Voters()) != 5
		})
	})
	s.Run(2 * time.Second) // all is noted, and nothing else goes on
	s.before, _ = s.replica(s.id, forgetful)
	return s
}

// between cuts the leader off from all but the one, or mends that.
func (s *forgetting) between(what func(from, to raftyard.NodeID)) {
	for _, h := range s.w.hosts {
		if h.id != s.leader && h.id != s.id {
			what(s.leader, h.id)
			what(h.id, s.leader)
		}
	}
}

// forgets has a follower lose what it has just acknowledged, which is committed, or not
// yet. It waits until another replica has come in its place and has all, and returns what
// was found.
func forgets(t *testing.T, seed uint64, committed bool) *BrokenError {
	t.Helper()
	s := startForgetting(t, seed)
	defer s.w.close()
	h := s.w.host(s.id)
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	if !committed {
		s.between(s.Cut)
	}
	s.Begin(s.leader, func(ctx context.Context, n *node.Node) error {
		_, err := n.Propose(ctx, forgetful, aPut())
		return err
	})
	s.Until("it has that", func() bool {
		r, _ := s.replica(s.id, forgetful)
		_, last := r.Log.Bounds()
		return last > s.before.Last && (!committed || r.Applied >= last)
	})
	s.Run(20 * time.Millisecond) // and the leader knows
	if n := h.disk.Stats().Commits - m.commits; n == 0 || n > rotten {
		t.Fatalf("seed %d: it has made %d commits", seed, n)
	}
	h.forget(m)
	if !committed { // or else the leader would speak of what the replica has not got
		s.await(200*time.Millisecond, func(world.Replica) bool { return false })
		s.between(s.Mend)
	}
	replaced := s.await(scriptPatience, func(r world.Replica) bool {
		return r.ID > s.before.ID && r.Serving && r.Applied > s.before.Last
	})
	broken := s.w.result()
	if broken == nil && !replaced {
		t.Errorf("seed %d: no other replica has come in its place", seed)
	}
	return broken
}

// await lets time pass until the replica on the node that forgets is as wanted, or
// something was found.
func (s *forgetting) await(d time.Duration, wanted func(world.Replica) bool) (so bool) {
	limit := s.Time() + d
	s.w.turns.At(int64(limit), func() {})
	s.w.turns.Until(func() bool {
		r, ok := s.replica(s.id, forgetful)
		so = ok && wanted(r)
		return so || s.Time() >= limit
	})
	return so
}

// TestPeersRemember: a node has lost what it had acknowledged, and its own disk shows no
// trace of that. The others remember: it influences nobody, and is replaced.
func TestPeersRemember(t *testing.T) {
	for seed := range uint64(forgetfulSeeds) {
		if broken := forgets(t, seed+1, seed%2 == 0); broken != nil {
			t.Fatalf("seed %d: %v", seed+1, broken)
		}
	}
}

// TestForgetsWhatHasBegun: a group has begun on a node whose disk loses that without a trace,
// and is nowhere else. The others remember what the node said of the registry: so it may have
// lost more than that, and nothing begins there a second time.
func TestForgetsWhatHasBegun(t *testing.T) {
	const g = 50
	s := Start(t, Config{Seed: 309, Nodes: 4, Groups: 1})
	allReady(s)
	members(s, 1, true, 1, 2, 4)
	s.Run(2 * time.Second)
	h := s.w.host(3)
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	createOwn(s, 1, g, 3)
	if _, err = s.Propose(1, g, aPut()); err != nil {
		t.Fatal(err)
	}
	if n := h.disk.Stats().Commits - m.commits; n > rotten {
		t.Fatalf("it has made %d commits since", n)
	}
	h.forget(m)
	s.Restart(3)
	s.Until("it has made up for that", func() bool {
		r, ok := s.replica(3, raftyard.SystemGroup)
		return ok && r.Serving && r.ID > 4 && !h.unready()
	})
	s.Run(5 * time.Second)
	if r, ok := s.replica(3, g); ok {
		t.Errorf("group %d is there again, as replica %d with %v", g, r.ID,
			r.State.Descriptor.Members)
	}
}
