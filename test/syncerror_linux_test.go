package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
)

// exitDiskFailed is what a node exits with whose disk has failed.
const exitDiskFailed = 70

// TestSyncErrors has a sync of a node that is alone fail, another one in each of its lives,
// which the kernel does here: of logs (fdatasync), of tables (msync), of files and directories
// (fsync).
// The node must end with 70, acknowledge nothing after that, and have everything that it
// has acknowledged when it is started again.
func TestSyncErrors(t *testing.T) {
	saboteur := cluster.Sabotage(t)
	c := cluster.New(t, cluster.Config{
		Nodes: 1, Tolerate: []string{"a store has failed", "input/output error", "store failed"},
	})
	c.Start()
	n := c.Node(1)
	groups := groupIDs(4)
	createGroups(t, c.Nodes(), groups, kvGroup(1))
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: 4, keys: 200, size: 200,
	})
	l.grant(1, 1)
	counts := make(map[string]int)
	for i := range cluster.Sized(6, 1000) {
		stopNode(t, n)
		call := []string{"fdatasync", "msync", "fsync"}[i%3]
		// A thread makes so many in any case: of the last two not many, and at the start.
		soon := []int{1000, 2, 8}[i%3]
		nth := 1 + i/3%soon
		saboteur.Inject(fmt.Sprintf("%s:error=EIO:when=%d", call, nth))
		n.Start()
		l.restart(t)
		code := n.AwaitExit(time.Minute)
		l.end()
		if code != exitDiskFailed {
			t.Fatalf("%s number %d failed: the node has ended with %d, want %d",
				call, nth, code, exitDiskFailed)
		}
		counts[call]++
		saboteur.Inject("")
		n.Start()
		n.AwaitReady(startLimit)
		l.verifyKeys(t, c.Nodes())
	}
	t.Logf("syncs that failed: %v; %v", counts, l.tally)
}

// stopNode has a node end in an orderly way.
func stopNode(t *testing.T, n *cluster.Node) {
	t.Helper()
	n.Terminate()
	if code := n.AwaitExit(time.Minute); code != 0 {
		t.Fatalf("node %d ended with %d", n.ID(), code)
	}
}

// restart lets the clients go again after the load has ended.
func (l *load) restart(t *testing.T) {
	l.stop = make(chan struct{})
	for w := range l.clients {
		l.wg.Go(func() { l.run(t.Context(), w) })
	}
	t.Cleanup(l.end)
}
