//go:build unix

package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestNoGroupStalls writes, overwrites and deletes as fast as it can, with snapshots of
// all groups all the time, so that flushes, compactions and the reclaiming of space have
// much to do at once. Every group must have a success in each ten seconds, and nobody may
// lose a leadership for it.
func TestNoGroupStalls(t *testing.T) {
	cluster.Long(t)
	const window = 10 * time.Second
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := groupIDs(20)
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = 50
	createGroups(t, c.Nodes(), groups, spec)
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groups, clients: 40, keys: 2000, size: 4 << 10,
	})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 1000)
	before := terms(t, c, groups)
	cluster.Pause(t.Context().Done(), cluster.Sized(12*time.Second, 30*time.Minute))
	l.awaitApplied(t, 1000)
	l.end()
	switch after := terms(t, c, groups); {
	case after == before:
	case cluster.FullScale(): // otherwise others may keep the processors from it
		t.Errorf("terms and leaders are %s, and were %s", after, before)
	default:
		t.Logf("terms and leaders are %s, and were %s", after, before)
	}
	if _, worst := l.tally.gaps(); worst.gap > window {
		t.Errorf("a group had no success for %v, want %v at most", worst.gap, window)
	}
	t.Log(l.tally)
	l.verifyLists(t, c.Nodes())
	verifyHashes(t, c.Nodes(), groups)
}

// terms returns term and leader of each group, as its members agree.
func terms(t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID) string {
	t.Helper()
	var b strings.Builder
	for _, g := range append([]raftyard.GroupID{raftyard.SystemGroup}, groups...) {
		r := raftOf(t, c.Node(1), g)
		fmt.Fprintf(&b, "%d: %d in %d; ", g, r.Leader, r.Term)
	}
	return b.String()
}

// TestStartAfterALongLife kills a node through whose logs many times more has gone than is
// there, and starts it. That must not take much longer than with a node which has the same
// content and no past: nothing reads what is gone.
func TestStartAfterALongLife(t *testing.T) {
	cluster.Long(t)
	const limit = 10 * time.Second
	groups := groupIDs(cluster.Sized(20, 100))
	began := func(entries int) (start time.Duration) {
		c := cluster.New(t, cluster.Config{Nodes: 1, Label: fmt.Sprintf("%d", entries)})
		c.Start()
		n := c.Node(1)
		spec := kvGroup(1)
		spec.SnapshotEntries = 100
		createGroups(t, c.Nodes(), groups, spec)
		err := eachGroup(groups, len(groups), func(_ int, g raftyard.GroupID) error {
			for i := range entries {
				key := fmt.Sprintf("key-%02d", i%10)
				if err := put(t, n, g, key, fmt.Appendf(nil, "%d", i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Kill()
		at := time.Now()
		n.Start()
		n.AwaitReady(startLimit)
		start = time.Since(at)
		for _, g := range groups {
			key, want := fmt.Sprintf("key-%02d", (entries-1)%10), fmt.Sprint(entries-1)
			got, err := readKey(t.Context(), n, g, key, client.Linearizable)
			if err != nil || string(got) != want {
				t.Errorf("group %d: %s is %q, %v, want %q", g, key, got, err, want)
			}
		}
		n.Kill()
		return start
	}
	fresh := began(10)
	old := began(cluster.Sized(500, 50_000))
	t.Logf("ready after %v, and after %v without a past", old, fresh)
	if old > limit {
		t.Errorf("ready after %v, want %v at most", old, limit)
	}
}
