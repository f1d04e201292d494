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
