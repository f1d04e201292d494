package test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestNothingLeaks has a peer restart, be sent snapshots, and be cut off again and again.
// When all is quiet afterwards, the nodes that stayed have as many goroutines of each kind, and
// as many sockets, as they had when they had just met it, and hardly more memory.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{Links: true})
	c.Start()
	groups := groupIDs(4)
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = 20
	createGroups(t, c.Nodes(), groups, spec)
	stay, away := c.Nodes()[:2], c.Node(3)
	for i, g := range groups { // or what is under way to the other when it is killed is unknown
		leadAll(t, stay[i%len(stay)], []raftyard.GroupID{g})
	}
	for _, g := range groups {
		if err := put(t, c.Node(1), g, "key", []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	verifyHashes(t, c.Nodes(), groups)
	awaitPeers(t, c.Nodes())
	before := atLeastInUse(t, stay)

	rounds := cluster.Sized(4, 200)
	for i := range rounds {
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

	for i, n := range stay {
		var after usage
		cluster.Eventually(t, settleLimit, "it is as it was", func() error {
			after = inUse(t, n)
			return after.moreThan(before[i], rounds)
		})
		t.Logf("node %d: %v before, %v after", n.ID(), before[i], after)
	}
}

// restartBehind kills a node, has the logs be cut meanwhile, and starts it again: it comes
// back by snapshots, for the most part.
func restartBehind(
	t *testing.T, c *cluster.Cluster, away *cluster.Node, groups []raftyard.GroupID, round int,
) {
	t.Helper()
	last := make(map[raftyard.GroupID]uint64)
	for _, g := range groups {
		last[g] = raftOf(t, away, g).Last
	}
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
	for _, n := range c.Nodes()[:2] {
		for _, g := range groups {
			cluster.Eventually(t, startLimit, "its log is cut", func() error {
				r, wrong := n.Raft(t.Context(), g)
				return cmp.Or(wrong, want(r.First > last[g]+1, "group %d on node %d begins at %d",
					g, n.ID(), r.First))
			})
		}
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
	goroutines map[string]int // by the function that has begun them
	sockets    int
	memory     int64 // of its own, bytes
}

func (u usage) String() string {
	sum := 0
	for _, n := range u.goroutines {
		sum += n
	}
	return fmt.Sprintf("%d goroutines, %d sockets, %d MiB", sum, u.sockets, u.memory>>20)
}

// inUse returns what a node has in use when nobody asks it anything.
func inUse(t *testing.T, n *cluster.Node) usage {
	t.Helper()
	n.CloseConnections()
	u := usage{goroutines: make(map[string]int)}
	var err error
	if u.sockets, err = sockets(n.PID()); err != nil {
		t.Fatal(err)
	}
	m, err := n.Memory()
	if err != nil {
		t.Fatal(err)
	}
	u.memory = m.Anonymous
	a := n.Do(t.Context(), cluster.Request{
		Method: http.MethodGet, Path: "/debug/pprof/goroutine", Query: url.Values{"debug": {"2"}},
	})
	if err := a.Error(); err != nil {
		t.Fatal(err)
	}
	const began = "created by "
	for line := range strings.Lines(string(a.Body)) {
		if by, ok := strings.CutPrefix(line, began); ok {
			by, _, _ = strings.Cut(strings.TrimSpace(by), " in goroutine ")
			u.goroutines[by]++
		}
	}
	if len(u.goroutines) == 0 {
		t.Fatalf("node %d: a list of goroutines without any: %.200s", n.ID(), a.Body)
	}
	return u
}

// atLeastInUse returns the least that each node has in use of everything when it is looked at
// a few times: what comes and goes is not counted.
func atLeastInUse(t *testing.T, nodes []*cluster.Node) []usage {
	t.Helper()
	const looks, apart = 5, 50 * time.Millisecond
	least := make([]usage, len(nodes))
	for i, n := range nodes {
		least[i] = inUse(t, n)
		for range looks - 1 {
			cluster.Pause(t.Context().Done(), apart)
			now := inUse(t, n)
			least[i].sockets = min(least[i].sockets, now.sockets)
			least[i].memory = max(least[i].memory, now.memory)
			for by, count := range least[i].goroutines {
				least[i].goroutines[by] = min(count, now.goroutines[by])
			}
		}
	}
	return least
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

// moreThan returns an error if more is in use than before rounds in which something may have
// leaked. It is less than one of anything in each round that comes and goes by itself.
func (u usage) moreThan(before usage, rounds int) error {
	few := rounds / 2
	var errs []error
	for by, count := range u.goroutines {
		if was := before.goroutines[by]; count > was+few {
			errs = append(errs, fmt.Errorf("%d goroutines of %s, there were %d", count, by, was))
		}
	}
	if u.sockets > before.sockets+few {
		errs = append(errs, fmt.Errorf("%d sockets, there were %d", u.sockets, before.sockets))
	}
	const once, each = 64 << 20, 512 << 10 // write buffers fill up
	if u.memory > before.memory+once+int64(rounds)*each {
		errs = append(errs, fmt.Errorf("%d bytes of memory, it was %d", u.memory, before.memory))
	}
	return errors.Join(errs...)
}
