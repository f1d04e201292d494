//go:build unix

package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A counter is a key that clients count up by compare and set.
type counter struct {
	group   raftyard.GroupID
	applied atomic.Int64 // increments that are acknowledged
	unknown atomic.Int64 // increments that may have happened
}

// TestCounters has clients count up by If-Match through all nodes while nodes are
// killed and frozen. A node that repeats by itself what it has forwarded, or applies an
// entry twice after a restart, makes the sum wrong.
func TestCounters(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{})
	c.Start()
	counters := make([]*counter, cluster.Sized(12, 48))
	groups := groupIDs(len(counters))
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	for i := range counters {
		counters[i] = &counter{group: groups[i]}
	}

	y := newTally()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range cluster.Sized(24, 64) {
		wg.Go(func() { countUp(t.Context(), c.Nodes(), counters, y, stop) })
	}
	done := func(n int) func() error {
		want := y.applied() + n
		return func() error {
			if y.applied() >= want {
				return nil
			}
			return y.stalled()
		}
	}
	for i := range cluster.Sized(4, 40) {
		cluster.Eventually(t, stallLimit, "counting", done(500))
		n := c.Nodes()[rand.N(3)]
		if i%2 == 1 {
			// Long enough for an election: what was sent to it is taken up after it.
			n.Freeze()
			lapse(t, time.Second, 3*time.Second)
			n.Thaw()
			continue
		}
		n.Kill()
		cluster.Eventually(t, stallLimit, "counting on without a node", done(200))
		n.Start()
		n.AwaitReady(startLimit)
	}
	close(stop)
	wg.Wait()
	t.Log(y)
	y.check(t)

	var sum, acknowledged int64
	for _, k := range counters {
		value, err := readCounter(t.Context(), c.Node(1), k.group)
		if err != nil {
			t.Fatal(err)
		}
		sum, acknowledged = sum+value.n, acknowledged+k.applied.Load()
		low, high := k.applied.Load(), k.applied.Load()+k.unknown.Load()
		if value.n < low || value.n > high {
			t.Errorf("group %d has counted to %d; %d are acknowledged and %d unknown",
				k.group, value.n, low, k.unknown.Load())
		}
	}
	t.Logf("counted to %d in %d groups; %d are acknowledged", sum, len(counters), acknowledged)
	verifyHashes(t, c.Nodes(), groups)
}

// counted is where a counter stands.
type counted struct {
	n    int64
	etag string // empty: there is no such key yet
}

func readCounter(ctx context.Context, n *cluster.Node, g raftyard.GroupID) (counted, error) {
	a := n.Do(ctx, cluster.Request{Method: http.MethodGet, Path: cluster.KeyPath(g, "counter")})
	if a.Why == client.CodeKeyNotFound {
		return counted{}, nil
	}
	if err := a.Error(); err != nil {
		return counted{}, err
	}
	value, err := strconv.ParseInt(string(a.Body), 10, 64)
	if err != nil {
		return counted{}, fmt.Errorf("group %d: %w", g, err)
	}
	return counted{n: value, etag: a.Header.Get("ETag")}, nil
}

// countUp is one client. It reads a counter through one node and sets it through
// another, once.
func countUp(
	ctx context.Context, nodes []*cluster.Node, counters []*counter, y *tally, stop <-chan struct{},
) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		k := counters[rand.N(len(counters))]
		now, err := readCounter(ctx, nodes[rand.N(len(nodes))], k.group)
		if err != nil {
			pause(stop)
			continue
		}
		header := http.Header{"If-Match": {now.etag}}
		if now.etag == "" {
			header = http.Header{"If-None-Match": {"*"}}
		}
		a := nodes[rand.N(len(nodes))].Do(ctx, cluster.Request{
			Method: http.MethodPut, Path: cluster.KeyPath(k.group, "counter"),
			Header: header, Body: strconv.AppendInt(nil, now.n+1, 10),
		})
		y.note(k.group, a)
		switch a.Outcome {
		case cluster.Applied:
			k.applied.Add(1)
		case cluster.Unknown:
			k.unknown.Add(1)
		case cluster.NotApplied:
			if a.Why != client.CodePrecondition {
				pause(stop)
			}
		}
	}
}
