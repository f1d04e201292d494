package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// TestBeginsElsewhere: a group is to begin on a node that has just lost its disk, of
// which its peers have not heard. It never does, so it must come as another one.
func TestBeginsElsewhere(t *testing.T) {
	s := Start(t, Config{Seed: 6, Nodes: 3, Groups: 1})
	const seed = 2 // of the group that comes and goes, if it is up
	s.Until("its disk can be lost", func() bool { return s.w.whole(seed) })
	s.Isolate(seed)
	s.Inject(Fault{Kind: Wipe, Node: seed, For: time.Hour})
	s.Until("its disk is lost", func() bool { return s.w.host(seed).lost })
	s.Inject(Fault{Kind: Recreate})
	s.Until("the group has a leader", func() bool {
		g := s.w.group(ownGroup)
		return g != nil && s.Leader(ownGroup) != 0
	})
	if g := s.w.group(ownGroup); g.seed == seed || s.w.counts.Recreate != 1 {
		t.Errorf("it has begun on node %d, after %d others", g.seed, s.w.counts.Recreate)
	}
}

// TestWipedOneAfterTheOther takes the disks of all nodes, one after the other, of one of
// them twice. Each is taken in again, and what was acknowledged is there to the end.
func TestWipedOneAfterTheOther(t *testing.T) {
	s := Start(t, Config{Seed: 8, Nodes: 3, Groups: 2})
	last := uint64(0)
	for i, id := range []raftyard.NodeID{2, 1, 3, 3} {
		s.Until("its disk can be lost", func() bool { return s.w.whole(id) })
		res, err := s.Propose(id, 1, aPut())
		if err != nil {
			t.Fatal(err)
		}
		last = res.Index
		s.Inject(Fault{Kind: Wipe, Node: id, For: time.Millisecond})
		s.Until("it is back", func() bool {
			return s.w.counts.Returned == i+1 && s.Applied(id, 1) >= last
		})
	}
	s.Until("all is made up for", func() bool { return s.w.whole(1) })
}

// TestOldDirectoryComesBack puts the directory back that a node had before its disk was
// lost, when it has got its place again: it is refused, and the node gets a third one.
func TestOldDirectoryComesBack(t *testing.T) {
	s := Start(t, Config{Seed: 9, Nodes: 3, Groups: 1})
	s.Until("its disk can be lost", func() bool { return s.w.whole(2) })
	s.Inject(Fault{Kind: Revert, Node: 2, N: 1, For: 3 * time.Second})
	s.Until("the old one runs", func() bool { return s.w.counts.Reverts == 1 })
	s.Until("it has a third", func() bool { return s.w.counts.Returned == 2 })
	s.Until("all is made up for", func() bool { return s.w.whole(2) })
}

// TestOnlyFoundingVoterIsWiped takes the disk of one of two nodes that have founded the
// cluster: the only one of them that voted at first. It must not found it a second time.
func TestOnlyFoundingVoterIsWiped(t *testing.T) {
	s := Start(t, Config{Seed: 33, Nodes: 2, Groups: 1, Guests: 1})
	s.Until("all are ready", func() bool { return len(s.w.unready()) == 0 })
	s.Inject(Fault{Kind: Join, Node: 3})
	s.Until("a third has joined", func() bool { return !s.w.host(3).unready() })
	s.Inject(Fault{Kind: Members, Group: 1, N: 7})
	s.Until("its disk can be lost", func() bool { return s.w.whole(1) })
	s.Inject(Fault{Kind: Wipe, Node: 1, For: time.Millisecond})
	s.Until("it is back", func() bool { return s.w.counts.Returned == 1 })
	s.Until("all is made up for", func() bool { return s.w.whole(1) })
}

// loseSince crashes a node, takes from its disk what has come since a memo, which is noted
// beside it, and starts it again.
func (s *Script) loseSince(id raftyard.NodeID, m memo) {
	s.t.Helper()
	h := s.w.host(id)
	n := h.disk.Stats().Commits - m.commits
	if n > rotten {
		s.t.Fatalf("it has made %d commits since, a disk loses %d at most", n, rotten)
	}
	h.rotten = true
	h.crash(func(d *simdisk.Disk) { d.LoseTail(n) }, check.LostSome)
	s.Restart(id)
}

// madeUp waits until a node has made up for what its disk has lost.
func (s *Script) madeUp(id raftyard.NodeID) {
	s.t.Helper()
	s.Until("it has made up for that", func() bool {
		system, ok := s.replica(id, raftyard.SystemGroup)
		return ok && system.Serving && !s.w.host(id).unready()
	})
}

// TestFoundsNothingAgain takes the newest commits from the disk of a node on which a group
// began that is on others since: its founding, and its tombstone. It must not begin there a
// second time, nor be taken for one that never began.
func TestFoundsNothingAgain(t *testing.T) {
	const g = 50
	s := Start(t, Config{Seed: 308, Nodes: 4, Groups: 1})
	allReady(s)
	members(s, 1, true, 1, 2, 4)
	h := s.w.host(3)
	s.Run(2 * time.Second)
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	createOwn(s, 1, g, 3)
	r, _ := s.replica(3, g)
	members(s, g, true, 1)
	s.Until("it has left", func() bool { _, ok := s.replica(3, g); return !ok })
	s.Run(2 * time.Second) // which is noted
	res, err := s.Propose(1, g, aPut())
	if err != nil {
		t.Fatal(err)
	}
	s.loseSince(3, m)
	s.madeUp(3)
	s.Run(5 * time.Second)
	if again, ok := s.replica(3, g); ok {
		t.Errorf("group %d is there again as replica %d, it was %d", g, again.ID, r.ID)
	}
	if at := s.Applied(1, g); at < res.Index {
		t.Errorf("index %d is not applied, but %d", res.Index, at)
	}
	s.Isolate(1) // which has the only vote
	if err = s.On(3, func(ctx context.Context, n *node.Node) error {
		return n.DeleteGroup(ctx, g)
	}); !errors.Is(err, node.ErrNoQuorum) {
		t.Errorf("its deletion, of which its only voter cannot hear = %v, want %v",
			err, node.ErrNoQuorum)
	}
}

// TestForgottenComesBack takes the newest commits from a disk, those in which a replica was
// destroyed and its group forgotten among them. Nobody knows of the group any more, and in
// the end the disk does not either.
func TestForgottenComesBack(t *testing.T) {
	const g = 50
	s := Start(t, Config{Seed: 310, Nodes: 4, Groups: 1})
	allReady(s)
	members(s, 1, true, 1, 2, 4)
	createOwn(s, 1, g, 2, 3, 4)
	s.Run(2 * time.Second)
	h := s.w.host(3)
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	if err = s.On(1, func(ctx context.Context, n *node.Node) error {
		return errors.Join(n.DeleteGroup(ctx, g), n.ForgetGroup(ctx, g))
	}); err != nil {
		t.Fatal(err)
	}
	s.Run(2 * time.Second) // which is noted
	s.loseSince(3, m)
	s.Until("it is there again", func() bool { _, ok := s.replica(3, g); return ok })
	s.Until("it is gone again", func() bool { _, ok := s.replica(3, g); return !ok })
	s.Until("it is forgotten again", func() bool {
		return !slices.ContainsFunc(h.seen.Stored, func(st storage.Replica) bool {
			return st.Group == g
		})
	})
}

// TestKnowsTheDirectoryBefore takes the newest commits from a disk, and with them that
// another node has got a new data directory since. That node leads the system group, so it
// alone can replace what was lost: it must not be refused for the directory it had before.
func TestKnowsTheDirectoryBefore(t *testing.T) {
	s := Start(t, Config{Seed: 312, Nodes: 4, Groups: 1})
	allReady(s)
	h := s.w.host(3)
	s.Until("a disk can be lost", func() bool { return s.w.whole(2) })
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	s.Inject(Fault{Kind: Wipe, Node: 2, For: time.Millisecond})
	s.Until("it is back", func() bool { return s.w.counts.Returned == 1 && s.w.whole(2) })
	s.Until("it leads the system group", func() bool {
		if s.Leader(raftyard.SystemGroup) == 2 {
			return true
		}
		_ = s.On(2, func(ctx context.Context, n *node.Node) error {
			return n.TransferLeader(ctx, raftyard.SystemGroup, 2)
		}) // it is tried again
		return s.Leader(raftyard.SystemGroup) == 2
	})
	s.loseSince(3, m)
	s.madeUp(3)
}

// TestOnceTheOnlyVoter takes the newest commits from the disk of a node which was the only one
// that voted in the system group before them. By now others do, and replace it.
func TestOnceTheOnlyVoter(t *testing.T) {
	s := Start(t, Config{Seed: 311, Nodes: 2, Guests: 1, Groups: 1})
	allReady(s)
	members(s, 1, true, 2)
	const first = 1 // of two founders one votes
	h := s.w.host(first)
	s.Run(2 * time.Second)
	m, err := h.memo()
	if err != nil {
		t.Fatal(err)
	}
	s.Inject(Fault{Kind: Join, Node: 3, For: time.Millisecond})
	s.Until("all three vote", func() bool {
		r, ok := s.replica(first, raftyard.SystemGroup)
		return ok && len(r.State.Descriptor.Voters()) == 3 && !r.State.Descriptor.IsJoint()
	})
	s.Run(2 * time.Second)
	before, _ := s.replica(first, raftyard.SystemGroup)
	if n := h.disk.Stats().Commits - m.commits; n > rotten {
		t.Fatalf("it has made %d commits since", n)
	}
	h.rotten = true
	h.crash(func(d *simdisk.Disk) { d.LoseTail(d.Stats().Commits - m.commits) }, check.LostSome)
	s.Restart(first)
	s.Until("another replica has come in its place", func() bool {
		r, ok := s.replica(first, raftyard.SystemGroup)
		return ok && r.ID != before.ID && r.Serving && !h.unready()
	})
}
