//go:build unix

package test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
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
	if after := terms(t, c, groups); after != before {
		t.Errorf("terms and leaders are %s, and were %s", after, before)
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
// there, and starts it. There must be no more records for it to read, but for a few, than with a
// node that has the same content and no past; and what it had acknowledged is there.
func TestStartAfterALongLife(t *testing.T) {
	cluster.Long(t)
	const limit = 10 * time.Second
	const every = 100 // entries between two snapshots; half as many stay behind
	groups := groupIDs(cluster.Sized(20, 100))
	fresh := liveLong(t, groups, every, every+every/2)
	old := liveLong(t, groups, every, cluster.Sized(500, 50_000))
	t.Logf("%d records are read and it is ready after %v; %d and %v without a past",
		old.records, old.start, fresh.records, fresh.start)
	if old.records > 2*fresh.records {
		t.Errorf("%d records are read, and %d without a past: want twice as many at most",
			old.records, fresh.records)
	}
	if old.start > limit {
		t.Errorf("ready after %v, want %v at most", old.start, limit)
	}
}

// A rebirth is the start of a node after it was killed.
type rebirth struct {
	records int // of its logs and states, that there are to read
	start   time.Duration
}

// liveLong has a node write so many entries to each group, kills and starts it.
func liveLong(t *testing.T, groups []raftyard.GroupID, every uint64, entries int) rebirth {
	t.Helper()
	c := cluster.New(t, cluster.Config{Nodes: 1, Label: strconv.Itoa(entries)})
	c.Start()
	n := c.Node(1)
	spec := kvGroup(1)
	spec.SnapshotEntries = every
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
	b := rebirth{records: recordsOf(t, n)}
	at := time.Now()
	n.Start()
	n.AwaitReady(startLimit)
	b.start = time.Since(at)
	for _, g := range groups {
		key, want := fmt.Sprintf("key-%02d", (entries-1)%10), strconv.Itoa(entries-1)
		got, err := readKey(t.Context(), n, g, key, client.Linearizable)
		if err != nil || string(got) != want {
			t.Errorf("group %d: %s is %q, %v, want %q", g, key, got, err, want)
		}
	}
	n.Kill()
	return b
}

// recordsOf counts the records in the directory of a node that does not run: of replicas, also
// of destroyed ones, of entries and of keys.
func recordsOf(t *testing.T, n *cluster.Node) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), os.Getenv("RAFTYARD_TEST_BINARY"),
		"inspect", n.Dir(), "verify").CombinedOutput()
	if err != nil {
		t.Fatalf("inspect: %v: %s", err, out)
	}
	var sum int
	read := regexp.MustCompile(`read were (\d+) replicas, (\d+) tombstones, ` +
		`(\d+) entries, (\d+) items`).FindSubmatch(out)
	if read == nil {
		t.Fatalf("inspect does not say what it has read: %s", out)
	}
	for _, count := range read[1:] {
		i, err := strconv.Atoi(string(count))
		if err != nil {
			t.Fatal(err)
		}
		sum += i
	}
	return sum
}
