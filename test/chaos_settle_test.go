//go:build unix

package test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// settle mends everything, and checks what must hold then: every group goes on
// within a bound, also to other members; what was acknowledged is there; replicas
// are equal; nothing is where it ought not to be.
func (x *chaos) settle(before []uint64, end func()) {
	t := x.t
	t.Helper()
	x.net.Heal()
	mended := time.Now()
	x.c.AwaitReady(startLimit)
	ready := time.Since(mended)
	x.undrainAll()
	slowest := x.progress(mended)
	end()
	x.report(before, row{"after the faults", fmt.Sprintf(
		"all nodes ready in %.1fs, all groups write through all nodes in %.1fs",
		ready.Seconds(), slowest.Seconds())})
	final := x.moveToTheEnd()
	x.rec.tally.check(t)
	x.operated.check(t)
	x.rec.tally.only(t,
		client.CodeKeyNotFound, client.CodePrecondition, // which tell what there is
		client.CodeNoLeader, client.CodeNotLeader, client.CodeNotReady, client.CodeClosing,
		client.CodeTimeout, client.CodeOutcomeUnknown, client.CodeOverloaded,
		"connection_refused", "connection_lost", "no_answer")
	x.rec.readAll(t, x.c.Nodes())
	for i, g := range x.groups {
		var nodes []*cluster.Node
		for _, id := range final[i] {
			nodes = append(nodes, x.c.Node(id))
		}
		verifyHashes(t, nodes, []raftyard.GroupID{g})
	}
	verifyHashes(t, x.c.Nodes(), []raftyard.GroupID{raftyard.SystemGroup})
	for _, g := range x.gone {
		for _, n := range x.c.Nodes() {
			cluster.Eventually(t, moveLimit, "the group is gone", func() error {
				return isGone(t, n, g)
			})
		}
	}
	x.rec.check(t)
}

// progress waits until every group can be written through every node, and returns
// how long that took.
func (x *chaos) progress(since time.Time) time.Duration {
	x.t.Helper()
	var mu sync.Mutex
	var slowest time.Duration
	err := eachGroup(x.groups, len(x.groups), func(_ int, g raftyard.GroupID) error {
		for _, n := range x.c.Nodes() {
			err := put(x.t, n, g, "settled", []byte(n.ID().String()))
			for err != nil && time.Since(since) < settleLimit {
				err = put(x.t, n, g, "settled", []byte(n.ID().String()))
			}
			if err != nil {
				return fmt.Errorf("not within %v: %w", settleLimit, err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		slowest = max(slowest, time.Since(since))
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return slowest
}

// moveToTheEnd gives every group three drawn members, and waits until it has them,
// and until nobody else has a replica.
func (x *chaos) moveToTheEnd() [][]raftyard.NodeID {
	x.t.Helper()
	dice := x.dice(endDice)
	final := make([][]raftyard.NodeID, len(x.groups))
	for i := range final {
		final[i] = ids(x.some(dice, 3))
		slices.Sort(final[i])
	}
	begun := time.Now()
	err := eachGroup(x.groups, 8, func(i int, g raftyard.GroupID) error {
		for {
			m := client.Members{Voters: final[i]}
			a := x.c.Nodes()[i%chaosNodes].SetMembers(x.t.Context(), g, m, moveLimit)
			if a.Error() == nil {
				return nil
			}
			// The last change that an operator asked for may still be under way.
			if a.Why != client.CodeChangeUnderWay && a.Why != client.CodeNotReached ||
				time.Since(begun) > moveLimit {
				x.describe(g)
				return fmt.Errorf("move group %d to %v: %w", g, final[i], a.Error())
			}
			x.pause()
		}
	})
	if err != nil {
		x.t.Fatal(err)
	}
	for i, g := range x.groups {
		for _, n := range x.c.Nodes() {
			cluster.Eventually(x.t, moveLimit, "the members are known everywhere", func() error {
				return cmp.Or(hasMembers(x.t, n, g, final[i]), hasReplica(x.t, n, g, final[i]))
			})
		}
	}
	return final
}

// pause keeps the test from asking again at once.
func (x *chaos) pause() { cluster.Pause(x.t.Context().Done(), 100*time.Millisecond) }

// describe logs what each node knows of a group that does not go on.
func (x *chaos) describe(g raftyard.GroupID) {
	for _, n := range x.c.Nodes() {
		a := n.Do(x.t.Context(), cluster.Request{
			Method: http.MethodGet, Path: cluster.GroupPath(g, "/raft"),
		})
		x.t.Logf("group %d on node %d: %d %s", g, n.ID(), a.Status, a.Body)
	}
}
