//go:build unix

package test

import (
	"os"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
