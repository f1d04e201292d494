package config

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented: the table of docs/configuration.md has every setting, with its variable, its
// flag and its default, and no other; the example names every one.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) > 5 && strings.HasPrefix(line, "| `") {
			for i := range cells {
				cells[i] = strings.Trim(cells[i], " `")
			}
			rows[cells[1]] = cells
		}
	}
	for _, s := range Settings() {
		row := rows[s.Key]
		delete(rows, s.Key)
		if len(row) < 5 || row[2] != s.Env || row[3] != "--"+s.Flag {
			t.Errorf("docs/configuration.md has %q for %s, %s, --%s", row, s.Key, s.Env, s.Flag)
			continue
		}
		if s.Default != "" && !s.isList && row[4] != s.Default {
			t.Errorf("docs/configuration.md has the default %q for %s, want %q",
				row[4], s.Key, s.Default)
		}
		_, name := split(s.Key)
		if !strings.Contains(Example(), name+":") {
			t.Errorf("the example does not name %s", s.Key)
		}
	}
	for key := range rows {
		t.Errorf("docs/configuration.md has %s, which is no setting", key)
	}
}
