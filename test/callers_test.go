//go:build unix

package test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// Callers are operators who want different things of two groups at the same time: the
// one comes and goes, the other one only moves.
type callers struct {
	nodes        []*cluster.Node
	comes, moves raftyard.GroupID
	tally        *tally // of what they were told

	mu    sync.Mutex
	calls map[string]int           // by what was asked, and how it ended
	slow  map[string]time.Duration // the longest of each kind
}

const (
	// callTimeout bounds each call at its node; the wait for members comes on top.
	callTimeout = 5 * time.Second
	// callLimit is how long a call may take where all nodes run. One that waits for
	// what somebody else has undone meanwhile would take longer.
	callLimit = 8 * time.Second
)

// run is one of them.
func (c *callers) run(t *testing.T, dice *rand.Rand, stop <-chan struct{}) {
	for !isClosed(stop) {
		n := c.nodes[dice.IntN(len(c.nodes))]
		all := ids(c.nodes)
		dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		voters := slices.Sorted(slices.Values(all[:1+dice.IntN(3)]))
		begun := time.Now()
		var what string
		var a cluster.Answer
		switch draw := dice.IntN(100); {
		case draw < 30:
			what, a = "create", n.Create(t.Context(), c.comes, kvGroup(voters...))
		case draw < 50:
			what, a = "delete", n.Delete(t.Context(), c.comes)
		case draw < 70:
			m := client.Members{Voters: voters}
			what, a = "members", n.SetMembers(t.Context(), c.comes, m, callTimeout)
		case draw < 90:
			m := client.Members{Voters: voters}
			what, a = "move", n.SetMembers(t.Context(), c.moves, m, callTimeout)
		default:
			what, a = "transfer", n.Transfer(t.Context(), c.moves, all[0], callTimeout)
		}
		took := time.Since(begun)
		c.tally.note(c.comes, a)
		c.mu.Lock()
		c.slow[what] = max(c.slow[what], took)
		c.calls[fmt.Sprintf("%s: %v %s", what, a.Outcome, a.Why)]++
		c.mu.Unlock()
	}
}

// isClosed reports whether a channel that is closed in the end is closed by now.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestManyCallers has eight operators create, delete and move the same groups at the same
// time, while one of them is written to. Each call must end with what has come of it, never
// may two nodes lead in one term, and all must be as the last of them has decided: one
// replica of each group on its nodes, and nothing of the others on any disk.
func TestManyCallers(t *testing.T) {
	cluster.Long(t)
	seed := chaosSeed(t)
	t.Logf("again with %s=%d", envChaosSeed, seed)
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	const comes, moves = 1, 2
	createGroups(t, c.Nodes(), []raftyard.GroupID{moves}, kvGroup(1, 2, 3))
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: []raftyard.GroupID{moves}, clients: 4, keys: 100_000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 20)

	span := cluster.Sized(10*time.Second, 2*time.Minute)
	x := &callers{
		nodes: c.Nodes(), comes: comes, moves: moves, tally: newTally(),
		calls: make(map[string]int), slow: make(map[string]time.Duration),
	}
	watches := []*leaderWatch{
		watchLeaders(t, c.Nodes(), comes), watchLeaders(t, c.Nodes(), moves),
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range uint64(8) {
		dice := rand.New(rand.NewPCG(seed, i))
		wg.Go(func() { x.run(t, dice, stop) })
	}
	lapse(t, span, span+time.Second)
	close(stop)
	wg.Wait()
	incarnations := watches[0].check(t)
	watches[1].check(t)
	for _, what := range slices.Sorted(maps.Keys(x.calls)) {
		t.Logf("%5d %s", x.calls[what], what)
	}
	t.Logf("%d incarnations were seen to lead; the slowest calls: %v", incarnations, x.slow)
	for what, took := range x.slow {
		if took > callLimit {
			t.Errorf("%s took %v, want %v at most", what, took, callLimit)
		}
	}
	x.tally.check(t)
	x.tally.only(t, client.CodeGroupNotFound, client.CodeGroupExists,
		client.CodeChangeUnderWay, client.CodeNotReached, client.CodeTransferFailed,
		client.CodeNoLeader, client.CodeNotLeader, client.CodeTimeout, client.CodeOutcomeUnknown)
	x.finish(t, c, l)
}

// finish leaves the group that came and went with keys of its last incarnation only, and
// checks that nothing of the others is there.
func (c *callers) finish(t *testing.T, cl *cluster.Cluster, l *load) {
	t.Helper()
	cluster.Eventually(t, moveLimit, "the last change is over", func() error {
		m := client.Members{Voters: []raftyard.NodeID{1, 2, 3}}
		return cl.Node(1).SetMembers(t.Context(), c.moves, m, callTimeout).Error()
	})
	a := cl.Node(2).Delete(t.Context(), c.comes)
	if a.Error() != nil && a.Why != client.CodeGroupNotFound {
		t.Fatal(a)
	}
	createGroups(t, cl.Nodes(), []raftyard.GroupID{c.comes}, kvGroup(2, 3, 4))
	if err := put(t, cl.Node(1), c.comes, "only", []byte("value")); err != nil {
		t.Fatal(err)
	}
	awaitPlaced(t, cl.Nodes(), c.comes, []raftyard.NodeID{2, 3, 4})
	awaitPlaced(t, cl.Nodes(), c.moves, []raftyard.NodeID{1, 2, 3})
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	l.verifyLists(t, cl.Nodes())
	wantKeys(t, cl, c.comes, "only")
	verifyHashes(t, cl.Nodes()[:3], []raftyard.GroupID{c.moves})
	verifyHashes(t, cl.Nodes()[1:], []raftyard.GroupID{c.comes})
	verifyDisks(t, cl, placed{c.comes: {2, 3, 4}, c.moves: {1, 2, 3}})
}
