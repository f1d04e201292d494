package admin

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/raftyard/raftyard/client"
)

// TestNoOtherCodes: docs/http.md has no code that no answer has.
func TestNoOtherCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [45][0-9][0-9] \\|").
		FindAllStringSubmatch(string(page), -1)
	if len(rows) == 0 {
		t.Fatal("docs/http.md has no codes")
	}
	for _, row := range rows {
		if !slices.Contains(client.Codes(), row[1]) {
			t.Errorf("docs/http.md has the code %s, which is not there", row[1])
		}
	}
}
