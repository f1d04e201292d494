package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProbeTakesItsName puts a directory in the place of the file that shows whether the
// disk answers. That must not end the node.
func TestProbeTakesItsName(t *testing.T) {
	c := newCluster(t, 1)
	c.close(1)
	path := filepath.Join(c.dir, "1", probeName)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o750); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	c.eventually("the node probes its disk", func() bool {
		if err := c.nodes[1].Err(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular()
	})
}
