package sim

import (
	"fmt"
	"testing"
)

// Test runs a simulation and fails t if it finds something, with all that is needed
// to look into it.
func Test(t testing.TB, cfg Config) {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failure != nil {
		t.Fatal(r.Report())
	}
}

// Report says what a failed run has found, and how to see it again.
func (r *Result) Report() string {
	return fmt.Sprintf("seed %d: %v\n\nthe last events:\n%s\nsetup: %s\n\nthe faults:\n%s\n"+
		"run it again:\n  go test ./test/sim -run 'TestSeed$' -seed %d -v\n",
		r.Seed, r.Failure, r.Trace, r.Setup, r.Schedule, r.Seed)
}
