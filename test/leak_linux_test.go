package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestNothingLeaks has a peer restart, be sent snapshots, and be cut off again and again.
// When all is quiet afterwards, the nodes that stayed have as many goroutines and sockets as
// they had when they had just met it.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Links: true})
	c.Start()
	groups := groupIDs(4)
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = 20
	createGroups(t, c.Nodes(), groups, spec)
	stay, away := c.Nodes()[:2], c.Node(3)
	for _, g := range groups {
		if err := put(t, c.Node(1), g, "key", []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	verifyHashes(t, c.Nodes(), groups)
	awaitPeers(t, c.Nodes())
	before := inUse(t, stay)

	for i := range cluster.Sized(4, 200) {
		restartBehind(t, c, away, groups, i)
	}
	cuts := cluster.Sized(10, 200)
	links := cluster.Between([]raftyard.NodeID{3}, []raftyard.NodeID{1, 2})
	for i := range cuts {
		c.Network().Set(cluster.Condition{Cut: true}, links...)
		if c.Network().Reset(links...) == 0 {
			t.Error("there was no connection to cut")
		}
		if err := put(t, c.Node(1), groups[0], "key", fmt.Appendf(nil, "cut %d", i)); err != nil {
			t.Fatal(err)
		}
		c.Network().Heal()
		awaitPeers(t, c.Nodes())
	}
	verifyHashes(t, c.Nodes(), groups)

	var after []usage
	cluster.Eventually(t, settleLimit, "it is as it was", func() error {
		after = inUse(t, stay)
		return moreThan(after, before)
	})
	for i, n := range stay {
		t.Logf("node %d: %+v before, %+v after", n.ID(), before[i], after[i])
	}
}

// restartBehind kills a node, has the logs be cut meanwhile, and starts it again: it comes
// back by snapshots, for the most part.
func restartBehind(
	t *testing.T, c *cluster.Cluster, away *cluster.Node, groups []raftyard.GroupID, round int,
) {
	t.Helper()
	away.Kill()
	err := eachGroup(groups, len(groups), func(_ int, g raftyard.GroupID) error {
		for i := range 50 { // more than twice what a log keeps
			err := put(t, c.Node(1), g, "key", fmt.Appendf(nil, "round %d, %d", round, i))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	away.Start()
	away.AwaitReady(startLimit)
	verifyHashes(t, c.Nodes(), groups)
	got, err := away.Metric(t.Context(), "raftyard_snapshots_total", `what="installed"`)
	if err != nil || got == 0 {
		t.Errorf("round %d: %v snapshots are installed, %v, want some", round, got, err)
	}
	awaitPeers(t, c.Nodes())
}

// awaitPeers waits until all nodes reach each other.
func awaitPeers(t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	cluster.Eventually(t, startLimit, "all nodes reach each other", func() error {
		for _, n := range nodes {
			up, err := n.Metric(t.Context(), "raftyard_peer_up")
			if err != nil {
				return err
			}
			if int(up) != len(nodes)-1 {
				return fmt.Errorf("node %d reaches %v others", n.ID(), up)
			}
		}
		return nil
	})
}

// A usage is what a process has of what can leak.
type usage struct {
	goroutines, sockets int
	resident            int64
}

// inUse returns what nodes have in use when nobody asks them anything.
func inUse(t *testing.T, nodes []*cluster.Node) []usage {
	t.Helper()
	all := make([]usage, len(nodes))
	for i, n := range nodes {
		n.CloseConnections()
		count, err := sockets(n.PID())
		if err != nil {
			t.Fatal(err)
		}
		m, err := n.Memory()
		if err != nil {
			t.Fatal(err)
		}
		goroutines, err := n.Metric(t.Context(), "go_goroutines")
		if err != nil {
			t.Fatal(err)
		}
		all[i] = usage{int(goroutines), count, m.Resident}
	}
	return all
}

// sockets returns how many a process has open.
func sockets(pid int) (int, error) {
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, err
	}
	count := 0
	for _, fd := range open {
		to, err := os.Readlink(fd)
		switch {
		case errors.Is(err, fs.ErrNotExist): // closed meanwhile
		case err != nil:
			return 0, err
		case strings.HasPrefix(to, "socket:"):
			count++
		}
	}
	return count, nil
}

// moreThan returns an error if a tenth more is in use than before. A few come and go.
func moreThan(now, before []usage) error {
	const few = 5
	for i := range now {
		g, s := before[i].goroutines, before[i].sockets
		if now[i].goroutines > g+max(g/10, few) || now[i].sockets > s+max(s/10, few) {
			return fmt.Errorf("%+v, and it was %+v", now[i], before[i])
		}
	}
	return nil
}
