//go:build unix

package test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// lead hands the leadership of groups, and of the system group, to a node.
func (p *parted) lead(t *testing.T, n *cluster.Node) {
	t.Helper()
	groups := append([]raftyard.GroupID{raftyard.SystemGroup}, p.groups...)
	for _, g := range groups {
		cluster.Eventually(t, startLimit, "leaderships are handed over", func() error {
			return n.Transfer(t.Context(), g, n.ID(), 2*time.Second).Error()
		})
	}
	// Everybody has heard of it.
	for _, g := range groups {
		term := raftOf(t, n, g).Term
		for _, other := range p.Nodes() {
			cluster.Eventually(t, startLimit, "the leader is known", func() error {
				r, err := other.Raft(t.Context(), g)
				return cmp.Or(err, want(r.Term == term && r.Leader != 0,
					"node %d: group %d is at term %d, leader %d", other.ID(), g, r.Term, r.Leader))
			})
		}
	}
}

// termsOn returns the terms of the groups, and of the system group, on a node.
func (p *parted) termsOn(t *testing.T, n *cluster.Node) []uint64 {
	t.Helper()
	var terms []uint64
	for _, g := range append([]raftyard.GroupID{raftyard.SystemGroup}, p.groups...) {
		terms = append(terms, raftOf(t, n, g).Term)
	}
	return terms
}

// TestFollowerReturns cuts a follower of twenty groups off for longer than elections
// take, or makes it deaf or dumb, and lets it come back. It must not depose anybody: no
// term changes, and no write through the others fails.
func TestFollowerReturns(t *testing.T) {
	p := newParted(t, 20)
	away, rest := p.Node(3), p.Nodes()[:2]
	p.lead(t, p.Node(1))
	one, two := ids([]*cluster.Node{away}), ids(rest)
	cuts := []struct {
		name  string
		links []cluster.Link
	}{
		{"cut off", cluster.Between(one, two)},
		{"deaf", cluster.Towards(two, one)},
		{"dumb", cluster.Towards(one, two)},
	}
	rounds, lasts := cluster.Sized(1, 7), cluster.Sized(6*time.Second, 30*time.Second)
	if testing.Short() {
		lasts = 3 * time.Second
	}
	before := p.termsOn(t, p.Node(1))
	l := newLoad(loadSpec{
		nodes: rest, groups: p.groups, clients: 20, keys: 100_000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	for range rounds {
		for _, cut := range cuts {
			l.awaitApplied(t, 200)
			p.Network().Set(cluster.Condition{Cut: true}, cut.links...)
			lapse(t, lasts, lasts+time.Second)
			p.Network().Heal()
			// It is heard when it comes back, and has what it has missed.
			cluster.Eventually(t, settleLimit, "the follower has caught up", func() error {
				return p.caughtUp(t, away)
			})
			after := p.termsOn(t, p.Node(1))
			if !slices.Equal(before, after) {
				t.Errorf("%s: the terms were %d and are %d", cut.name, before, after)
				before = after
			}
		}
	}
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	if n := l.tally.failed(); n > 0 {
		t.Errorf("%d writes failed, want none", n)
	}
	l.verifyLists(t, p.Nodes())
	verifyHashes(t, p.Nodes(), p.groups)
}

// caughtUp checks that a node has what the first node has committed of each group.
func (p *parted) caughtUp(t *testing.T, n *cluster.Node) error {
	t.Helper()
	for _, g := range p.groups {
		leader, err := p.Node(1).Raft(t.Context(), g)
		if err != nil {
			return err
		}
		r, err := n.Raft(t.Context(), g)
		err = cmp.Or(err, want(r.Applied+50 >= leader.Commit && r.Leader == leader.Leader,
			"group %d is at %d of %d, led by %d", g, r.Applied, leader.Commit, r.Leader))
		if err != nil {
			return err
		}
	}
	return nil
}

// mendLimit is how long a node may take to work again after a link was mended: the
// longest pause between two attempts to connect, which is 2 s, and what comes then.
const mendLimit = 4 * time.Second

// TestFollowerCutFromLeader cuts a follower only from the leader: the third node
// reaches both. What is asked of the follower must end within its deadline, and never
// tell what is out of date; nobody else is disturbed; and soon after the link is
// mended all is as before.
func TestFollowerCutFromLeader(t *testing.T) {
	p := newParted(t, 1)
	g := p.groups[0]
	leader, follower := p.Node(1), p.Node(3)
	lasts := cluster.Sized(8*time.Second, 30*time.Second)
	if testing.Short() {
		lasts = 4 * time.Second
	}
	a, b := ids([]*cluster.Node{leader}), ids([]*cluster.Node{follower})
	cuts := []struct {
		name  string
		links []cluster.Link
	}{
		{"both ways", cluster.Between(a, b)},
		{"what the leader says", cluster.Towards(a, b)},
		{"what the follower says", cluster.Towards(b, a)},
	}
	for i, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			if i > 0 {
				cluster.Long(t)
			}
			p.lead(t, leader)
			before := p.termsOn(t, leader)
			r := newRecorder([]raftyard.GroupID{g}, 4)
			through := newTally()
			r.prefix, r.apart = cut.name+"/", map[raftyard.NodeID]*tally{follower.ID(): through}
			p.Network().Set(cluster.Condition{Cut: true}, cut.links...)
			p.askWhileCut(t, r, lasts)
			longest := r.slowest[follower.ID()]
			t.Logf("through the follower: %v; the longest took %.2fs", through, longest.Seconds())
			t.Logf("through the others: %v", r.tally)
			if longest > operationTimeout+time.Second {
				t.Errorf("a request took %v, its deadline was %v", longest, operationTimeout)
			}
			if after := p.termsOn(t, leader); !slices.Equal(before, after) {
				t.Errorf("the terms were %d and are %d: somebody was deposed", before, after)
			}
			p.Network().Heal()
			mended := time.Now()
			cluster.Eventually(t, settleLimit, "the follower works", func() error {
				_, err := readKey(t.Context(), follower, g, "any", client.Linearizable)
				return cmp.Or(err, put(t, follower, g, "any", []byte(cut.name)))
			})
			took := time.Since(mended)
			t.Logf("works %.2fs after it was mended", took.Seconds())
			if took > mendLimit {
				t.Errorf("works %v after it was mended, want at most %v", took, mendLimit)
			}
			if n := r.tally.failed(); n > 0 {
				t.Errorf("%d requests to the others failed, want none: %v", n, r.tally)
			}
			r.tally.check(t)
			through.check(t)
			r.readAll(t, p.Nodes())
			r.check(t)
		})
	}
	verifyHashes(t, p.Nodes(), p.groups)
}

// askWhileCut has clients at all nodes for a time.
func (p *parted) askWhileCut(t *testing.T, r *recorder, lasts time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 * len(p.Nodes()) {
		dice := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		n := p.Nodes()[i%len(p.Nodes())]
		clients.Go(func() { r.run(t.Context(), n, dice, stop) })
	}
	lapse(t, lasts, lasts+time.Second)
	close(stop)
	clients.Wait()
}
