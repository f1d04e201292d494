//go:build mutants

package simdisk

import (
	"testing"

	"github.com/raftyard/raftyard/internal/mutant"
)

// TestSkippedSyncLosesCommits: with that bug a crash takes what was acknowledged, the
// newest first.
func TestSkippedSyncLosesCommits(t *testing.T) {
	mutant.Set(mutant.SkipSync)
	defer mutant.Set(mutant.None)
	outcomes := make(map[string]int)
	for seed := range uint64(100) {
		d := seeded(seed)
		db := mustOpenDB(t, d)
		check(t, d.Files().SyncDir("/"), set(db, "k", "1"), set(db, "l", "2"))
		if !d.Fresh("/db") {
			t.Fatalf("seed %d: commits that are not synced are taken for durable", seed)
		}
		d.Crash()
		outcomes[contents(t, mustOpenDB(t, d))]++
	}
	for _, w := range []string{"", "k=1@2 ", "k=1@2 l=2@3 "} {
		if outcomes[w] == 0 || len(outcomes) != 3 {
			t.Errorf("outcomes are %v", outcomes)
		}
	}
}
