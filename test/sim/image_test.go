package sim

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// TestShunned says who must refuse a node on an older copy of its disk: those who knew of
// a later start when the connection came up.
func TestShunned(t *testing.T) {
	tests := []struct {
		name      string
		noted     map[raftyard.NodeID]uint64
		connected []raftyard.NodeID
		want      []raftyard.NodeID
	}{
		{name: "nobody connects", noted: map[raftyard.NodeID]uint64{1: 5, 2: 6}},
		{
			name: "who knows the last start", noted: map[raftyard.NodeID]uint64{1: 4, 2: 5},
			connected: []raftyard.NodeID{2}, want: []raftyard.NodeID{2},
		},
		{
			name: "who knows a later one", noted: map[raftyard.NodeID]uint64{1: 6},
			connected: []raftyard.NodeID{1}, want: []raftyard.NodeID{1},
		},
		{
			name:  "who knows an earlier one, and who knows nothing",
			noted: map[raftyard.NodeID]uint64{1: 4, 2: 0}, connected: []raftyard.NodeID{1, 2, 3},
		},
		{
			name: "some do", noted: map[raftyard.NodeID]uint64{1: 5, 2: 0, 4: 9},
			connected: []raftyard.NodeID{1, 2, 3, 4}, want: []raftyard.NodeID{1, 4},
		},
	}
	for i, tt := range tests {
		now, s := time.Duration(i)*time.Second, shunned{last: 5}
		s.look(now, tt.noted)
		if got := s.wronglyBy(tt.connected); !slices.Equal(got, tt.want) || s.at != now {
			t.Errorf("%s: %v at %v, want %v at %v", tt.name, got, s.at, tt.want, now)
		}
	}
	s := shunned{last: 5}
	s.look(0, map[raftyard.NodeID]uint64{1: 0})
	for range 2 { // it notes the copy
		if got := s.wronglyBy([]raftyard.NodeID{1}); got != nil {
			t.Errorf("%v is wrong, which cannot tell", got)
		}
		s.look(0, map[raftyard.NodeID]uint64{1: 9})
	}
}

// TestOlderCopyIsStartedAgain puts an older copy of a disk back and starts it often: each
// start raises the counter of the copy, until it is beyond that of the disk. It must not be
// taken for that: with it another majority would have other entries.
func TestOlderCopyIsStartedAgain(t *testing.T) {
	s := Start(t, Config{Seed: 301, Nodes: 3, Groups: 1})
	ready := func() bool { return len(s.w.unready()) == 0 }
	s.Until("all are ready", ready)
	h := s.w.host(3)
	image := h.image()
	s.Until("all are ready again", ready)
	s.Kill(3)
	s.Restart(3)
	s.Until("all have noted the last start", func() bool { return ready() && s.w.noted(h) })
	s.Isolate(2)
	s.Until("the others have leaders", func() bool {
		g, sys := s.Leader(1), s.Leader(raftyard.SystemGroup)
		return g != 0 && g != 2 && sys != 0 && sys != 2
	})
	var acked uint64
	for range 5 {
		res, err := s.Propose(1, 1, aPut()) // nodes 1 and 3 have it
		if err != nil {
			t.Fatal(err)
		}
		acked = res.Index
	}
	s.Kill(1)
	s.Heal()
	h.startFrom(image, 30*time.Second, 9) // one that is listened to fails the simulation
	s.Until("the copy was started ten times", func() bool { return h.boots >= 13 })
	s.Until("the copy is gone", func() bool { return !h.stale })
	s.Restart(1)
	s.Until("node 3 is back", func() bool { return s.w.counts.Returned == 1 })
	s.Until("node 3 has the entries", func() bool { return s.Applied(3, 1) >= acked })
}

// TestImageAtAnyMoment takes images while nodes come up, and starts copies of them.
func TestImageAtAnyMoment(t *testing.T) {
	for n := range uint64(4) {
		t.Run(strconv.FormatUint(n, 10), func(t *testing.T) {
			s := Start(t, Config{Seed: 310 + n, Nodes: 3, Groups: 1})
			s.Inject(Fault{
				Kind: Revert, Node: 1 + raftyard.NodeID(n%3), For: 5 * time.Second,
				N: revertAtOnce | n%2*revertTwice | 4*revertAgain,
			})
			s.Until("the copy runs", func() bool { return s.w.counts.Reverts == 1 })
			s.Until("the node is back", func() bool { return s.w.counts.Returned == 1 })
		})
	}
}
