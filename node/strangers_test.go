package node

import (
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

func nobody(raftyard.NodeID) bool { return false }

// TestStrangersAreLookedUp: somebody unknown is refused when the registry was read after it
// came, and does not know it; and not for ever.
func TestStrangersAreLookedUp(t *testing.T) {
	var s strangers
	now := time.Unix(1000, 0)
	if s.waiting(now) {
		t.Error("somebody waits before anybody has come")
	}
	if s.refuse(7, now) || !s.waiting(now) {
		t.Error("node 7 is refused before the registry was read, or nobody looks")
	}
	s.judged(now.Add(-time.Second), nobody)
	if s.refuse(7, now) {
		t.Error("node 7 is refused though the reading had begun before it came")
	}
	s.judged(now, nobody)
	if !s.refuse(7, now.Add(time.Second)) || s.waiting(now.Add(time.Second)) {
		t.Error("node 7 is let in though the registry does not know it, or is looked up again")
	}
	s.judged(now.Add(2*time.Second), func(id raftyard.NodeID) bool { return id == 7 })
	if s.refuse(7, now.Add(2*time.Second)) {
		t.Error("node 7 is refused though the registry knows it by now")
	}
	s.judged(now.Add(3*time.Second), nobody)
	later := now.Add(4*time.Second + strangerPatience)
	if s.refuse(7, later) || !s.waiting(later) {
		t.Error("what the registry said long ago still holds")
	}
}

// TestStrangersAreFew: as many as there is room for are remembered, as long as they come.
func TestStrangersAreFew(t *testing.T) {
	var s strangers
	now := time.Unix(1000, 0)
	for id := range raftyard.NodeID(maxStrangers) {
		if s.refuse(id+1, now) {
			t.Fatalf("node %d is refused", id+1)
		}
	}
	if !s.refuse(maxStrangers+1, now) || len(s.list) != maxStrangers {
		t.Errorf("one too many is let in; %d are remembered", len(s.list))
	}
	now = now.Add(strangerPatience)
	s.refuse(1, now)
	if !s.waiting(now.Add(time.Second)) || len(s.list) != 1 {
		t.Errorf("%d are remembered, want the one that came again", len(s.list))
	}
}

// TestHearsay: who is further in the registry is believed, and nobody else.
func TestHearsay(t *testing.T) {
	store := func(b byte) raftyard.StoreID { return raftyard.StoreID{b} }
	say := func(version uint64, b byte) *hearsay {
		return &hearsay{Version: version, Nodes: []saidStore{
			{Node: 1, Store: store(b), First: store(1), Boot: uint64(b)},
		}}
	}
	own := []registry.Node{{ID: 1, Store: store(1), First: store(1), Boot: 1}}
	tests := []struct {
		name   string
		noted  uint64 // up to which version of the registry
		said   []*hearsay
		want   byte
		wantAt uint64
	}{
		{"nothing was said", 0, nil, 1, 5},
		{"by one who is behind", 0, []*hearsay{say(4, 2)}, 1, 5},
		{"by one who is as far", 0, []*hearsay{say(5, 2)}, 1, 5},
		{"by one who is further", 0, []*hearsay{say(6, 2)}, 2, 6},
		{"who was noted before", 7, []*hearsay{say(6, 2)}, 9, 7},
		{"by two", 0, []*hearsay{say(8, 3), say(6, 2)}, 3, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var k noted
			var have notes
			if tt.noted > 0 {
				have = notes{at: tt.noted, list: []knownStore{
					{Node: 1, Store: store(9), First: store(1), Boot: 9},
				}}
			}
			for _, s := range tt.said {
				k.hearsay(s)
			}
			next := k.merge(have, own, 5)
			want := []knownStore{{
				Node: 1, Store: store(tt.want), First: store(1), Boot: uint64(tt.want),
			}}
			if !slices.Equal(next.list, want) || next.at != tt.wantAt {
				t.Errorf("noted %+v at %d, want %+v at %d", next.list, next.at, want, tt.wantAt)
			}
		})
	}
}

// TestDirectoriesAreAskedFor has one of three nodes hear from the others of a directory that
// its own registry does not know yet.
func TestDirectoriesAreAskedFor(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	said := c.nodes[1].serveDirectories()
	if len(said.Nodes) == 0 || said.Version == 0 {
		t.Fatalf("node 1 says %+v", said)
	}
	for i := range said.Nodes {
		if s := said.Nodes[i]; s.Store != c.nodes[s.Node].ownStore() || s.First != s.Store {
			t.Errorf("node 1 says of node %d: %+v", s.Node, s)
		}
	}
	n := c.nodes[3]
	said.Version += 1000
	said.Nodes = []saidStore{{Node: 9, Store: raftyard.StoreID{9}, First: raftyard.StoreID{8}}}
	n.noted.hearsay(&said)
	n.lifecycle.poke()
	want := group.NodeStore{Current: raftyard.StoreID{9}, First: raftyard.StoreID{8}}
	c.eventually("node 3 has noted it, and goes by it", func() bool {
		return n.noted.of(9).Store == want.Current && n.known()[9] == want
	})
}
