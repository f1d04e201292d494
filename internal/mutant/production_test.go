//go:build !mutants

package mutant_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/internal/mutant"
)

// TestProductionHasNone builds the daemon as everybody does, and looks whether
// anything of this package is in it.
func TestProductionHasNone(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "raftyard")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/raftyard")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), "raftyard/node.(*worker)") {
		t.Fatal("the symbols of the daemon are not there to be looked at")
	}
	for line := range strings.Lines(string(symbols)) {
		if strings.Contains(line, "internal/mutant") {
			t.Errorf("the daemon has %s", strings.TrimSpace(line))
		}
	}
}

// TestNames makes sure that every bug can be asked for by its name.
func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for b := range mutant.NumBugs {
		name := b.String()
		if name == "" || seen[name] {
			t.Errorf("bug %d is called %q, which is empty or taken", uint8(b), name)
		}
		seen[name] = true
	}
}
