//go:build mutants

package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/internal/mutant"
)

// TestMutants plants one bug after the other and demands that each is found, within
// as many seeds as the flag says. The seeds are those of TestSeeds and TestLifeCycle, in
// turn: they find nothing in the code as it is, so what they find here is the bug.
func TestMutants(t *testing.T) {
	var table strings.Builder
	for b := mutant.None + 1; b < mutant.NumBugs; b++ {
		t.Run(b.String(), func(t *testing.T) {
			mutant.Set(b)
			defer mutant.Set(mutant.None)
			if wantFound := scripts()[b]; wantFound != nil {
				wantFound(t)
				fmt.Fprintf(&table, "%-20s script\n", b)
				return
			}
			find := hunt
			switch b {
			case mutant.SkipUnheeded: // other seeds skip nothing
				find = huntPoisoned
			case mutant.ReuseReplica, mutant.NoTombstone, mutant.EpochIgnored:
				find = huntLives // they are what life cycles must find
			default:
			}
			r, seeds := find(t)
			if r == nil {
				t.Fatalf("it is not found within %d seeds", seeds)
			}
			t.Log(r.Failure)
			r.draw(t)
			of := ""
			if r.LifeCycle {
				of = "of a life cycle"
			}
			fmt.Fprintf(&table, "%-20s %5d %-15s  %s\n", b, seeds, of, r.Failure.Rule)
		})
	}
	t.Logf("the seeds that it took to find each planted bug:\n%s", table.String())
}

// scripts demand that bugs are found that seeds find by luck, or hardly ever: it takes one
// who is cut off, alone or with others, and is asked just then.
func scripts() map[mutant.Bug]func(*testing.T) {
	return map[mutant.Bug]func(*testing.T){
		mutant.InstallNoIntent:     wantFoundInInstall,
		mutant.WitnessIgnored:      wantFoundByPeers,
		mutant.DeleteUnfenced:      wantFoundBy(deletedWhileItGoesOn),
		mutant.ServeBeforeRegistry: wantFoundBy(servedAfterDeletion),
		mutant.NodeIgnored:         wantFoundBy(sleepersLoseTheirLeader),
		mutant.SleepBelieved:       wantFoundBy(sleepersAreToldLate),
	}
}

// wantFoundBy demands that a script finds a bug.
func wantFoundBy(script func(*testing.T) error) func(*testing.T) {
	return func(t *testing.T) {
		broken := script(t)
		if broken == nil {
			t.Fatal("it is not found")
		}
		t.Log(broken)
	}
}

// wantFoundInInstall demands that a bug is found by losing power while a snapshot is taken
// over.
func wantFoundInInstall(t *testing.T) {
	t.Helper()
	for n := uint64(1); n <= syncsOfAnInstall; n++ {
		if broken, _ := crashInInstall(t, n); broken != nil {
			t.Logf("sync %d: %v", n, broken)
			return
		}
	}
	t.Fatal("it is not found")
}

// wantFoundByPeers demands that a bug is found when a node has forgotten something that
// only its peers know.
func wantFoundByPeers(t *testing.T) {
	t.Helper()
	for seed := range uint64(forgetfulSeeds) {
		if broken := forgets(t, seed+1, false); broken != nil {
			t.Logf("seed %d: %v", seed+1, broken)
			return
		}
	}
	t.Fatal("it is not found")
}

// huntPoisoned is hunt among the seeds of TestPoisonSeeds.
func huntPoisoned(t *testing.T) (*Result, int) {
	t.Helper()
	for i := range seedCount() {
		cfg := poisonous(func(*illness) {})
		cfg.Seed += uint64(i)
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			return r, i + 1
		}
	}
	return nil, seedCount()
}

// hunt runs seeds until one fails, and returns how many that took.
func hunt(t *testing.T) (*Result, int) {
	t.Helper()
	return huntIn(t, false, true)
}

// huntLives is hunt among life cycles alone.
func huntLives(t *testing.T) (*Result, int) {
	t.Helper()
	return huntIn(t, true)
}

// huntIn is hunt among life cycles, or others, or both.
func huntIn(t *testing.T, lives ...bool) (*Result, int) {
	t.Helper()
	for i := range seedCount() {
		for _, life := range lives {
			r, err := Run(Config{Seed: *fromFlag + uint64(i), LifeCycle: life})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failure != nil {
				return r, i + 1
			}
		}
	}
	return nil, seedCount()
}
