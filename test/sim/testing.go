package sim

import (
	"fmt"
	"testing"
)

// shrinkBudget is how many runs it may take to make a failure smaller.
const shrinkBudget = 300

// Test runs a simulation and fails t if it finds something, with all that is needed
// to look into it: made as small as possible.
func Test(t testing.TB, cfg Config) {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure != nil {
		_, r = Shrink(cfg, r, shrinkBudget)
		t.Fatal(r.Report())
	}
}

// Report says what a failed run has found, and how to see it again.
func (r *Result) Report() string {
	return fmt.Sprintf("seed %d: %v\n\nthe last events:\n%s\nsetup: %s\n\n"+
		"the faults:\n%s\nrun it again, with the faults in a file:\n"+
		"  go test ./test/sim -run 'TestSeed$' -seed %d -ops %d -clients %d -schedule file -v\n"+
		"and with all of the seed's own faults:\n"+
		"  go test ./test/sim -run 'TestSeed$' -seed %d -v\n",
		r.Seed, r.Failure, r.Trace, r.Setup, r.Schedule,
		r.Seed, r.Ops, r.Clients, r.Seed)
}
