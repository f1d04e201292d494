package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
)

func Example() {
	dir, err := os.MkdirTemp("", "raftyard-embed-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// node 1 added 1: the counter is at 1
	// node 2 added 2: the counter is at 3
	// node 3 added 3: the counter is at 6
	// node 3 reads 6
}

// TestCounter runs the suite that every state machine should pass.
func TestCounter(t *testing.T) {
	grouptest.TestStateMachine(t, func(testing.TB) group.Factory { return newCounter })
}
