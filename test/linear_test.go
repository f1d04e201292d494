//go:build unix

package test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
)

// TestLinearizable has clients read, write, create, delete and swap through random
// nodes while random nodes are killed or frozen, and checks that everything they
// were told fits one order of events.
func TestLinearizable(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := groupIDs(3)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))

	span := cluster.Sized(20*time.Second, 3*time.Minute)
	if testing.Short() {
		span = 5 * time.Second
	}
	r := newRecorder(groups, 6)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 15 {
		dice := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		clients.Go(func() { r.run(t.Context(), c.Nodes()[i%3], dice, stop) })
	}
	faults := torment(t, c, r, span)
	close(stop)
	clients.Wait()
	t.Log(r.tally)
	t.Logf("faults: %v", faults)
	r.tally.check(t)
	r.readAll(t, c.Nodes())
	r.check(t)
	verifyHashes(t, c.Nodes(), groups)
}

// torment does things to random nodes for a time, one after the other, and leaves
// all of them running.
func torment(t *testing.T, c *cluster.Cluster, r *recorder, span time.Duration) map[string]int {
	t.Helper()
	did := make(map[string]int)
	for begun := time.Now(); time.Since(begun) < span; {
		nodes := c.Nodes()
		rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		switch dice := rand.N(10); {
		case dice < 4:
			did["kill"]++
			nodes[0].Kill()
			lapse(t, 0, 2500*time.Millisecond)
			nodes[0].Start()
		case dice < 8:
			did["freeze"]++
			nodes[0].Freeze()
			lapse(t, 500*time.Millisecond, 4*time.Second)
			nodes[0].Thaw()
		case dice < 9:
			did["kill two"]++
			c.Kill(nodes[0], nodes[1])
			lapse(t, 0, 500*time.Millisecond)
			nodes[0].Start()
			nodes[1].Start()
		default:
			did["freeze two"]++
			nodes[0].Freeze()
			nodes[1].Freeze()
			lapse(t, 500*time.Millisecond, 2*time.Second)
			nodes[1].Thaw()
			nodes[0].Thaw()
		}
		c.AwaitReady(startLimit)
		applied := r.tally.applied()
		cluster.Eventually(t, stallLimit, "requests succeed again", func() error {
			if r.tally.applied() > applied+50 {
				return nil
			}
			return r.tally.stalled()
		})
	}
	return did
}

// lapse lets a random time between two bounds pass: how long a fault lasts is a
// part of the fault.
func lapse(t *testing.T, from, to time.Duration) {
	t.Helper()
	timer := time.NewTimer(from + rand.N(to-from))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
