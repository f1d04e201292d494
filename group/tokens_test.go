package group

import (
	"fmt"
	"testing"
)

// TestTokensFollowTheirCommands: a run may have commands of this replica and of others, in
// any order.
func TestTokensFollowTheirCommands(t *testing.T) {
	tests := []struct {
		entries []string // a letter for each command: a capital one is ours
		want    string
	}{
		{entries: []string{"ab", "c"}, want: "[]"},
		{entries: []string{"AB"}, want: "[A B]"},
		{entries: []string{"AB", "C"}, want: "[A B C]"},
		{entries: []string{"AB", "c", "D"}, want: "[A B <nil> D]"},
		{entries: []string{"ab", "c", "D"}, want: "[<nil> <nil> <nil> D]"},
		{entries: []string{"a", "B", "cd", "E"}, want: "[<nil> B <nil> <nil> E]"},
	}
	for _, tt := range tests {
		var a Apply
		for _, e := range tt.entries {
			var tokens []any
			for _, c := range e {
				a.Commands = append(a.Commands, Command{})
				if c < 'a' {
					tokens = append(tokens, string(c))
				}
			}
			a.addTokens(tokens, len(e))
		}
		if got := fmt.Sprint(a.Tokens); got != tt.want {
			t.Errorf("entries %q: tokens %s, want %s", tt.entries, got, tt.want)
		}
	}
}
