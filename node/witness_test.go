package node

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// TestPeersRemember: the last entry that a replica had acknowledged has become another one,
// and nothing on its disk tells. The leader does, and the replica is replaced.
func TestPeersRemember(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2, 3)
	c.moveLeader(1, 1)
	c.add(1, 1, "a", "b")
	c.add(1, 2, "c")
	c.wantWords(3, 1, "a", "b")
	cluster, before := c.nodes[1].cluster, c.ids(3)
	c.close(3)
	s, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, "3"), Cluster: cluster, Node: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, last := s.Log(1).Bounds()
	b := s.NewBatch()
	b.Update(1, storage.Update{Entries: []*raftpb.Entry{{
		Index: new(last), Term: new(s.Log(1).HardState().GetTerm() - 1),
	}}})
	if err = errors.Join(b.Commit(), s.Close()); err != nil {
		t.Fatal(err)
	}
	c.open(3, nil)
	r := c.nodes[3].replica(1)
	c.rebuilt(1, 3, 1, before[1])
	if r.id == before[1] && !strings.Contains(r.goneReason().Error(), "knows better") {
		t.Errorf("it was stopped because of %v", r.goneReason())
	}
	c.wantWords(3, 1, "a", "b")
	c.wantWords(3, 2, "c")
	if now := c.ids(3); now[2] != before[2] || now[0] != before[0] {
		t.Errorf("the replicas were %v and are %v: others were replaced, too", before, now)
	}
}

// TestRememberedInPages: all groups are told, page by page, to the directory that they are
// about, and to no other.
func TestRememberedInPages(t *testing.T) {
	c := newCluster(t, 2)
	for g := range raftyard.GroupID(5) {
		c.create(g+1, 1, 2)
		c.moveLeader(g+1, 1)
		c.add(1, g+1, "a")
	}
	c.wantWords(2, 5, "a")
	asker := transport.Identity{Node: 2, Store: c.nodes[2].store.Identity().Store}
	var groups []raftyard.GroupID
	for next, pages := raftyard.GroupID(1), 0; next != 0; pages++ {
		var page []testimony
		var err error
		next, page, err = c.nodes[1].remembered(t.Context(), &asker, next, 2)
		if err != nil || len(page) > 2 || pages > 2 {
			t.Fatalf("page %d has %d groups, %v", pages, len(page), err)
		}
		for i := range page {
			if page[i].Acked.Index == 0 || page[i].AckTerm == 0 {
				t.Errorf("of group %d is remembered %+v", page[i].group, page[i].Witness)
			}
			groups = append(groups, page[i].group)
		}
	}
	slices.Sort(groups)
	if want := []raftyard.GroupID{1, 2, 3, 4, 5}; !slices.Equal(groups, want) {
		t.Errorf("told of %v, want %v", groups, want)
	}
	asker.Store[0]++
	_, all, err := c.nodes[1].remembered(t.Context(), &asker, 1, 10)
	if err != nil || len(all) != 0 {
		t.Errorf("another directory is told %+v, %v", all, err)
	}
}

func TestTestimonies(t *testing.T) {
	all := []testimony{
		{group: 7, incarnation: raftyard.Incarnation{1}, of: 2, by: 3},
		{
			group: 1 << 60, incarnation: raftyard.Incarnation{2}, of: 1 << 50, by: 1,
			Witness: group.Witness{
				Term: 1, Voted: 2, AckTerm: 3, Acked: group.Mark{Index: 4, Term: 5},
				Committed: group.Mark{Index: 6, Term: 7},
			},
		},
	}
	b := encodeTestimonies(9, all)
	next, got, err := decodeTestimonies(b)
	if err != nil || next != 9 || !slices.Equal(got, all) {
		t.Errorf("%d, %+v, %v", next, got, err)
	}
	for n := range b {
		if _, _, err := decodeTestimonies(b[:n]); err == nil {
			t.Errorf("the first %d bytes of %d are taken for an answer", n, len(b))
		}
	}
}
