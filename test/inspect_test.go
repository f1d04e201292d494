//go:build unix

package test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/vfs/vfstest"
	"github.com/raftyard/raftyard/test/cluster"
)

// nobody is a user who may write nothing.
const nobody = 65534

// TestInspectWritesNothing looks into the directory of a node that was killed under load, as
// somebody who may not write there. Not a byte may change, and no time of a file.
func TestInspectWritesNothing(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 1})
	c.Start()
	n := c.Node(1)
	groups := []raftyard.GroupID{1, 2}
	createGroups(t, c.Nodes(), groups, kvGroup(1))
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: 8, keys: 100_000, size: 1000,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 300)
	n.Kill()
	l.end()
	program := readOnly(t, n.Dir())
	before := vfstest.Tree(t, n.Dir())
	for _, what := range [][]string{
		{"verify"}, {"groups"}, {"log", "1"}, {"log", "0"}, {"state", "1"}, {"state", "0"},
	} {
		cmd := exec.CommandContext(t.Context(), program,
			append([]string{"inspect", n.Dir()}, what...)...)
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
			}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("inspect %q: %v: %s", what, err, out)
		}
		if what[0] == "verify" && !strings.Contains(string(out), "is sound: node 1, start 1") {
			t.Errorf("inspect says %s", out)
		}
	}
	if after := vfstest.Tree(t, n.Dir()); !slices.Equal(before, after) {
		t.Error("something in the directory has changed")
	}
	restoreModes(t, n.Dir())
	n.Start()
	n.AwaitReady(startLimit)
	l.verifyLists(t, c.Nodes())
}

// readOnly lets everybody read a directory, and nobody write, and returns a copy of the
// program that everybody may run.
func readOnly(t *testing.T, dir string) (program string) {
	t.Helper()
	program = filepath.Join(filepath.Dir(dir), "raftyard")
	b, err := os.ReadFile(os.Getenv("RAFTYARD_TEST_BINARY"))
	if err == nil {
		err = os.WriteFile(program, b, 0o600)
	}
	if err == nil {
		err = os.Chmod(program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Directories of tests are their own.
	for up := filepath.Dir(dir); up != filepath.Clean(os.TempDir()) && up != "/"; {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
		up = filepath.Dir(up)
	}
	setModes(t, dir, 0o555, 0o444)
	t.Cleanup(func() { restoreModes(t, dir) })
	return program
}

func restoreModes(t *testing.T, dir string) {
	t.Helper()
	setModes(t, dir, 0o750, 0o600)
}

func setModes(t *testing.T, dir string, dirs, files os.FileMode) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, dirs)
		}
		return os.Chmod(path, files)
	})
	if err != nil {
		t.Fatal(err)
	}
}
