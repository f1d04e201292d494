package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedSnapshotFileIsNotUsed changes a byte of the file that holds a state.
func TestDamagedSnapshotFileIsNotUsed(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.create(2, 1)
	c.add(1, 1, "a", "b")
	c.add(1, 2, "fine")
	if _, err := c.nodes[1].TakeSnapshot(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	dir := c.nodes[1].replica(1).machine.env.Dir
	c.close(1)
	files, err := filepath.Glob(filepath.Join(dir, snapshotPrefix+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("snapshot files %q, %v; want one", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil || string(content) != "a\nb" {
		t.Fatalf("the file holds %q, %v", content, err)
	}
	content[0] = 'x'
	if err = os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	_, err = c.nodes[1].Query(t.Context(), 1, Stale, nil)
	if !errors.Is(err, ErrFaulty) || !strings.Contains(err.Error(), errRotten.Error()) {
		t.Errorf("Query = %v, want ErrFaulty because the file is damaged", err)
	}
	c.wantWords(1, 2, "fine")
}
