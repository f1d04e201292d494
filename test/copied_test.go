//go:build unix

package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestCopyOfARunningNode copies the directory of a node while it writes to it, and starts the
// copy elsewhere under the same id, as who clones a machine does. While the node runs, the copy
// must be refused, by the others or because it is not whole; it must answer nothing and
// disturb nobody.
func TestCopyOfARunningNode(t *testing.T) {
	t.Parallel()
	c := found(t, cluster.Config{})
	others := cluster.New(t, cluster.Config{
		Label: "clone",
		// Its files are copied one after the other: it may say what it lacks, not panic.
		Tolerate: []string{"level=error"},
	})
	original, clone := c.Node(3), others.Node(3)
	for id := raftyard.NodeID(1); id <= 2; id++ {
		clone.Configure(others.Node(id).PeerAddr(), c.Node(id).PeerAddr())
	}
	awaitKnown(t, c)
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: []raftyard.GroupID{1}, clients: 8, keys: 1000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 200)
	c.remember(t)
	copyRunning(t, original, clone)
	l.awaitApplied(t, 200) // which the copy does not have
	clone.Start()
	const text = "another process has this node id"
	cluster.Eventually(t, startLimit, "one of the two is refused", func() error {
		if !clone.Running() {
			return want(len(clone.LogLines("raftyard: ")) == 1, "it has ended and said %q",
				clone.LogLines("raftyard: "))
		}
		for _, n := range c.Nodes()[:2] {
			if len(n.LogLines(text)) == 0 {
				return fmt.Errorf("node %d has not said why", n.ID())
			}
		}
		return nil
	})
	l.awaitApplied(t, 500)
	if clone.Running() {
		a := clone.Do(t.Context(), cluster.Request{
			Method: http.MethodGet, Path: cluster.KeyPath(1, "name"), Timeout: time.Second,
		})
		if a.Outcome != cluster.NotApplied || a.Error() == nil {
			t.Errorf("the copy answers: %v", a)
		}
		if a := clone.Do(t.Context(), cluster.Request{
			Method: http.MethodGet, Path: "/readyz",
		}); a.Why != client.CodeNotReady {
			t.Errorf("the copy is ready: %v", a)
		}
		terminate(t, clone)
	}
	wantWell(t, original, "/readyz")
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	c.undisturbed(t)
	l.verifyLists(t, c.Nodes(), "name", "again")
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{raftyard.SystemGroup, 1})
}

// awaitKnown waits until every node has a leader of the group, so that no term changes any more.
func awaitKnown(t *testing.T, c *founded) {
	t.Helper()
	leadAll(t, c.Node(1), []raftyard.GroupID{1})
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{1})
}

// copyRunning copies the directory of a node that runs to that of another. Files may go while
// they are copied; then it begins anew.
func copyRunning(t *testing.T, from, to *cluster.Node) {
	t.Helper()
	cluster.Eventually(t, startLimit, "the directory is copied", func() error {
		if err := os.RemoveAll(to.Dir()); err != nil {
			return err
		}
		cmd := exec.CommandContext(t.Context(), "cp", "-a", from.Dir(), to.Dir())
		out, err := cmd.CombinedOutput()
		return want(err == nil, "%v: %s", err, out)
	})
}

// TestExpectedEpoch has two callers change the members of a group who have both seen the same
// epoch. The second one is refused and told at which epoch the group is, has changed
// nothing, and gets there with that.
func TestExpectedEpoch(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Nodes: 4})
	c.Start()
	const g = raftyard.GroupID(1)
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, kvGroup(1, 2, 3))
	seen, err := c.Node(4).Group(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	first := client.Members{Voters: []raftyard.NodeID{1, 2, 4}, ExpectEpoch: seen.Epoch}
	if a := c.Node(2).SetMembers(t.Context(), g, first, moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	now := raftOf(t, leaderOf(t, c.Nodes(), g), g).Epoch
	second := client.Members{Voters: []raftyard.NodeID{2, 3, 4}, ExpectEpoch: seen.Epoch}
	for _, n := range c.Nodes() {
		a := n.SetMembers(t.Context(), g, second, moveLimit)
		if a.Status != http.StatusConflict || a.Why != client.CodeEpochMismatch ||
			a.Outcome != cluster.NotApplied {
			t.Fatalf("node %d: members at epoch %d: %v", n.ID(), seen.Epoch, a)
		}
		if at := fmt.Sprintf("at epoch %d", now); !strings.Contains(a.String(), at) {
			t.Errorf("node %d: %v, want %q in it", n.ID(), a, at)
		}
	}
	awaitPlaced(t, c.Nodes(), g, first.Voters)
	if at := raftOf(t, leaderOf(t, c.Nodes(), g), g).Epoch; at != now {
		t.Errorf("the group is at epoch %d after changes that were refused, and was at %d", at, now)
	}
	second.ExpectEpoch = now
	if a := c.Node(1).SetMembers(t.Context(), g, second, moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	awaitPlaced(t, c.Nodes(), g, second.Voters)
}

// leadAll has a node lead everything.
func leadAll(t *testing.T, n *cluster.Node, groups []raftyard.GroupID) {
	t.Helper()
	for _, g := range append([]raftyard.GroupID{raftyard.SystemGroup}, groups...) {
		cluster.Eventually(t, startLimit, fmt.Sprintf("node %d leads group %d", n.ID(), g),
			func() error { return n.Transfer(t.Context(), g, n.ID(), 2*time.Second).Error() })
	}
}
