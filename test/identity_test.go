//go:build unix

package test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// refusals is how often a refused node may be named in the log of another, in the
// time that these tests take: once for each kind of connection.
const refusals = 4

// founded is a cluster with a group, and where its raft stands.
type founded struct {
	*cluster.Cluster
	terms []uint64
}

func found(t *testing.T, cfg cluster.Config) *founded {
	t.Helper()
	f := &founded{Cluster: cluster.New(t, cfg)}
	f.Start()
	createGroups(t, f.Nodes(), []raftyard.GroupID{1}, kvGroup(1, 2, 3))
	if err := put(t, f.Node(1), 1, "name", []byte(cfg.Name)); err != nil {
		t.Fatal(err)
	}
	return f
}

// remember notes the terms of the system group and of the group on node 1.
func (f *founded) remember(t *testing.T) {
	t.Helper()
	f.terms = nil
	for _, g := range []raftyard.GroupID{0, 1} {
		r, err := f.Node(1).Raft(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		f.terms = append(f.terms, r.Term)
	}
}

// undisturbed checks that the cluster works and has had no election since.
func (f *founded) undisturbed(t *testing.T) {
	t.Helper()
	before := f.terms
	f.remember(t)
	for i, g := range []int{0, 1} {
		if f.terms[i] != before[i] {
			t.Errorf("group %d: the term was %d and is %d", g, before[i], f.terms[i])
		}
	}
	if err := put(t, f.Node(2), 1, "again", []byte("value")); err != nil {
		t.Error(err)
	}
}

// awaitRefusal waits until the logs of the nodes tell why they do not talk, and
// for some time more, in which they must not tell it over and over.
func awaitRefusal(t *testing.T, text string, nodes ...*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		cluster.Eventually(t, startLimit, fmt.Sprintf("node %d tells why", n.ID()), func() error {
			return want(len(n.LogLines(text)) > 0, "no line with %q", text)
		})
	}
	until := time.Now().Add(cluster.Sized(3*time.Second, 15*time.Second))
	cluster.Eventually(t, time.Minute, "time goes by", func() error {
		return want(time.Now().After(until), "not yet")
	})
	for _, n := range nodes {
		lines := n.LogLines(text)
		t.Logf("node %d: %d lines, the first: %s", n.ID(), len(lines), lines[0])
		if len(lines) > refusals {
			t.Errorf("node %d says it %d times: %q", n.ID(), len(lines), lines)
		}
	}
}

// TestOtherCluster starts a node of one cluster at the address of a node of
// another: same ids, same groups. Neither may take the other for its own.
func TestOtherCluster(t *testing.T) {
	a := found(t, cluster.Config{Name: "one"})
	b := found(t, cluster.Config{Name: "two"})
	terminate(t, a.Node(3), b.Node(3))
	awaitLeader(t, a.Cluster)
	a.remember(t)
	log := raftOf(t, a.Node(1), 1)

	stranger := b.Node(3)
	stranger.Configure(b.Node(3).PeerAddr(), a.Node(3).PeerAddr())
	stranger.Start()
	awaitRefusal(t, "refused: another cluster", a.Node(1), a.Node(2), stranger)
	if r := raftOf(t, a.Node(1), 1); r.Last != log.Last || r.Commit != log.Commit {
		t.Errorf("the log ended at %d, committed up to %d, and ends at %d, committed up to %d",
			log.Last, log.Commit, r.Last, r.Commit)
	}
	a.undisturbed(t)
	// Its own cluster finds it, though it has moved.
	stranger.AwaitReady(startLimit)
	wantKeys(t, b.Cluster, 1, "name")
}

// awaitLeader waits until the nodes that run have a leader of group 1 and of the
// system group.
func awaitLeader(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, g := range []raftyard.GroupID{0, 1} {
		cluster.Eventually(t, startLimit, "there is a leader", func() error {
			r, err := c.Node(1).Raft(t.Context(), g)
			if err != nil {
				return err
			}
			return want(r.Leader != 0, "group %d has none", g)
		})
	}
}

// TestWrongClusterName gives a node another cluster's name, with its data and with
// an empty directory.
func TestWrongClusterName(t *testing.T) {
	cluster.Long(t)
	c := found(t, cluster.Config{Name: "right", Tolerate: []string{"level=error"}})
	n := c.Node(3)
	terminate(t, n)
	awaitLeader(t, c.Cluster)
	c.remember(t)

	n.Configure("cluster: right", "cluster: wrong")
	n.Start()
	if code := n.AwaitExit(startLimit); code != 1 && code != 2 {
		t.Errorf("exit code %d with another cluster's data, want 1 or 2", code)
	}
	n.Configure(n.Dir(), filepath.Join(t.TempDir(), "fresh"))
	n.Start()
	awaitRefusal(t, "refused: another cluster", c.Node(1), c.Node(2), n)
	c.undisturbed(t)
}

// TestNodesMove gives first one node and then all of them other addresses, in their
// own configuration only and in everybody's.
func TestNodesMove(t *testing.T) {
	c := found(t, cluster.Config{})
	n := c.Node(3)
	terminate(t, n)
	was := n.PeerAddr()
	n.Move()
	n.Start()
	c.AwaitReady(startLimit)
	wantKeys(t, c.Cluster, 1, "name")

	for _, other := range c.Nodes() {
		other.Configure(was, n.PeerAddr())
	}
	terminate(t, c.Nodes()...)
	for _, n := range c.Nodes() {
		was := n.PeerAddr()
		n.Move()
		for _, other := range c.Nodes() {
			other.Configure(was, n.PeerAddr())
		}
	}
	c.Start()
	wantKeys(t, c.Cluster, 1, "name")
	verifyHashes(t, c.Nodes(), []raftyard.GroupID{0, 1})
}

// TestSameNodeTwice starts a second process with the id of a node that runs.
func TestSameNodeTwice(t *testing.T) {
	cluster.Long(t)
	c := found(t, cluster.Config{})
	others := cluster.New(t, cluster.Config{Label: "twin"})
	twin := others.Node(3)
	for id := raftyard.NodeID(1); id <= 2; id++ {
		twin.Configure(others.Node(id).PeerAddr(), c.Node(id).PeerAddr())
	}
	c.remember(t)
	twin.Start()
	awaitRefusal(t, "connected with data directory", c.Node(1), c.Node(2), twin)
	c.undisturbed(t)
}
