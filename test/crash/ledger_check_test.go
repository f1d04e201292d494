//go:build unix

package crash

import (
	"strings"
	"testing"
)

// TestLedger shows the ledger what must not happen, and what may.
func TestLedger(t *testing.T) {
	const made = "try 1 create 7 1,2,3|ok 1|"
	tests := []struct {
		name  string
		lines string // of all lives; "crash" begins another
		want  string // in the only complaint; empty: there is none
	}{
		{
			"nothing is wrong",
			made + "try 2 append 7 x|ok 2|try 3 append 7 y|crash|" +
				"state 7 present 1,2,3|item 7 x - 1|item 7 y - 1|hash 7 1 aa|hash 7 2 aa|end 7", "",
		},
		{
			"an acknowledged write is lost",
			made + "try 2 append 7 x|ok 2|crash|state 7 present 1,2,3|end 7",
			"x is lost",
		},
		{
			"an unanswered write is lost",
			made + "try 2 append 7 x|crash|state 7 present 1,2,3|end 7", "",
		},
		{
			"applied twice",
			made + "try 2 append 7 x|ok 2|crash|state 7 present 1,2,3|item 7 x - 2|end 7",
			"x was applied twice",
		},
		{
			"an unanswered write is applied twice",
			made + "try 2 append 7 x|crash|state 7 present 1,2,3|item 7 x - 1|item 7 x - 1|end 7",
			"x was applied twice",
		},
		{
			"a refused write is there",
			made + "try 2 append 7 x|no 2|crash|state 7 present 1,2,3|item 7 x - 1|end 7",
			"refused as not applied",
		},
		{
			"half of a pair",
			made + "try 2 pair 7 x|crash|state 7 present 1,2,3|item 7 x b 1|end 7",
			"in parts",
		},
		{
			"a pair",
			made + "try 2 pair 7 x|ok 2|crash|" +
				"state 7 present 1,2,3|item 7 x a 1|item 7 x b 1|end 7", "",
		},
		{
			"a deleted key is back",
			made + "try 2 put 7 x|ok 2|try 3 delete 7 x|ok 3|crash|" +
				"state 7 present 1,2,3|item 7 x - 1|end 7",
			"acknowledged as deleted",
		},
		{
			"a deletion without an answer",
			made + "try 2 put 7 x|ok 2|try 3 delete 7 x|crash|state 7 present 1,2,3|end 7", "",
		},
		{
			"a deletion that was refused",
			made + "try 2 put 7 x|ok 2|try 3 delete 7 x|no 3|crash|state 7 present 1,2,3|end 7",
			"x is lost",
		},
		{
			"what was gone is back",
			made + "try 2 append 7 x|crash|state 7 present 1,2,3|end 7|crash|" +
				"state 7 present 1,2,3|item 7 x - 1|end 7",
			"was gone",
		},
		{
			"what was seen is gone",
			made + "try 2 append 7 x|crash|state 7 present 1,2,3|item 7 x - 1|end 7|crash|" +
				"state 7 present 1,2,3|end 7",
			"x is lost",
		},
		{
			"from nowhere",
			made + "crash|state 7 present 1,2,3|item 7 x - 1|end 7",
			"not written to it",
		},
		{
			"from the group of the same id before",
			made + "try 2 append 7 x|ok 2|try 3 destroy 7 -|ok 3|try 4 create 7 1,2,3|ok 4|crash|" +
				"state 7 present 1,2,3|item 7 x - 1|end 7",
			"not written to it",
		},
		{"a group is lost", made + "crash|state 7 absent -|end 7", "group 7 is lost"},
		{
			"a deleted group is back",
			made + "try 2 destroy 7 -|ok 2|crash|state 7 present 1,2,3|end 7",
			"acknowledged as deleted",
		},
		{
			"a deletion of the group without an answer",
			made + "try 2 destroy 7 -|crash|state 7 absent -|end 7", "",
		},
		{"a creation without an answer", "try 1 create 7 1|crash|state 7 present 1|end 7", ""},
		{
			"the decision on members is lost",
			made + "try 2 members 7 1,2|ok 2|crash|state 7 present 1,2,3|end 7",
			"wants the voters 1,2,3",
		},
		{
			"a decision on members without an answer",
			made + "try 2 members 7 1,2|crash|state 7 present 1,2,3|end 7", "",
		},
		{
			"replicas differ",
			made + "crash|state 7 present 1,2,3|hash 7 1 aa|hash 7 2 ab|end 7",
			"the replicas differ",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger()
			l.begin()
			for line := range strings.SplitSeq(tt.lines, "|") {
				if line == "crash" {
					l.begin()
				} else if !l.hear(line) {
					t.Fatalf("the ledger does not know %q", line)
				}
			}
			got := strings.Join(l.complaints, "\n")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) ||
				len(l.complaints) > 1 {
				t.Errorf("complaints %q, want one with %q", l.complaints, tt.want)
			}
		})
	}
}
