package sim

import (
	"fmt"
	"testing"

	"github.com/raftyard/raftyard/test/linear"
)

// shrinkBudget is how many runs it may take to make a failure smaller.
const shrinkBudget = 300

// Test runs a simulation and fails t if it finds something, with all that is needed
// to look into it: made as small as possible.
func Test(t testing.TB, cfg Config) {
	t.Helper()
	test(t, cfg)
}

// Seeds runs n simulations, from cfg.Seed on, until one finds something, and fails t
// if nothing was acknowledged in any of them: then they have shown nothing. Whatever
// the workload remembers must be made in [Config.Prepare].
func Seeds(t testing.TB, n int, cfg Config) {
	t.Helper()
	var sum Counts
	for range n {
		sum.add(test(t, cfg).Counts)
		cfg.Seed++
	}
	t.Logf("%d seeds: %+v", n, sum)
	if n > 0 && sum.Acked == 0 {
		t.Fatalf("in %d seeds nothing that clients asked was done", n)
	}
}

func test(t testing.TB, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure != nil {
		_, r = Shrink(cfg, r, shrinkBudget)
		r.draw(t)
		t.Fatal(r.Report())
	}
	return r
}

// draw leaves a picture of every history that is not linearizable.
func (r *Result) draw(t testing.TB) {
	t.Helper()
	if r.verdict == nil {
		return
	}
	paths, err := r.verdict.Draw(linear.ArtifactDir(t))
	if err != nil {
		t.Error(err)
	}
	for _, path := range paths {
		t.Logf("the history is drawn in %s", path)
	}
}

// Report says what a failed run has found, and how to see it again.
func (r *Result) Report() string {
	text := fmt.Sprintf("seed %d: %v\n\nthe last events:\n%s\nsetup: %s\n\nthe faults:\n%s\n",
		r.Seed, r.Failure, r.Trace, r.Setup, r.Schedule)
	if r.own {
		return text + fmt.Sprintf("run it again with Config{Seed: %d, Ops: %d, Clients: %d} and "+
			"these faults as Schedule, by ParseSchedule,\nand with all of the seed's own faults "+
			"with Config{Seed: %d}; Live: os.Stderr shows all events\n",
			r.Seed, r.Ops, r.Clients, r.Seed)
	}
	seed := fmt.Sprintf("-seed %d", r.Seed)
	if r.LifeCycle {
		seed = "-lifecycle " + seed
	}
	return text + fmt.Sprintf("run it again, with the faults in a file:\n"+
		"  go test ./test/sim -run 'TestSeed$' %s -ops %d -clients %d -schedule file -v\n"+
		"and with all of the seed's own faults:\n"+
		"  go test ./test/sim -run 'TestSeed$' %s -v\n",
		seed, r.Ops, r.Clients, seed)
}
