package sim

import (
	"testing"
	"time"

	"github.com/raftyard/raftyard"
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
