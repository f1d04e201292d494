//go:build unix

package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// envChaosDuration is how long the faults go on, and envChaosSeed what they are
// drawn from.
const (
	envChaosDuration = "RAFTYARD_CHAOS_DURATION"
	envChaosSeed     = "RAFTYARD_CHAOS_SEED"
)

const (
	chaosNodes  = 5
	chaosGroups = 20
	// chaosSnapshots is snapshot_entries of the groups, and chaosTrailing how many
	// entries stay: a node that is away for a few seconds needs a snapshot.
	chaosSnapshots, chaosTrailing = 40, 10
	// chaosBallast is what makes a snapshot take a while over a slow link, in bytes.
	chaosBallast = 256 << 10
	// chaosMargin is what comes before the faults and after them.
	chaosMargin = 3 * time.Minute
)

// A chaos is a cluster to which everything is done that happens to one.
type chaos struct {
	t      *testing.T
	c      *cluster.Cluster
	net    *cluster.Network
	groups []raftyard.GroupID
	rec    *recorder
	// operated counts the answers that operators got.
	operated *tally
	faults   *faultLog
	meter    *meter
	seed     uint64
	// calm ends when the faults are to end; longest bounds each of them.
	calm    context.Context
	longest time.Duration
	asked   sync.WaitGroup // what faults have asked
	// still is held by whoever does something, and alone by one for whom nothing else may go
	// on.
	still sync.RWMutex

	mu   sync.Mutex
	gone []raftyard.GroupID // deleted for certain
}

// TestChaos runs everything at once: nodes are killed, frozen and stopped, links
// are cut, delayed and slowed, groups are moved, led elsewhere and cut short, while
// clients write and read through all nodes. What they were told must fit one order
// of events, and in the end all must be as it ought to be.
func TestChaos(t *testing.T) {
	span := chaosSpan(t)
	seed := chaosSeed(t)
	t.Logf("chaos for %v; again with %s=%d", span, envChaosSeed, seed)
	c := cluster.New(t, cluster.Config{Name: "chaos", Nodes: chaosNodes, Links: true})
	x := &chaos{
		t: t, c: c, net: c.Network(), groups: groupIDs(chaosGroups), seed: seed,
		faults: newFaultLog(t), operated: newTally(), longest: span / 4,
	}
	c.Start()
	x.prepare()
	x.rec = newRecorder(x.groups, len(x.groups))
	x.meter = newMeter(c.Nodes())
	begun := x.terms()

	stop := make(chan struct{})
	var clients, meters sync.WaitGroup
	x.startClients(&clients, stop)
	for _, n := range c.Nodes() {
		meters.Go(func() { x.meter.watch(t.Context(), n, stop) })
	}
	end := sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
		x.asked.Wait()
		meters.Wait()
	})
	t.Cleanup(end)
	x.rage(span)
	x.settle(begun, end)
	x.demand(span)
}

// chaosSpan is for how long there are faults.
func chaosSpan(t *testing.T) time.Duration {
	t.Helper()
	span := cluster.Sized(time.Minute, 10*time.Minute)
	if testing.Short() {
		span = 20 * time.Second
	}
	if text := os.Getenv(envChaosDuration); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil || span <= 0 {
			t.Fatalf("%s is %q, want a duration such as 30m", envChaosDuration, text)
		}
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < span+chaosMargin {
		t.Fatalf("the test needs %v, and is ended in %v: give -timeout",
			span+chaosMargin, time.Until(end).Round(time.Second))
	}
	return span
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv(envChaosSeed)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, want a number", envChaosSeed, text)
	}
	return seed
}

// dice returns the dice of one of those who throw some.
func (x *chaos) dice(of uint64) *rand.Rand { return rand.New(rand.NewPCG(x.seed, of)) }

// Those who throw dice. Clients come after them.
const (
	processDice = iota
	networkDice
	endDice
	operatorDice
	operators = 3
)

// prepare creates the groups, each on three of the nodes, and gives them weight.
func (x *chaos) prepare() {
	x.t.Helper()
	nodes := x.c.Nodes()
	err := eachGroup(x.groups, 8, func(i int, g raftyard.GroupID) error {
		spec := kvGroup()
		for j := range 3 {
			spec.Voters = append(spec.Voters, nodes[(i+j)%len(nodes)].ID())
		}
		spec.SnapshotEntries, spec.TrailingEntries = chaosSnapshots, chaosTrailing
		if a := nodes[i%len(nodes)].Create(x.t.Context(), g, spec); a.Error() != nil {
			return fmt.Errorf("create group %d: %w", g, a.Error())
		}
		weight := make([]byte, chaosBallast)
		for j := range weight {
			weight[j] = byte(rand.N(256)) // nothing that could be compressed
		}
		return put(x.t, nodes[i%len(nodes)], g, "weight", weight)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// startClients has a few clients at each node.
func (x *chaos) startClients(wg *sync.WaitGroup, stop <-chan struct{}) {
	const perNode = 4
	for i := range perNode * chaosNodes {
		n := x.c.Nodes()[i%chaosNodes]
		dice := x.dice(operatorDice + operators + uint64(i))
		wg.Go(func() { x.rec.run(x.t.Context(), n, dice, stop) })
	}
}

// rage does everything at once for a time. Processes are the business of the
// test's own goroutine, which may fail the test.
func (x *chaos) rage(span time.Duration) {
	x.t.Helper()
	calm, cancel := context.WithTimeout(x.t.Context(), span)
	defer cancel()
	x.calm = calm
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel() // before the others are waited for, also when this ends the test
	others.Go(func() { x.lane(x.dice(networkDice), quiet(networkFaults())) })
	for i := range uint64(operators) {
		dice := x.dice(operatorDice + i)
		others.Go(func() { x.operate(dice, i) })
	}
	x.lane(x.dice(processDice), processFaults())
}

// A fault is something that is done to the cluster, and undone.
type fault struct {
	name   string
	weight int
	do     func(x *chaos, dice *rand.Rand) (what string)
}

// lane does one fault after the other. What comes when is drawn beforehand, and
// does not depend on what comes of it.
func (x *chaos) lane(dice *rand.Rand, faults []fault) {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	for x.hold(within(dice, 200*time.Millisecond, 3*time.Second)) {
		drawn := dice.IntN(sum)
		own := rand.New(rand.NewPCG(dice.Uint64(), dice.Uint64()))
		for _, f := range faults {
			if drawn -= f.weight; drawn < 0 {
				begun := time.Now()
				what := f.do(x, own)
				x.faults.note(f.name, begun, what)
				break
			}
		}
	}
}

// quiet keeps faults from happening while somebody needs that nothing goes on.
func quiet(faults []fault) []fault {
	for i, f := range faults {
		faults[i].do = func(x *chaos, dice *rand.Rand) string {
			x.still.RLock()
			defer x.still.RUnlock()
			return f.do(x, dice)
		}
	}
	return faults
}

// hold lets time pass, unless the faults are to end: then it returns false.
func (x *chaos) hold(d time.Duration) bool {
	timer := time.NewTimer(min(d, x.longest))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.calm.Done():
		return false
	}
}

// within draws a time between two bounds.
func within(dice *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(dice.Int64N(int64(to-from)))
}

// some draws so many nodes.
func (x *chaos) some(dice *rand.Rand, n int) []*cluster.Node {
	nodes := x.c.Nodes()
	dice.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes[:n]
}

// leader returns who says that it leads a drawn group, or a drawn node.
func (x *chaos) leader(dice *rand.Rand) (*cluster.Node, raftyard.GroupID) {
	g := x.groups[dice.IntN(len(x.groups))]
	found := x.some(dice, 1)[0]
	ctx, cancel := context.WithTimeout(x.calm, time.Second)
	defer cancel()
	for _, n := range x.c.Nodes() {
		if r, err := n.Raft(ctx, g); err == nil && r.Role == "leader" {
			found = n
		}
	}
	return found, g
}

// ids returns the ids of nodes.
func ids(nodes []*cluster.Node) []raftyard.NodeID {
	var list []raftyard.NodeID
	for _, n := range nodes {
		list = append(list, n.ID())
	}
	return list
}

// terms returns the highest term of each group that a node knows.
func (x *chaos) terms() []uint64 {
	x.t.Helper()
	terms := make([]uint64, len(x.groups))
	for i, g := range x.groups {
		var got client.Group
		cluster.Eventually(x.t, settleLimit, "a group tells its term", func() (err error) {
			got, err = x.c.Nodes()[0].Group(x.t.Context(), g)
			return err
		})
		terms[i] = got.Term
	}
	return terms
}
