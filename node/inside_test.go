package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
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

// A crowd is many groups on three nodes. Their proposals are made once: none is repeated.
type crowd struct {
	*cluster
	groups []raftyard.GroupID
	made   []atomic.Int64         // by group: proposals
	failed atomic.Pointer[string] // the first thing that did
}

// newCrowd founds a cluster and its groups, which nodes 1 and 2 lead.
func newCrowd(t *testing.T, groups int) *crowd {
	t.Helper()
	t.Parallel()
	c := &crowd{
		cluster: &cluster{t: t, dir: t.TempDir(), nodes: make(map[raftyard.NodeID]*Node)},
		made:    make([]atomic.Int64, groups+1),
	}
	var held []net.Listener
	for id := range raftyard.NodeID(3) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		c.peers = append(c.peers, Peer{ID: id + 1, Addr: l.Addr().String()})
	}
	t.Cleanup(c.closeAll)
	for i, p := range c.peers {
		c.open(p.ID, held[i])
	}
	for g := range raftyard.GroupID(groups) {
		c.groups = append(c.groups, g+1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*testTimeout)
	defer cancel()
	c.each(c.groups, func(g raftyard.GroupID) {
		spec := Spec{ID: g, Kind: "hooked", Voters: []raftyard.NodeID{1, 2, 3}}
		if _, err := c.nodes[1].CreateGroup(ctx, spec); err != nil {
			c.fail("create group %d: %v", g, err)
		}
	})
	c.check()
	for _, g := range append([]raftyard.GroupID{raftyard.SystemGroup}, c.groups...) {
		c.moveLeader(g, c.home(g))
	}
	return c
}

// open has a node tick slowly, so that none loses its leaderships to a busy machine: they
// must change for no reason but a fault that has not stayed where it was.
func (c *crowd) open(id raftyard.NodeID, l net.Listener) {
	c.t.Helper()
	cfg := c.config(id, l)
	cfg.TickInterval = 250 * time.Millisecond
	n, err := Open(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatalf("open node %d: %v", id, err)
	}
	c.nodes[id] = n
}

// isReplaced reports whether a node has a replica of a group that is newer than the one that was
// there before. There may be none for a moment.
func (c *crowd) isReplaced(
	at raftyard.NodeID, g raftyard.GroupID, before raftyard.ReplicaID,
) bool {
	st, err := c.nodes[at].RaftStatus(c.t.Context(), g)
	return err == nil && st.Replica > before
}

// home is the node that leads a group.
func (c *crowd) home(g raftyard.GroupID) raftyard.NodeID { return raftyard.NodeID(g%2 + 1) }

func (c *crowd) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.failed.CompareAndSwap(nil, &text)
}

// check ends the test if something has failed.
func (c *crowd) check() {
	c.t.Helper()
	if text := c.failed.Load(); text != nil {
		c.t.Fatal(*text)
	}
}

// each does something with some groups, a few at a time.
func (c *crowd) each(groups []raftyard.GroupID, do func(raftyard.GroupID)) {
	const hands = 8
	var wg sync.WaitGroup
	for i := range hands {
		wg.Go(func() {
			for j := i; j < len(groups) && c.failed.Load() == nil; j += hands {
				do(groups[j])
			}
		})
	}
	wg.Wait()
}

// propose proposes a word to a group at the node that leads it, and nowhere else.
func (c *crowd) propose(ctx context.Context, n *Node, g raftyard.GroupID) {
	p := group.Proposal{ID: n.newMessageID(), Data: []byte("word")}
	if _, done, err := n.proposeAsLeader(ctx, 0, g, p); !done || err != nil {
		c.fail("group %d: the proposal at node %d is to be repeated: %t, error: %v",
			g, n.ID(), !done, err)
	}
	c.made[g].Add(1)
}

// write proposes to groups, round after round, until the function that it returns is called,
// which waits for the end.
func (c *crowd) write(groups []raftyard.GroupID) (end func()) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*testTimeout)
	homes := map[raftyard.NodeID]*Node{1: c.nodes[1], 2: c.nodes[2]}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.failed.Load() == nil {
			c.each(groups, func(g raftyard.GroupID) { c.propose(ctx, homes[c.home(g)], g) })
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	var once sync.Once
	end = func() {
		once.Do(func() { close(stop) })
		<-done
		cancel()
	}
	c.t.Cleanup(end)
	return end
}

// TestFaultsStayInside has one of many groups panic in its state machines, everywhere, and
// one with a log that is cut off on one node, until the one is found and the other replaced.
// No proposal to the others fails meanwhile, or would have to be made again.
func TestFaultsStayInside(t *testing.T) {
	count := 60
	if os.Getenv("RAFTYARD_TEST_SCALE") == "full" {
		count = 1000
	} else if testing.Short() {
		count = 12
	}
	c := newCrowd(t, count)
	const poisoned, cut = raftyard.GroupID(1), raftyard.GroupID(2)
	ctx, cancel := context.WithTimeout(t.Context(), 5*testTimeout)
	defer cancel()
	for range 3 {
		c.each(c.groups, func(g raftyard.GroupID) { c.propose(ctx, c.nodes[c.home(g)], g) })
	}
	c.check()
	c.eventually("all is well", func() bool {
		ill, _, err := c.nodes[1].Groups(ctx, GroupFilter{Problem: "any"})
		return err == nil && len(ill) == 0
	})
	before := c.status(3, cut).Replica
	c.close(3)
	c.truncate(3, cut)
	c.breakWord("bad", 1, 2, 3)

	others := c.groups[2:]
	end := c.write(others)
	if _, err := c.nodes[1].Propose(ctx, poisoned, []byte("bad")); err == nil {
		t.Error("the poisoned group accepts what breaks it")
	}
	c.open(3, nil)
	c.eventually("the log that was cut off is replaced, and nothing but the poison is left",
		func() bool {
			c.check()
			ill, _, err := c.nodes[2].Groups(ctx, GroupFilter{Problem: "any"})
			return err == nil && len(ill) == 1 && ill[0].ID == poisoned &&
				slices.Contains(ill[0].Problems, "poison") && c.isReplaced(3, cut, before)
		})
	end()
	c.check()
	var sum atomic.Int64
	c.each(others, func(g raftyard.GroupID) {
		made := c.made[g].Load()
		words, err := c.nodes[3].Query(ctx, g, Linearizable, nil)
		if got := int64(strings.Count(string(words), "word")); err != nil || got != made {
			c.fail("group %d holds %d words, %v; want %d", g, got, err, made)
		}
		sum.Add(made)
	})
	c.check()
	t.Logf("%d proposals to %d groups, each made once", sum.Load(), len(others))
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
