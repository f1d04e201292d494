package registry

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// many returns a registry with n groups, created in the order of perm or, if it
// is nil, of their ids.
func many(t testing.TB, n int, perm []int) *Registry {
	t.Helper()
	r := withNodes(t, 4)
	batch := make([]group.Command, 0, 64)
	c := create()
	for i := range n {
		id := i
		if perm != nil {
			id = perm[i]
		}
		c.ID = raftyard.GroupID(id + 1)
		batch = append(batch, group.Command{Data: EncodeCreateGroup(c)})
		if len(batch) == cap(batch) || i == n-1 {
			if _, err := r.Apply(batch); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	return r
}

func TestFiftyThousandGroups(t *testing.T) {
	const n = 50_000
	r := many(t, n, nil)
	if got, want := len(r.state.Load().groups.pages), n/pageRecords+1; got != want {
		t.Errorf("created in order, %d pages, want %d full ones", got, want)
	}
	for id := raftyard.GroupID(10); id <= n; id += 10 {
		if res := apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: id})); res.Code != OK {
			t.Fatalf("delete %d = %v", id, res.Code)
		}
	}
	if got, want := r.Counts(), (Counts{Nodes: 4, Groups: n - n/10, Deleted: n / 10}); got != want {
		t.Fatalf("Counts = %+v, want %+v", got, want)
	}

	// Page by page, every live group is listed once and in order.
	after, listed := raftyard.GroupID(0), 0
	for {
		list := r.Groups(after, 999)
		for _, g := range list {
			if g.ID <= after || g.Deleted {
				t.Fatalf("group %d, deleted %t, after group %d", g.ID, g.Deleted, after)
			}
			after = g.ID
		}
		if listed += len(list); len(list) < 999 {
			break
		}
	}
	if listed != n-n/10 {
		t.Errorf("listed %d groups, want %d", listed, n-n/10)
	}

	stream := save(t, r)
	other := New(nil, nil)
	restore(t, other, stream)
	if !bytes.Equal(hash(t, other), hash(t, r)) || other.Counts() != r.Counts() {
		t.Error("the restored registry is another one")
	}
	t.Logf("snapshot: %d bytes, %d a record", len(stream), len(stream)/n)
}

func TestOrderOfCreationDoesNotShowInIDs(t *testing.T) {
	const n = 5000
	r := many(t, n, rand.New(rand.NewPCG(1, 2)).Perm(n))
	next := raftyard.GroupID(1)
	for g := range r.All() {
		if g.ID != next {
			t.Fatalf("group %d, want %d", g.ID, next)
		}
		next++
	}
	if next != n+1 {
		t.Errorf("%d groups, want %d", next-1, n)
	}
}

// BenchmarkApply measures one change among many groups. Its cost must grow far
// slower than the number of groups.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			r := many(b, n, nil)
			odd, even := WantMembers{Voters: ids(1, 2, 3)}, WantMembers{Voters: ids(2, 3, 4)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c := odd
				if i/n%2 == 0 {
					c = even
				}
				c.ID = raftyard.GroupID(i%n + 1)
				if _, err := r.Apply([]group.Command{{Data: EncodeWantMembers(c)}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSnapshot measures what taking a snapshot costs beside Apply (take),
// which must not depend on the number of groups, and what writing it costs.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		r := many(b, n, nil)
		b.Run(fmt.Sprintf("take/groups=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Snapshot(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("write/groups=%d", n), func(b *testing.B) {
			for b.Loop() {
				s, err := r.Snapshot()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
