package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard/test/cluster"
)

// TestTruncatedWhileItRuns has somebody truncate the newest logs of a database while the node
// writes them. They are mapped, so that the kernel ends the process; nobody can recover that.
// It must end like one that is killed: what was acknowledged is there through each node when
// it is started again, whether its log is refused or what is lost is rebuilt.
//
//nolint:tparallel // one after the other, on one cluster
func TestTruncatedWhileItRuns(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	m := newDamageMatrix(t, "fatal error: fault")
	for _, part := range []string{"log", "state"} {
		t.Run(part, func(t *testing.T) {
			before := m.replicas(t)
			paths, err := filepath.Glob(filepath.Join(m.victim.Dir(), part, "*.mem"))
			if err != nil || len(paths) == 0 {
				t.Fatalf("no write-ahead log: %v", err)
			}
			for _, path := range paths {
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			cluster.Eventually(t, damageLimit, "the node ends", func() error {
				key := fmt.Sprintf("%s-%04d", part, n)
				n++
				if err := put(t, m.Node(1), 1, key, []byte(key)); err == nil {
					m.keys[1][key] = key
				}
				return want(!m.victim.Running(), "%d writes", n)
			})
			if code := m.victim.AwaitExit(damageLimit); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if len(m.victim.LogLines("signal SIGBUS")) == 0 {
				t.Error("its last words do not name the signal")
			}
			outcome := m.outcome(t, paths[len(paths)-1], before)
			m.verify(t)
			t.Logf("%s: %s", part, outcome)
		})
	}
}
