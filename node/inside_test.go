package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// truncate cuts the log of a replica on a node that is down, below what it has committed.
func (c *cluster) truncate(id raftyard.NodeID, g raftyard.GroupID) {
	c.t.Helper()
	s, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, id.String()), Cluster: c.anyNode().cluster, Node: id,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	first, last := s.Log(g).Bounds()
	if first+2 > last {
		c.t.Fatalf("the log of group %d is %d to %d, want more of it", g, first, last)
	}
	e, err := s.Log(g).Entries(first, first+1, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	b := s.NewBatch()
	b.Update(g, storage.Update{
		Entries: e,
		HardState: &raftpb.HardState{
			Term:   new(s.Log(g).HardState().GetTerm()),
			Commit: new(e[0].GetIndex()),
		},
	})
	if err := errors.Join(b.Commit(), s.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// TestFaultsStayInside has one of many groups panic in its state machines, everywhere, and
// one with a log that is cut off on one node. The others see no error.
func TestFaultsStayInside(t *testing.T) {
	count := 60
	if os.Getenv("RAFTYARD_TEST_SCALE") == "full" {
		count = 1000
	} else if testing.Short() {
		count = 12
	}
	c := newCluster(t, 3)
	const poisoned, cut = raftyard.GroupID(1), raftyard.GroupID(2)
	var groups []raftyard.GroupID
	for g := range raftyard.GroupID(count) {
		groups = append(groups, g+1)
	}
	each := func(groups []raftyard.GroupID, do func(raftyard.GroupID)) {
		var wg sync.WaitGroup
		const hands = 8
		for i := range hands {
			wg.Go(func() {
				for j := i; j < len(groups); j += hands {
					do(groups[j])
				}
			})
		}
		wg.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*testTimeout)
	defer cancel()
	var failed atomic.Pointer[string]
	fail := func(text string) { failed.CompareAndSwap(nil, &text) }
	propose := func(at raftyard.NodeID, g raftyard.GroupID, word string) {
		if _, err := c.nodes[at].Propose(ctx, g, []byte(word)); err != nil {
			fail(fmt.Sprintf("propose %q to group %d at node %d: %v", word, g, at, err))
		}
	}
	each(groups, func(g raftyard.GroupID) {
		spec := Spec{ID: g, Kind: "hooked", Voters: []raftyard.NodeID{1, 2, 3}}
		if _, err := c.nodes[1].CreateGroup(ctx, spec); err != nil {
			fail(fmt.Sprintf("create group %d: %v", g, err))
			return
		}
		for _, word := range []string{"a", "b", "c"} {
			propose(raftyard.NodeID(g%3+1), g, word)
		}
	})
	c.eventually("all is well", func() bool {
		ill, _, err := c.nodes[1].Groups(ctx, GroupFilter{Problem: "any"})
		return err == nil && len(ill) == 0
	})
	before := c.status(3, cut).Replica
	c.close(3)
	c.truncate(3, cut)
	c.breakWord("bad", 1, 2, 3)

	others := groups[2:]
	var writers sync.WaitGroup
	for _, at := range []raftyard.NodeID{1, 2} {
		writers.Go(func() {
			for round := range 3 {
				word := fmt.Sprint("w", at, round)
				each(others, func(g raftyard.GroupID) { propose(at, g, word) })
			}
		})
	}
	if _, err := c.nodes[1].Propose(ctx, poisoned, []byte("bad")); err == nil {
		t.Error("the poisoned group accepts what breaks it")
	}
	n, err := Open(ctx, c.config(3, nil))
	if err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	c.nodes[3] = n
	if text := failed.Load(); text != nil {
		t.Fatal(*text)
	}
	c.eventually("the log that was cut off is replaced, and nothing but the poison is left",
		func() bool {
			ill, _, err := c.nodes[2].Groups(ctx, GroupFilter{Problem: "any"})
			return err == nil && len(ill) == 1 && ill[0].ID == poisoned &&
				slices.Contains(ill[0].Problems, "poison") &&
				c.status(3, cut).Replica > before
		})
	each(others, func(g raftyard.GroupID) {
		words, err := c.nodes[3].Query(ctx, g, Linearizable, nil)
		if want := len("a\nb\nc") + 6*len("\nw1 0"); err != nil || len(words) != want {
			fail(fmt.Sprintf("group %d holds %q, %v; want %d bytes", g, words, err, want))
		}
	})
	if text := failed.Load(); text != nil {
		t.Fatal(*text)
	}
}

// TestPanicInRaftStaysInside: an invariant of raft is broken in one replica, the leader of its
// group. It is stopped and says why; its group, its node and the other groups there go on.
func TestPanicInRaftStaysInside(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2, 3)
	c.add(1, 1, "a")
	at := c.leader(1)
	other := at%3 + 1
	r := c.nodes[at].replica(1)
	onWorker(r, func() {
		r.worker.guard(r, "take a step", func() { panic("out of joint") })
	})
	q := c.inQuarantine(at)
	if q.Reason != RaftPanicked || q.Votes || len(q.Events) == 0 ||
		!strings.Contains(q.Events[len(q.Events)-1], "out of joint") {
		t.Errorf("quarantine = %+v, want a panic of raft, with events, and no vote", q)
	}
	c.add(other, 1, "b")
	c.wantWords(other, 1, "a", "b")
	c.add(at, 2, "b")
	if err := c.nodes[at].Err(); err != nil {
		t.Errorf("the node has failed: %v", err)
	}
}
