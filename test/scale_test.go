//go:build unix

package test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// goroutineAllowance is how many more goroutines a node may have with many groups
// than with few: none is there for a group, but some come and go.
const goroutineAllowance = 40

// TestManyGroups creates many groups on three nodes, writes and reads each, and
// checks that a node's goroutines do not grow with them. Then all nodes are
// killed, and every group must be writable again soon.
func TestManyGroups(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{})
	c.Start()
	all := groupIDs(cluster.Sized(100, 1_000))
	few, many := all[:10], all[10:]

	createGroups(t, c.Nodes(), few, kvGroup(1, 2, 3))
	writeAndRead(t, c, few, 1)
	before := idleGoroutines(t, c)
	logMemory(t, c, len(few))

	took := createGroups(t, c.Nodes(), many, kvGroup(1, 2, 3))
	t.Logf("%d more groups created in %.2fs", len(many), took.Seconds())
	writeAndRead(t, c, all, 2)
	after := idleGoroutines(t, c)
	logMemory(t, c, len(all))
	for i, n := range c.Nodes() {
		t.Logf("node %d: %.0f goroutines with %d groups, %.0f with %d",
			n.ID(), before[i], len(few), after[i], len(all))
		if after[i] > before[i]+goroutineAllowance {
			t.Errorf("node %d: the number of goroutines grows with the groups", n.ID())
		}
	}
	verifyHashes(t, c.Nodes(), all)

	c.Kill(c.Nodes()...)
	begun := time.Now()
	for _, n := range c.Nodes() {
		n.Start()
	}
	c.AwaitReady(startLimit)
	ready := time.Since(begun)
	writeAndRead(t, c, all, 3)
	t.Logf("all killed: ready after %.2fs, every group written and read after %.2fs",
		ready.Seconds(), time.Since(begun).Seconds())
}

// writeAndRead writes a key of every group through one node and reads it through
// another. A request that finds no leader is sent again.
func writeAndRead(t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID, round int) {
	t.Helper()
	begun := time.Now()
	value := fmt.Appendf(nil, "round %d", round)
	write := func(i int, g raftyard.GroupID) error {
		a := c.Nodes()[i%3].Do(t.Context(), cluster.Request{
			Method: http.MethodPut, Path: cluster.KeyPath(g, "key"), Body: value,
			Timeout: 30 * time.Second,
		})
		return a.Error()
	}
	read := func(i int, g raftyard.GroupID) error {
		got, err := readKey(t.Context(), c.Nodes()[(i+1)%3], g, "key", client.Linearizable)
		if err == nil && !bytes.Equal(got, value) {
			err = fmt.Errorf("group %d: read %q, want %q", g, got, value)
		}
		return err
	}
	if err := eachGroup(groups, 32, write); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(begun)
	begun = time.Now()
	if err := eachGroup(groups, 32, read); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d groups written in %.2fs and read in %.2fs",
		len(groups), wrote.Seconds(), time.Since(begun).Seconds())
}

// idleGoroutines returns how many goroutines each node has when nobody asks it
// anything: the least of several looks, because some come and go.
func idleGoroutines(t *testing.T, c *cluster.Cluster) []float64 {
	t.Helper()
	least := make([]float64, len(c.Nodes()))
	looks := 0
	err := cluster.Poll(t.Context(), func() (bool, error) {
		for i, n := range c.Nodes() {
			n.CloseConnections()
			got, err := n.Metric(t.Context(), "go_goroutines")
			if err != nil {
				return false, err
			}
			if looks == 0 || got < least[i] {
				least[i] = got
			}
		}
		looks++
		return looks == 50, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return least
}

func logMemory(t *testing.T, c *cluster.Cluster, groups int) {
	t.Helper()
	for _, n := range c.Nodes() {
		m, err := n.Memory()
		if os.IsNotExist(err) {
			return // no /proc here
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("node %d: %d groups, %d MiB resident, of which %d MiB are its own memory",
			n.ID(), groups, m.Resident>>20, m.Anonymous>>20)
	}
}
