package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/group/grouptest"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^64 shards on nodes 1 to 3$`,
		`(?m)^\d+ shards moved to node 4, while 1600 orders came in$`,
		`(?m)^  node 4: +[1-9]\d* replicas, leads +[1-9]\d*$`,
		`(?m)^3200 of 3200 orders are in stock$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// TestStock runs the suite that every state machine should pass.
func TestStock(t *testing.T) {
	grouptest.Suite{
		Open:    func(testing.TB) group.Factory { return newStock },
		Command: func(i int) []byte { return fmt.Append(nil, "article-", i%20) },
	}.Run(t)
}

// A node that is added takes groups over, and moves nothing between the others.
func TestPlace(t *testing.T) {
	const node4 = 4
	moved := 0
	for g := raftyard.GroupID(1); g <= shards; g++ {
		before := place(g, []raftyard.NodeID{1, 2, 3})
		after := place(g, []raftyard.NodeID{1, 2, 3, node4})
		rest := slices.DeleteFunc(slices.Clone(after), func(id raftyard.NodeID) bool {
			return id == node4
		})
		if !slices.Equal(rest, before[:len(rest)]) {
			t.Errorf("group %d: on nodes %v, then on %v", g, before, after)
		}
		if len(rest) != len(after) {
			moved++
		}
	}
	if moved < shards/2 || moved == shards {
		t.Errorf("%d of %d groups moved, want about three quarters", moved, shards)
	}
}

func TestGroupOf(t *testing.T) {
	used := make(map[raftyard.GroupID]int)
	for i := range 100 * shards {
		used[groupOf(fmt.Sprint("article-", i))]++
	}
	for g, n := range used {
		if g < 1 || g > shards || n < 50 || n > 150 {
			t.Errorf("group %d gets %d keys, want about 100", g, n)
		}
	}
}
