//go:build mutants

package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/internal/mutant"
)

// TestMutants plants each bug and demands that it is found within as many seeds as
// the flag says.
func TestMutants(t *testing.T) {
	defer mutant.Set(mutant.None)
	var table strings.Builder
	for b := mutant.None + 1; b < mutant.NumBugs; b++ {
		mutant.Set(b)
		found := false
		for seed := range uint64(seedCount()) {
			r, err := Run(Config{Seed: *fromFlag + seed})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failure != nil {
				found = true
				fmt.Fprintf(&table, "%-18s %5d  %s\n", b, seed+1, r.Failure.Rule)
				break
			}
		}
		if !found {
			t.Errorf("%s is not found within %d seeds", b, seedCount())
		}
	}
	t.Logf("the seeds that it took to find each planted bug:\n%s", table.String())
}
