//go:build unix

package crash

import (
	"os"
	"strconv"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

// roundsEnv is how often the crash loops kill, in place of what -short or the
// scale says.
const roundsEnv = "RAFTYARD_CRASH_ROUNDS"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(childMain(text))
	}
	os.Exit(cluster.Main(m))
}

// rounds returns how often a loop kills: what is given for -short, for every
// change, and for the full scale; or its share of what the environment says.
func rounds(t *testing.T, short, usual, full int) int {
	t.Helper()
	if text := os.Getenv(roundsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q, want a number", roundsEnv, text)
		}
		return n
	}
	if testing.Short() {
		return short
	}
	return cluster.Sized(usual, full)
}
