//go:build unix

package test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// storeAllowance is what a Badger store may take of the disk besides three times
// its content: write buffers, and tables that are not compacted yet.
const storeAllowance = 256 << 20

// A lag is a test in which one node is away while the others go on.
type lag struct {
	c       *cluster.Cluster
	groups  []raftyard.GroupID
	entries int // of all groups together, while the node is away
	every   int // snapshot_entries
	keys    int // of each group; half of them are deleted while the node is away
	size    int // of a value, bytes
	deleted bool
	ballast int // bytes of each group that are written once, so that snapshots are large
}

// TestLaggingNode keeps a node away for longer than the logs reach back. It must
// come back by snapshots, hold no key that was deleted meanwhile, and do so even
// if it is killed while it catches up. The logs must stay cut on every node.
func TestLaggingNode(t *testing.T) {
	cluster.Long(t)
	g := &lag{
		c: cluster.New(t, cluster.Config{}), groups: groupIDs(cluster.Sized(4, 8)),
		entries: cluster.Sized(3_000, 50_000), every: cluster.Sized(200, 1_000),
		keys: 200, size: cluster.Sized(2<<10, 16<<10), ballast: cluster.Sized(8<<20, 16<<20),
	}
	g.c.Start()
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = uint64(g.every)
	createGroups(t, g.c.Nodes(), g.groups, spec)
	g.write(t, g.keys)
	g.writeBallast(t)
	verifyHashes(t, g.c.Nodes(), g.groups)

	away := g.c.Node(3)
	away.Kill()
	g.passEntries(t, g.entries)
	begun := time.Now()
	away.Start()
	g.awaitCaughtUp(t, away)
	installed, err := away.Metric(t.Context(), "raftyard_snapshots_total", `what="installed"`)
	if err != nil || int(installed) < len(g.groups) {
		t.Errorf("node 3 has installed %v snapshots (%v), want one for each of %d groups",
			installed, err, len(g.groups))
	}
	t.Logf("node 3 has caught up by %v snapshots: %.1fs", installed, time.Since(begun).Seconds())
	g.checkStale(t, away)
	verifyHashes(t, g.c.Nodes(), g.groups)
	g.checkBounds(t)

	away.Kill()
	g.passEntries(t, max(g.entries/4, 3*g.every*len(g.groups)))
	begun = time.Now()
	kills := g.killWhileCatchingUp(t, away)
	away.Start()
	g.awaitCaughtUp(t, away)
	t.Logf("node 3 has caught up, though it was killed %d times meanwhile: %.1fs",
		kills, time.Since(begun).Seconds())
	g.checkStale(t, away)
	verifyHashes(t, g.c.Nodes(), g.groups)
	g.checkBounds(t)
}

// write writes the first keys of every group once more, through the nodes that
// run. Within a group it waits for each write, so that each is an entry of its
// own; keys that are deleted already are left out.
func (g *lag) write(t *testing.T, keys int) {
	t.Helper()
	var running []*cluster.Node
	for _, n := range g.c.Nodes() {
		if n.Running() {
			running = append(running, n)
		}
	}
	g.each(t, func(id raftyard.GroupID) error {
		for i := range keys {
			n := running[i%len(running)]
			if g.deleted && g.gone(i) {
				continue
			}
			if err := put(t, n, id, g.key(i), g.value(id, i, n.ID())); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeBallast writes what makes snapshots large.
func (g *lag) writeBallast(t *testing.T) {
	t.Helper()
	const size = 512 << 10
	g.each(t, func(id raftyard.GroupID) error {
		for i := range g.ballast / size {
			value := make([]byte, size)
			for j := range value {
				value[j] = byte(rand.N(256))
			}
			if err := put(t, g.c.Node(1), id, fmt.Sprintf("ballast-%d", i), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// each does something with every group, side by side.
func (g *lag) each(t *testing.T, do func(id raftyard.GroupID) error) {
	t.Helper()
	err := eachGroup(g.groups, len(g.groups), func(_ int, id raftyard.GroupID) error {
		return do(id)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a key.
func put(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, key string, value []byte,
) error {
	t.Helper()
	a := n.Do(t.Context(), cluster.Request{
		Method: http.MethodPut, Path: cluster.KeyPath(g, key), Body: value,
	})
	if err := a.Error(); err != nil {
		return fmt.Errorf("node %d: group %d: put %s: %w", n.ID(), g, key, err)
	}
	return nil
}

func (g *lag) key(i int) string { return fmt.Sprintf("key-%04d", i) }

// value differs from write to write, and does not shrink when it is compressed.
func (g *lag) value(id raftyard.GroupID, i int, n raftyard.NodeID) []byte {
	v := fmt.Appendf(nil, "group %d key %d through node %d ", id, i, n)
	for len(v) < g.size {
		v = append(v, byte(rand.N(256)))
	}
	return v
}

// gone reports whether a key is deleted while the node is away.
func (g *lag) gone(i int) bool { return i%2 == 1 }

// passEntries overwrites keys and deletes half of them until enough entries have
// gone through the logs.
func (g *lag) passEntries(t *testing.T, entries int) {
	t.Helper()
	begun := time.Now()
	start := g.lastIndexes(t)
	if !g.deleted {
		g.write(t, g.keys)
		g.deleteHalf(t)
	}
	for g.passed(t, start) < entries {
		g.write(t, g.keys)
	}
	passed := g.passed(t, start)
	t.Logf("%d entries, about %d MiB, in %d groups while node 3 was away: %.1fs",
		passed, passed*g.size>>20, len(g.groups), time.Since(begun).Seconds())
}

// deleteHalf deletes the keys that are to be gone.
func (g *lag) deleteHalf(t *testing.T) {
	t.Helper()
	g.each(t, func(id raftyard.GroupID) error {
		for i := range g.keys {
			if !g.gone(i) {
				continue
			}
			a := g.c.Node(1).Do(t.Context(), cluster.Request{
				Method: http.MethodDelete, Path: cluster.KeyPath(id, g.key(i)),
			})
			if err := a.Error(); err != nil {
				return fmt.Errorf("group %d: delete %s: %w", id, g.key(i), err)
			}
		}
		return nil
	})
	g.deleted = true
}

func (g *lag) lastIndexes(t *testing.T) []uint64 {
	t.Helper()
	last := make([]uint64, len(g.groups))
	for i, id := range g.groups {
		r, err := g.c.Node(1).Raft(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		last[i] = r.Last
	}
	return last
}

// passed returns how many entries all logs have grown by.
func (g *lag) passed(t *testing.T, start []uint64) int {
	t.Helper()
	sum := 0
	for i, last := range g.lastIndexes(t) {
		sum += int(last - start[i])
	}
	return sum
}

// killWhileCatchingUp starts the node and kills it while snapshots are on their
// way to it, at another point each time: as soon as it runs, when it answers, and
// when it has received one, two and more, if there are so many to come.
func (g *lag) killWhileCatchingUp(t *testing.T, n *cluster.Node) int {
	t.Helper()
	const kills = 5
	for i := range kills {
		n.Start()
		cluster.Eventually(t, startLimit, "node 3 catches up", func() error {
			if i == 0 {
				return nil
			}
			got, err := n.Metric(t.Context(), "raftyard_snapshots_total", `what="received"`)
			if err == nil && got < float64(i-1) && g.behind(t, n) == nil {
				return nil
			}
			return cmp.Or(err, want(got >= float64(i-1), "%v snapshots received", got))
		})
		n.Kill()
	}
	return kills
}

// behind returns an error while a group on the node lacks what the others have.
func (g *lag) behind(t *testing.T, n *cluster.Node) error {
	t.Helper()
	for _, id := range g.groups {
		leader, err := g.c.Node(1).Raft(t.Context(), id)
		if err != nil {
			return err
		}
		r, err := n.Raft(t.Context(), id)
		err = cmp.Or(err, want(r.Applied >= leader.Commit && r.Snapshot > 0,
			"group %d is at %d of %d", id, r.Applied, leader.Commit))
		if err != nil {
			return err
		}
	}
	return nil
}

// want returns an error with the text unless a condition holds.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// awaitCaughtUp waits until the node has what the others have, and checks that it
// has not come entry by entry.
func (g *lag) awaitCaughtUp(t *testing.T, n *cluster.Node) {
	t.Helper()
	n.AwaitReady(startLimit)
	cluster.Eventually(t, settleLimit, "node 3 has caught up", func() error {
		return g.behind(t, n)
	})
	for i, last := range g.lastIndexes(t) {
		r, err := n.Raft(t.Context(), g.groups[i])
		if err != nil {
			t.Fatal(err)
		}
		if r.First+uint64(g.every+g.every/2+g.every/8) < last {
			t.Errorf("group %d on node 3: the log begins at %d and ends at %d: it has not come "+
				"by snapshot", g.groups[i], r.First, last)
		}
	}
}

// checkStale reads every key on the node itself, without asking anybody.
func (g *lag) checkStale(t *testing.T, n *cluster.Node) {
	t.Helper()
	for _, id := range g.groups {
		there := make(map[string][]byte)
		err := g.c.Node(1).List(t.Context(), id, client.Linearizable, func(item client.Item) {
			there[string(item.Key)] = item.Value
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range g.keys {
			got, err := readKey(t.Context(), n, id, g.key(i), client.Stale)
			switch {
			case err != nil:
				t.Fatalf("group %d: %s on node 3: %v", id, g.key(i), err)
			case g.gone(i) && got != nil:
				t.Errorf("group %d: %s was deleted, and is back on node 3", id, g.key(i))
			case !g.gone(i) && (got == nil || !slices.Equal(got, there[g.key(i)])):
				t.Errorf("group %d: %s on node 3 is %.40q, want %.40q",
					id, g.key(i), got, there[g.key(i)])
			}
		}
	}
}

// checkBounds checks that the logs are cut and that the disk shows it.
func (g *lag) checkBounds(t *testing.T) {
	t.Helper()
	const overhead = 256 // of an entry, bytes
	for _, n := range g.c.Nodes() {
		var most uint64
		for _, id := range g.groups {
			r, err := n.Raft(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			// A snapshot comes after snapshot_entries and leaves half as many behind
			// it; what is on its way meanwhile is little.
			length := r.Last + 1 - r.First
			most = max(most, length)
			if bound := uint64(g.every + g.every/2 + g.every/8); length > bound {
				t.Errorf("group %d on node %d: the log holds %d entries, want at most %d",
					id, n.ID(), length, bound)
			}
			if bound := int64(length) * int64(g.size+overhead); r.LogBytes > bound {
				t.Errorf("group %d on node %d: the log takes %d bytes, want at most %d",
					id, n.ID(), r.LogBytes, bound)
			}
		}
		window := int64(len(g.groups)) * int64(g.every+g.every/2) * int64(g.size+overhead)
		// What went through a log once may still lie in slots that wait to be used
		// again, so the ballast counts, too.
		ballast := int64(len(g.groups)) * int64(g.ballast)
		g.checkDisk(t, n, "log", ballast+3*window+storeAllowance)
		live := ballast + int64(len(g.groups))*int64(g.keys)*int64(g.size+overhead)
		g.checkDisk(t, n, "state", 3*live+storeAllowance)
		t.Logf("node %d: the longest log has %d entries", n.ID(), most)
	}
}

// checkDisk checks how much of the disk one of a node's two stores takes.
func (g *lag) checkDisk(t *testing.T, n *cluster.Node, store string, bound int64) {
	t.Helper()
	used, err := cluster.AllocatedBytes(filepath.Join(n.Dir(), store))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("node %d: %s: %d MiB on disk, bound %d MiB", n.ID(), store, used>>20, bound>>20)
	if used > bound {
		t.Errorf("node %d: %s: %d MiB on disk, want at most %d MiB",
			n.ID(), store, used>>20, bound>>20)
	}
}
