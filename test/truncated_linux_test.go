package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

// TestTruncatedWhileItRuns has somebody truncate Badger's logs of a database while the node
// writes them. They are mapped, so that the kernel ends the process; nobody can recover that.
// What was in them is in the journal, so nothing is lost when the node is started again.
//
//nolint:tparallel // one after the other, on one cluster
func TestTruncatedWhileItRuns(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	m := newDamageMatrix(t, "fatal error: fault")
	for _, part := range []string{"log", "state"} {
		t.Run(part, func(t *testing.T) {
			before := m.replicas(t)
			path := m.truncateAll(t, part+"/*.mem")
			n := 0
			cluster.Eventually(t, damageLimit, "the node ends", func() error {
				m.writeOne(t, part, n)
				n++
				return want(!m.victim.Running(), "%d writes", n)
			})
			if code := m.victim.AwaitExit(damageLimit); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if len(m.victim.LogLines("signal SIGBUS")) == 0 {
				t.Error("its last words do not name the signal")
			}
			if outcome := m.outcome(t, path, before); outcome != noEffect {
				t.Errorf("outcome %q, want %q", outcome, noEffect)
			}
			m.verify(t)
		})
	}
}

// TestTruncatedJournal has somebody truncate the journal of a database while the node writes
// it. The node goes on. After a kill it must say that something is lost, though what came
// later is in the file as it was written: its log is refused, and what is lost of its state
// is rebuilt. What was acknowledged is there through each node.
//
//nolint:tparallel // one after the other, on one cluster
func TestTruncatedJournal(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	m := newDamageMatrix(t)
	for _, tt := range []struct{ part, want string }{{"log", refused}, {"state", remade}} {
		t.Run(tt.part, func(t *testing.T) {
			before := m.replicas(t)
			path := m.truncateAll(t, tt.part+"/*.jnl")
			for n := range 30 {
				m.writeOne(t, tt.part, n)
			}
			m.victim.Kill()
			m.aside = ""
			if outcome := m.outcome(t, path, before); outcome != tt.want {
				t.Errorf("outcome %q, want %q", outcome, tt.want)
			}
			m.verify(t)
		})
	}
}

// truncateAll truncates the victim's files of a name, and returns the last of them.
func (m *damageMatrix) truncateAll(t *testing.T, name string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.victim.Dir(), name))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s: %v", name, err)
	}
	for _, path := range paths {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	return paths[len(paths)-1]
}

// writeOne writes a key, which may fail.
func (m *damageMatrix) writeOne(t *testing.T, part string, n int) {
	t.Helper()
	key := fmt.Sprintf("%s-%04d", part, n)
	if err := put(t, m.Node(1), 1, key, []byte(key)); err == nil {
		m.keys[1][key] = key
	}
}
