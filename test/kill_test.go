//go:build unix

package test

import (
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/cluster"
)

// startLimit is how long a node may take from its start until it is ready.
const startLimit = 60 * time.Second

// TestKillEachNode kills each of three nodes twice, one at a time, while clients
// write through all of them. Whatever was acknowledged must be there in the end,
// through each node, and the replicas must be equal.
func TestKillEachNode(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{})
	c.Start()
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groupIDs(cluster.Sized(16, 64)),
		clients: 64, keys: cluster.Sized(6_000, 100_000), size: 100,
	})
	took := createGroups(t, c.Nodes(), l.groups, kvGroup(1, 2, 3))
	t.Logf("%d groups created in %v", len(l.groups), took.Round(time.Millisecond))
	l.start(t)

	const rounds = 2
	parts := rounds*len(c.Nodes()) + 1
	for part := 1; part < parts; part++ {
		n := c.Node(c.Nodes()[(part-1)%len(c.Nodes())].ID())
		upTo := l.grant(part, parts)
		before := int64(len(l.keys)) * int64(part-1) / int64(parts)
		l.awaitWritten(t, before+(upTo-before)/3)
		n.Kill()
		l.awaitWritten(t, before+(upTo-before)*2/3)
		n.Start()
		n.AwaitReady(startLimit)
	}
	l.grant(1, 1)
	l.awaitWritten(t, int64(len(l.keys)))
	l.end()
	t.Log(l.tally)
	l.tally.check(t)

	begun := time.Now()
	l.verifyLists(t, c.Nodes())
	l.verifyKeys(t, c.Nodes())
	verifyHashes(t, c.Nodes(), l.groups)
	t.Logf("%d keys read back through each node in lists and one by one, hashes of %d groups "+
		"equal: %.1fs", len(l.keys), len(l.groups), time.Since(begun).Seconds())
}

// TestKillAllNodes kills all three nodes at once under load, several times.
func TestKillAllNodes(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	rounds := cluster.Sized(3, 10)
	if testing.Short() {
		rounds = 1
	}
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groupIDs(cluster.Sized(8, 32)),
		clients: 32, keys: cluster.Sized(3_000, 50_000), size: 200,
	})
	createGroups(t, c.Nodes(), l.groups, kvGroup(1, 2, 3))
	l.start(t)
	for round := 1; round <= rounds; round++ {
		l.awaitWritten(t, l.grant(round, rounds+1)/2)
		c.Kill(c.Nodes()...)
		for _, n := range c.Nodes() {
			n.Start()
		}
		begun := time.Now()
		c.AwaitReady(startLimit)
		ready := time.Since(begun)
		l.awaitApplied(t, 10*len(l.groups))
		t.Logf("round %d: ready after %.2fs, writing after %.2fs",
			round, ready.Seconds(), time.Since(begun).Seconds())
	}
	l.grant(1, 1)
	l.awaitWritten(t, int64(len(l.keys)))
	// The last kill has no load after it that could mend anything.
	l.end()
	c.Kill(c.Nodes()...)
	c.Start()
	t.Log(l.tally)
	l.tally.check(t)
	l.verifyLists(t, c.Nodes())
	verifyHashes(t, c.Nodes(), l.groups)
}
