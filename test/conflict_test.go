//go:build unix

package test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A rivalry is what several operators want of a group's members at the same time, and
// what they were told.
type rivalry struct {
	group   raftyard.GroupID
	wanted  [][]raftyard.NodeID
	answers []cluster.Answer
	took    []time.Duration
	seen    *sightings
}

// Sightings are the members that a group was seen to want.
type sightings struct {
	stop   chan struct{}
	wg     sync.WaitGroup
	wanted map[string]bool
}

// sight looks at a group through a node until end is called. It has looked once when it
// returns.
func sight(t *testing.T, n *cluster.Node, g raftyard.GroupID) *sightings {
	t.Helper()
	s := &sightings{stop: make(chan struct{}), wanted: make(map[string]bool)}
	look := func() {
		if got, err := n.Group(t.Context(), g); err == nil {
			s.wanted[fmt.Sprint(got.Voters)] = true
		}
	}
	look()
	s.wg.Go(func() {
		for {
			cluster.Pause(s.stop, 5*time.Millisecond)
			look()
			select {
			case <-s.stop:
				return
			default:
			}
		}
	})
	return s
}

func (s *sightings) end() {
	close(s.stop)
	s.wg.Wait()
}

// rivalWait is how long each of them waits for its members.
const rivalWait = 6 * time.Second

// compete asks for all of it at once, through the nodes in turn.
func compete(
	t *testing.T, nodes []*cluster.Node, g raftyard.GroupID, wanted ...[]raftyard.NodeID,
) *rivalry {
	t.Helper()
	r := &rivalry{
		group: g, wanted: wanted, seen: sight(t, nodes[len(nodes)-1], g),
		answers: make([]cluster.Answer, len(wanted)), took: make([]time.Duration, len(wanted)),
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for i, voters := range wanted {
		wg.Go(func() {
			m := client.Members{Voters: voters}
			r.answers[i] = nodes[i%len(nodes)].SetMembers(t.Context(), g, m, rivalWait)
			r.took[i] = time.Since(begun)
		})
	}
	wg.Wait()
	r.seen.end()
	return r
}

// check holds the nodes to what they have answered, and returns the members that the
// group has in the end: those of one who was not refused.
func (r *rivalry) check(t *testing.T, c *cluster.Cluster) []raftyard.NodeID {
	t.Helper()
	var open [][]raftyard.NodeID // what may have come to be
	for i, a := range r.answers {
		if r.took[i] > 2*rivalWait+time.Second {
			t.Errorf("%v took %v", r.wanted[i], r.took[i])
		}
		switch {
		case a.Outcome == cluster.Applied:
			open = append(open, r.wanted[i])
			if err := r.done(i); err != nil {
				t.Errorf("%v is said to be done: %v", r.wanted[i], err)
			}
		case a.Why == client.CodeNotReached:
			open = append(open, r.wanted[i])
		case a.Why != client.CodeChangeUnderWay:
			t.Errorf("%v: %v, want done, or %s", r.wanted[i], a, client.CodeChangeUnderWay)
		}
	}
	if len(open) == 0 {
		t.Fatalf("everybody was refused: %v", r.answers)
	}
	got, err := c.Node(1).Group(t.Context(), r.group)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(open, func(v []raftyard.NodeID) bool {
		return slices.Equal(v, got.Voters)
	}) {
		t.Fatalf("the voters are to be %v; those who were not refused want %v", got.Voters, open)
	}
	awaitPlaced(t, c.Nodes(), r.group, got.Voters)
	return got.Voters
}

// done checks that somebody who was told that the group has his members was told so
// truly. Somebody else may have been granted others since.
func (r *rivalry) done(i int) error {
	var got client.Group
	if err := r.answers[i].Decode(&got); err != nil {
		return err
	}
	var members []raftyard.NodeID
	for _, m := range got.Members {
		members = append(members, m.Node)
	}
	slices.Sort(members)
	// Who looks on may have missed what was wanted for a moment. Then the answer shows it.
	decided := r.seen.wanted[fmt.Sprint(r.wanted[i])] || slices.Equal(got.Voters, r.wanted[i])
	return cmp.Or(
		want(decided, "it was never decided"),
		want(!slices.Equal(got.Voters, r.wanted[i]) || slices.Equal(members, r.wanted[i]),
			"the members are %v", members),
	)
}

// count adds up how they were answered.
func (r *rivalry) count(counts map[string]int) {
	for _, a := range r.answers {
		counts[a.Outcome.String()+" "+a.Why]++
	}
}

// TestChangesAtOnce has several operators change the members of a group at the same time,
// to other members and to the same ones. Each must be told truly what has come of it:
// done, and then it is so on every node, or refused because of the other; nobody may be
// told that something is done which was dropped for the sake of another.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 5})
	c.Start()
	const g = 1
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2, 3))
	three := []raftyard.NodeID{1, 2, 3}
	four, five := []raftyard.NodeID{1, 2, 3, 4}, []raftyard.NodeID{1, 2, 3, 5}
	rounds := cluster.Sized(6, 20)
	if testing.Short() {
		rounds = 3
	}
	counts := make(map[string]int)
	begun := time.Now()
	for round := range rounds {
		r := compete(t, c.Nodes(), g, four, five, four, five)
		r.check(t, c)
		r.count(counts)
		// One takes away what another adds.
		r = compete(t, c.Nodes()[round%5:], g, three, []raftyard.NodeID{1, 2, 3, 4, 5})
		now := r.check(t, c)
		r.count(counts)
		if !slices.Equal(now, three) {
			a := c.Node(1).SetMembers(t.Context(), g, client.Members{Voters: three}, moveLimit)
			if a.Error() != nil {
				t.Fatal(a)
			}
			awaitPlaced(t, c.Nodes(), g, three)
		}
		if err := put(t, c.Nodes()[round%5], g, "key", []byte("value")); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d rounds in %.1fs: %v", rounds, time.Since(begun).Seconds(), counts)
	wantKeys(t, c, g, "key")
	verifyDisks(t, c, placed{g: three})
}
