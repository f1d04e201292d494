package bench

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryBenchmarkRuns runs each once, but for the large ones, which run at the full scale
// only: a benchmark that nobody runs does not stay right.
func TestEveryBenchmarkRuns(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^$", "-test.bench=.", "-test.benchtime=1x"}
	if os.Getenv("RAFTYARD_TEST_SCALE") != "full" {
		args = append(args, "-test.short")
	}
	out, err := exec.CommandContext(t.Context(), self, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var ran []string
	for _, m := range regexp.MustCompile(`(?m)^Benchmark(\S+?)(-\d+)?\s`).FindAllSubmatch(out, -1) {
		ran = append(ran, string(m[1]))
	}
	for name := range Floors() {
		if !slices.Contains(ran, name) {
			t.Errorf("there is a floor for %s, which did not run: %s", name, strings.Join(ran, " "))
		}
	}
	if len(ran) < 20 {
		t.Errorf("%d benchmarks ran:\n%s", len(ran), out)
	}
}
