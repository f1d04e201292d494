//go:build unix

package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

const (
	forwardGroups  = 6
	forwardWriters = 16 // for each group
)

// TestForwardedOnce kills or freezes the leader while writes that others have
// passed on to it are under way, until another one leads, and lets it go on. A write must not be
// passed on again once it may be in a log: each key is written once, so one that
// has changed since it was made was written twice.
func TestForwardedOnce(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{})
	for _, n := range c.Nodes() {
		n.Configure("nodes:\n", "raft: {tick: 20ms}\nnodes:\n")
	}
	c.Start()
	for g := raftyard.GroupID(1); g <= forwardGroups; g++ {
		mustCreate(t, c.Node(1), g, 1, 2, 3)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 20))
	f := &forwarding{t: t, c: c, written: make(map[string]cluster.Outcome)}
	for round := range rounds(t, 2, 6, 100) {
		f.round(round, time.Duration(dice.IntN(15_000))*time.Microsecond)
		if t.Failed() {
			return
		}
	}
	f.check()
}

// forwarding remembers what every write was told.
type forwarding struct {
	t *testing.T
	c *cluster.Cluster

	mu      sync.Mutex
	written map[string]cluster.Outcome
	counts  [4]int // by outcome
}

// round writes to all groups through nodes that do not lead group 1, and kills or
// freezes the one that does after a while.
func (f *forwarding) round(round int, after time.Duration) {
	f.t.Helper()
	leader := f.leader(0)
	before := f.applied()
	stop, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for g := raftyard.GroupID(1); g <= forwardGroups; g++ {
		for i := range forwardWriters {
			n := f.c.Nodes()[(int(leader.ID())+i%2)%3] // not the leader
			wg.Go(func() {
				// Until it shows that the leader is gone, or it is over.
				for k := 0; stop.Err() == nil; k++ {
					if !f.write(n, g, fmt.Sprintf("%d-%d-%d-%d", round, g, i, k)) {
						return
					}
				}
			})
		}
	}
	cluster.Eventually(f.t, time.Minute, "writes are under way", func() error {
		if f.applied() == before {
			return errors.New("none was acknowledged")
		}
		return nil
	})
	timer := time.NewTimer(after)
	<-timer.C
	// Requests to a frozen node wait, those to a killed one are lost at once.
	if round%2 == 0 {
		leader.Kill()
		f.leader(leader.ID())
		leader.Start()
	} else {
		leader.Freeze()
		f.leader(leader.ID())
		leader.Thaw()
	}
	cancel()
	wg.Wait()
	f.c.AwaitReady(time.Minute)
}

func (f *forwarding) applied() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[cluster.Applied]
}

// leader returns the node that leads group 1, which is to be another than was.
func (f *forwarding) leader(was raftyard.NodeID) *cluster.Node {
	f.t.Helper()
	var leader raftyard.NodeID
	cluster.Eventually(f.t, time.Minute, "the group has another leader", func() error {
		asked := f.c.Nodes()[int(was)%3] // the one after it
		g, err := asked.Group(f.t.Context(), 1)
		if err == nil && (g.Leader == 0 || g.Leader == was) {
			err = fmt.Errorf("it is %d", g.Leader)
		}
		leader = g.Leader
		return err
	})
	return f.c.Node(leader)
}

// write sends a write once, and reports whether it was acknowledged.
func (f *forwarding) write(n *cluster.Node, g raftyard.GroupID, key string) bool {
	a := n.Do(f.t.Context(), cluster.Request{
		Method: "PUT", Path: cluster.KeyPath(g, key), Body: []byte(key), Timeout: 3 * time.Second,
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written[key] = a.Outcome
	f.counts[a.Outcome]++
	if a.Malformed {
		f.t.Errorf("%s: %v", key, a)
	}
	return a.Outcome == cluster.Applied
}

// check reads everything back through every node.
func (f *forwarding) check() {
	f.t.Helper()
	for _, n := range f.c.Nodes() {
		found, late := make(map[string]bool), 0
		for g := raftyard.GroupID(1); g <= forwardGroups; g++ {
			err := n.List(f.t.Context(), g, client.Linearizable, func(item client.Item) {
				key := string(item.Key)
				found[key] = true
				if item.Revision != item.CreateRevision {
					f.t.Errorf("node %d: %s was written twice: made by %d, changed by %d",
						n.ID(), key, item.CreateRevision, item.Revision)
				}
				if f.written[key] == cluster.NotApplied {
					f.t.Errorf("node %d: %s is there, but was refused as not applied", n.ID(), key)
				}
			})
			if err != nil {
				f.t.Fatal(err)
			}
		}
		for key, outcome := range f.written {
			if outcome == cluster.Unknown && found[key] {
				late++
			}
			if outcome == cluster.Applied && !found[key] {
				f.t.Errorf("node %d: %s is lost: it was acknowledged", n.ID(), key)
			}
		}
		f.t.Logf("node %d: %d writes of unknown outcome are done", n.ID(), late)
	}
	f.t.Logf("%d writes acknowledged, %d not applied, %d with unknown outcome",
		f.counts[cluster.Applied], f.counts[cluster.NotApplied], f.counts[cluster.Unknown])
	if f.counts[cluster.Unknown] == 0 {
		f.t.Error("no write was under way when its leader went")
	}
}

func mustCreate(t *testing.T, n *cluster.Node, g raftyard.GroupID, voters ...raftyard.NodeID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := n.Create(ctx, g, client.Spec{Kind: "kv", Voters: voters})
	if err := a.Error(); err != nil {
		t.Fatal(err)
	}
}
