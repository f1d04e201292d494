//go:build unix

package test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

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
		clients.Go(func() { r.run(t.Context(), c.Nodes()[i%3], stop) })
	}
	faults := torment(t, c, r, span)
	close(stop)
	clients.Wait()
	t.Log(r.tally)
	t.Logf("faults: %v", faults)
	r.tally.check(t)
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

// TestKeyModel checks the checker: it must refuse what must not happen.
func TestKeyModel(t *testing.T) {
	put := func(value string, call, done int64) porcupine.Operation {
		return porcupine.Operation{
			Input: operation{kind: "put", key: "k", value: value}, Output: observation{ok: true},
			Call: call, Return: done,
		}
	}
	get := func(value string, call, done int64) porcupine.Operation {
		return porcupine.Operation{
			Input: operation{kind: "get", key: "k"}, Output: observation{value: value},
			Call: call, Return: done,
		}
	}
	unknown := func(op operation, call int64) porcupine.Operation {
		return porcupine.Operation{
			Input: op, Output: observation{unknown: true}, Call: call, Return: 1 << 62,
		}
	}
	told := func(op operation, ok bool, call, done int64) porcupine.Operation {
		return porcupine.Operation{
			Input: op, Output: observation{ok: ok}, Call: call, Return: done,
		}
	}
	swap := operation{kind: "swap", key: "k", old: "a", value: "b"}
	create := operation{kind: "create", key: "k", value: "c"}
	remove := operation{kind: "delete", key: "k"}
	tests := []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"read what was written", []porcupine.Operation{put("a", 1, 2), get("a", 3, 4)}, true},
		{"read what was overwritten", []porcupine.Operation{
			put("a", 1, 2), put("b", 3, 4), get("a", 5, 6),
		}, false},
		{"read beside the write", []porcupine.Operation{
			put("a", 1, 2), put("b", 3, 6), get("a", 4, 5),
		}, true},
		{"lost", []porcupine.Operation{put("a", 1, 2), get("", 3, 4)}, false},
		{"back in time", []porcupine.Operation{
			put("a", 1, 2), put("b", 3, 9), get("b", 4, 5), get("a", 6, 7),
		}, false},
		{"unknown and never seen", []porcupine.Operation{
			put("a", 1, 2), unknown(remove, 3), get("a", 4, 5),
		}, true},
		{"unknown and done later", []porcupine.Operation{
			put("a", 1, 2), unknown(remove, 3), get("a", 4, 5), get("", 6, 7),
		}, true},
		{"unknown swap done twice", []porcupine.Operation{
			put("a", 1, 2), unknown(swap, 3), get("b", 4, 5), put("a", 6, 7), get("b", 8, 9),
		}, false},
		{"two swaps of one value", []porcupine.Operation{
			put("a", 1, 2), told(swap, true, 3, 6), told(swap, true, 4, 5),
		}, false},
		{"create where something is", []porcupine.Operation{
			put("a", 1, 2), told(create, true, 3, 4),
		}, false},
		{"create refused where nothing is", []porcupine.Operation{
			put("a", 1, 2), told(remove, true, 3, 4), told(create, false, 5, 6),
		}, false},
		{"delete of nothing", []porcupine.Operation{told(remove, true, 1, 2)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(keyModel(), tt.history); got != tt.want {
				t.Errorf("linearizable = %t, want %t", got, tt.want)
			}
		})
	}
}
