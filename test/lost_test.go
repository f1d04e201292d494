//go:build unix

package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestLostData starts a node with an empty directory, and with an older copy of its
// own. It has forgotten entries that it had acknowledged, so its replicas must stop
// and say why, and must not take the process or another node with them.
func TestLostData(t *testing.T) {
	long(t)
	for _, lost := range []string{"everything", "the newest part"} {
		t.Run(lost, func(t *testing.T) {
			c := found(t, cluster.Config{Tolerate: []string{"replica is damaged"}})
			n := c.Node(3)
			older := filepath.Join(t.TempDir(), "older")
			terminate(t, n)
			if err := os.CopyFS(older, os.DirFS(n.Dir())); err != nil {
				t.Fatal(err)
			}
			n.Start()
			c.AwaitReady(startLimit)
			for i := range 50 {
				if err := put(t, n, 1, fmt.Sprintf("key-%02d", i), []byte("value")); err != nil {
					t.Fatal(err)
				}
			}
			verifyHashes(t, c.Nodes(), []raftyard.GroupID{1})
			terminate(t, n)
			awaitLeader(t, c.Cluster)
			c.remember(t)
			if err := os.RemoveAll(n.Dir()); err != nil {
				t.Fatal(err)
			}
			groups := []raftyard.GroupID{0}
			if lost != "everything" {
				groups = append(groups, 1)
				if err := os.CopyFS(n.Dir(), os.DirFS(older)); err != nil {
					t.Fatal(err)
				}
			}
			n.Start()
			for _, g := range groups {
				awaitDamaged(t, n, g)
			}
			c.undisturbed(t)
			if !n.Running() {
				t.Error("node 3 has ended")
			}
			keys := 0
			for _, other := range c.Nodes()[:2] {
				a := other.Do(t.Context(), cluster.Request{
					Method: http.MethodGet, Path: cluster.GroupPath(1, "/kv"),
				})
				keys += strings.Count(string(a.Body), `"key":"key-`)
			}
			if keys != 2*50 {
				t.Errorf("nodes 1 and 2 list %d keys, want 50 each", keys)
			}
		})
	}
}

// awaitDamaged waits until a node says that its replica of a group cannot be
// trusted.
func awaitDamaged(t *testing.T, n *cluster.Node, g raftyard.GroupID) {
	t.Helper()
	cluster.Eventually(t, startLimit, "the loss is noticed", func() error {
		r, err := n.Raft(t.Context(), g)
		if err != nil {
			return err
		}
		return want(strings.Contains(r.Fault, "damaged"), "group %d: fault %q", g, r.Fault)
	})
}
