//go:build linux

package memory

import (
	"os"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(envSlow) != "" {
		os.Exit(slowMain())
	}
	os.Exit(cluster.Main(m))
}

// long marks a test that -short leaves out.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: left out by -short")
	}
}
