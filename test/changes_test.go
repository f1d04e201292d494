//go:build unix

package test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// Changes are random changes of one group's members under writes.
type changes struct {
	c     *cluster.Cluster
	group raftyard.GroupID
	dice  *rand.Rand
	load  *load
	now   client.Members // as it was decided last

	ended         map[string]int // how the calls have ended
	slowest       time.Duration  // of those that were not disturbed
	calm, killing time.Duration  // the longest without a write
}

const (
	// killEvery is in which of the changes the leader's process is killed, and killDown
	// bounds for how long it is down then.
	killEvery = 5
	killDown  = 2 * time.Second
	// killGap is for how long no write may succeed then: it is down, starts, and there are
	// two elections.
	killGap = 8 * time.Second
)

// TestRandomChanges gives a group random members again and again, under writes, and kills
// the process of its leader in every fifth change. Every change must end as asked, or with
// a refusal that has a name and no effect, and no write that was acknowledged may be lost.
func TestRandomChanges(t *testing.T) {
	seed := chaosSeed(t)
	many := cluster.Sized(30, 100)
	if testing.Short() {
		many = 12
	}
	t.Logf("%d changes; again with %s=%d", many, envChaosSeed, seed)
	x := &changes{
		c: cluster.New(t, cluster.Config{Nodes: 5}), group: 1,
		dice:  rand.New(rand.NewPCG(seed, 0)),
		now:   client.Members{Voters: []raftyard.NodeID{1, 2, 3}},
		ended: make(map[string]int),
	}
	x.c.Start()
	spec := kvGroup(x.now.Voters...)
	spec.SnapshotEntries = 200 // some members begin with a snapshot
	createGroups(t, x.c.Nodes(), []raftyard.GroupID{x.group}, spec)
	x.load = newLoad(loadSpec{
		nodes: x.c.Nodes(), groups: []raftyard.GroupID{x.group}, clients: 8, keys: 5_000, size: 100,
	})
	x.load.start(t)
	x.load.grant(1, 1)
	begun := time.Now()
	for i := range many {
		x.load.awaitApplied(t, 20)
		x.change(t, i, (i+1)%killEvery == 0)
	}
	x.load.awaitApplied(t, 20)
	x.load.end()
	t.Logf("%d changes in %.1fs; the slowest that was not disturbed took %.2fs",
		many, time.Since(begun).Seconds(), x.slowest.Seconds())
	for _, how := range slices.Sorted(maps.Keys(x.ended)) {
		t.Logf("%5d %s", x.ended[how], how)
	}
	t.Logf("the longest without a write: %.2fs, and %.2fs where the leader was killed",
		x.calm.Seconds(), x.killing.Seconds())
	t.Log(x.load.tally)
	if x.calm > standstill {
		t.Errorf("the group stood still for %v though nobody was killed", x.calm)
	}
	if x.killing > killGap && !cluster.RaceEnabled {
		t.Errorf("the group stood still for %v where its leader was killed", x.killing)
	}
	x.load.tally.check(t)
	x.load.verifyLists(t, x.c.Nodes())
	x.load.verifyKeys(t, x.c.Nodes())
	members := slices.Sorted(slices.Values(slices.Concat(x.now.Voters, x.now.Learners)))
	var nodes []*cluster.Node
	for _, id := range members {
		nodes = append(nodes, x.c.Node(id))
	}
	verifyHashes(t, nodes, []raftyard.GroupID{x.group})
	verifyDisks(t, x.c, placed{x.group: members})
}

// draw draws members that differ from those that there are.
func (x *changes) draw() client.Members {
	for {
		nodes := ids(x.c.Nodes())
		x.dice.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		voters := 1 + x.dice.IntN(len(nodes))
		learners := x.dice.IntN(min(2, len(nodes)-voters) + 1)
		m := client.Members{Voters: nodes[:voters], Learners: nodes[voters : voters+learners]}
		slices.Sort(m.Voters)
		slices.Sort(m.Learners)
		if !sameMembers(m, x.now) {
			return m
		}
	}
}

func sameMembers(a, b client.Members) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Learners, b.Learners)
}

func describeMembers(m client.Members) string {
	if len(m.Learners) == 0 {
		return fmt.Sprint(m.Voters)
	}
	return fmt.Sprintf("%v and learners %v", m.Voters, m.Learners)
}

// change makes one change, and waits until the group is as it ought to be after it.
func (x *changes) change(t *testing.T, i int, kill bool) {
	t.Helper()
	to := x.draw()
	asked := x.c.Nodes()[x.dice.IntN(5)]
	leader := leaderOf(t, x.c.Nodes(), x.group)
	answer := make(chan cluster.Answer, 1)
	begun := time.Now()
	go func() { answer <- asked.SetMembers(t.Context(), x.group, to, changeLimit) }()
	down := time.Duration(0)
	if kill {
		lapse(t, 0, time.Duration(1+x.dice.IntN(200))*time.Millisecond)
		leader.Kill()
		down = within(x.dice, 0, killDown)
		lapse(t, down, down+time.Millisecond)
		leader.Start()
	}
	a := <-answer
	took := time.Since(begun)
	what := fmt.Sprintf("change %d, %s → %s, asked of node %d, led by node %d",
		i+1, describeMembers(x.now), describeMembers(to), asked.ID(), leader.ID())
	if kill {
		what += fmt.Sprintf(", which is killed for %v", down)
	}
	x.conclude(t, what, to, a)
	x.c.AwaitReady(startLimit)
	x.awaitAsDecided(t, what)
	x.load.awaitApplied(t, 20)
	gap := x.load.tally.lap(x.group)
	if gap > time.Second {
		t.Logf("no write for %.2fs: %s", gap.Seconds(), what)
	}
	how := "undisturbed: "
	if kill {
		how = "leader killed: "
		x.killing = max(x.killing, gap)
	} else {
		x.calm, x.slowest = max(x.calm, gap), max(x.slowest, took)
	}
	x.ended[how+a.Outcome.String()+" "+a.Why]++
}

// conclude learns from an answer which members the group is to have. If it tells nothing,
// the change is asked for again, which does nothing if it is made already.
func (x *changes) conclude(t *testing.T, what string, to client.Members, a cluster.Answer) {
	t.Helper()
	switch a.Outcome {
	case cluster.Applied:
		x.now = to
	case cluster.NotApplied:
		if a.Malformed || a.Problem == nil && a.Why != "connection_refused" {
			t.Fatalf("%s: %v, a refusal without a name", what, a)
		}
	default:
		// It goes on by itself, or it never began.
		cluster.Eventually(t, changeLimit, what+" ends", func() error {
			b := x.c.Node(1).SetMembers(t.Context(), x.group, to, changeLimit)
			if b.Why == client.CodeChangeUnderWay && b.Outcome == cluster.NotApplied {
				t.Fatalf("%s: %v, and asked for again: %v", what, a, b)
			}
			return b.Error()
		})
		x.now = to
	}
}

// awaitAsDecided waits until every node says that the group has the members that it
// ought to have, and has a replica just if it is one of them.
func (x *changes) awaitAsDecided(t *testing.T, what string) {
	t.Helper()
	cluster.Eventually(t, moveLimit, what+": all is as it ought to be", func() error {
		var errs []error
		for _, n := range x.c.Nodes() {
			errs = append(errs, isMembership(t, n, x.group, x.now))
		}
		return cmp.Or(errs...)
	})
}

// isMembership checks that a node says that a group has just these members, and that it
// has a replica just if it is one of them.
func isMembership(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, m client.Members,
) error {
	got, err := n.Group(t.Context(), g)
	if err != nil {
		return err
	}
	var have client.Members
	for _, member := range got.Members {
		switch member.Role {
		case "voter":
			have.Voters = append(have.Voters, member.Node)
		case "learner":
			have.Learners = append(have.Learners, member.Node)
		default:
			return fmt.Errorf("node %d: node %d is %s", n.ID(), member.Node, member.Role)
		}
	}
	slices.Sort(have.Voters)
	slices.Sort(have.Learners)
	wanted := client.Members{Voters: got.Voters, Learners: got.Learners}
	return cmp.Or(
		want(sameMembers(wanted, m), "node %d: wanted are %v, not %v", n.ID(), wanted, m),
		want(sameMembers(have, m), "node %d: there are %v, not %v", n.ID(), have, m),
		hasReplica(t, n, g, slices.Concat(m.Voters, m.Learners)),
	)
}
