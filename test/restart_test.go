//go:build unix

package test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// stopLimit is how long a node may take to stop after SIGTERM.
const stopLimit = 10 * time.Second

// terminate stops nodes as a supervisor does, all at the same time, and checks how
// they go. It returns how long the slowest took.
func terminate(t *testing.T, nodes ...*cluster.Node) time.Duration {
	t.Helper()
	begun := time.Now()
	for _, n := range nodes {
		n.Terminate()
	}
	for _, n := range nodes {
		if code := n.AwaitExit(stopLimit); code != 0 {
			t.Errorf("node %d: exit code %d after SIGTERM, want 0", n.ID(), code)
		}
	}
	return time.Since(begun)
}

// TestCreatedGroupsSurvive kills all nodes right after the creation of groups was
// acknowledged, and after one was deleted and created again.
func TestCreatedGroupsSurvive(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := groupIDs(20)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	for i, g := range groups {
		if err := put(t, c.Nodes()[i%3], g, "first", []byte(g.String())); err != nil {
			t.Fatal(err)
		}
	}
	late := raftyard.GroupID(100)
	if a := c.Node(2).Create(t.Context(), late, kvGroup(1, 2, 3)); a.Error() != nil {
		t.Fatal(a)
	}
	c.Kill(c.Nodes()...)
	c.Start()
	wantListed(t, c, append(slices.Clone(groups), late))
	for _, g := range groups {
		wantKeys(t, c, g, "first")
	}
	wantKeys(t, c, late)

	again := groups[4]
	if a := c.Node(3).Delete(t.Context(), again); a.Error() != nil {
		t.Fatal(a)
	}
	if a := c.Node(1).Create(t.Context(), again, kvGroup(1, 2, 3)); a.Error() != nil {
		t.Fatal(a)
	}
	if err := put(t, c.Node(2), again, "second", []byte("new")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.Kill(c.Nodes()...)
		c.Start()
		wantListed(t, c, append(slices.Clone(groups), late))
		wantKeys(t, c, again, "second")
		wantKeys(t, c, groups[0], "first")
	}
	verifyHashes(t, c.Nodes(), groups)
}

// wantListed checks which groups every node lists.
func wantListed(t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID) {
	t.Helper()
	for _, n := range c.Nodes() {
		var page client.Groups
		if err := n.Get(t.Context(), "/v1/groups", nil, &page); err != nil {
			t.Fatal(err)
		}
		var listed []raftyard.GroupID
		for i := range page.Groups {
			listed = append(listed, page.Groups[i].ID)
		}
		if !slices.Equal(listed, groups) {
			t.Errorf("node %d lists the groups %v, want %v", n.ID(), listed, groups)
		}
	}
}

// wantKeys checks which keys a group holds, through every node.
func wantKeys(t *testing.T, c *cluster.Cluster, g raftyard.GroupID, keys ...string) {
	t.Helper()
	for _, n := range c.Nodes() {
		var listed []string
		err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
			listed = append(listed, string(item.Key))
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(listed, keys) {
			t.Errorf("node %d: group %d has the keys %q, want %q", n.ID(), g, listed, keys)
		}
	}
}

// TestRollingRestart stops one node after the other with SIGTERM and starts it
// again, under load. Leaderships are handed over, so no group stands still for as
// long as an election would take, and no group's members change.
func TestRollingRestart(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{})
	c.Start()
	l := newLoad(loadSpec{
		nodes: c.Nodes(), groups: groupIDs(cluster.Sized(16, 128)),
		clients: cluster.Sized(24, 64), keys: cluster.Sized(2_000, 20_000), size: 100,
	})
	createGroups(t, c.Nodes(), l.groups, kvGroup(1, 2, 3))
	members := membersOf(t, c, l.groups)
	l.start(t)
	l.grant(1, 1)
	for range cluster.Sized(1, 3) {
		for _, n := range c.Nodes() {
			l.awaitApplied(t, 500)
			led, err := n.Metric(t.Context(), "raftyard_leaders")
			if err != nil {
				t.Fatal(err)
			}
			took := terminate(t, n)
			l.awaitApplied(t, 200)
			n.Start()
			n.AwaitReady(startLimit)
			t.Logf("node %d led %.0f groups and stopped in %.2fs", n.ID(), led, took.Seconds())
			if lines := n.LogLines("not handed over"); len(lines) > 0 {
				t.Errorf("node %d: %s", n.ID(), lines[0])
			}
		}
	}
	l.awaitWritten(t, int64(len(l.keys)))
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	// A second is what an election would take at the least.
	if _, worst := l.tally.gaps(); worst.gap > time.Second && !cluster.RaceEnabled {
		t.Errorf("group %d stood still for %v though its leadership was to be handed over",
			worst.group, worst.gap)
	}
	if after := membersOf(t, c, l.groups); !slices.EqualFunc(members, after, slices.Equal) {
		t.Errorf("the members were %v and are %v", members, after)
	}
	l.verifyLists(t, c.Nodes())
	verifyHashes(t, c.Nodes(), l.groups)
}

func membersOf(
	t *testing.T, c *cluster.Cluster, groups []raftyard.GroupID,
) [][]client.Member {
	t.Helper()
	members := make([][]client.Member, len(groups))
	for i, g := range groups {
		got, err := c.Node(1).Group(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		members[i] = got.Members
	}
	return members
}

// TestStartInAnyOrder starts the nodes of a cluster one by one, and looks at what each
// says of itself meanwhile. The first time all of the three that found the cluster must be
// there: two could not tell whether the third has been wiped, and the cluster is older than
// they know. Later a majority is enough.
func TestStartInAnyOrder(t *testing.T) {
	cluster.Long(t)
	c := cluster.New(t, cluster.Config{})
	for i, order := range [][]raftyard.NodeID{{3, 1, 2}, {2, 3, 1}, {1, 2, 3}} {
		c.Node(order[0]).Start()
		awaitAlone(t, c.Node(order[0]))
		c.Node(order[1]).Start()
		if i == 0 {
			awaitAlone(t, c.Node(order[1]))
			c.Node(order[2]).Start()
			c.AwaitReady(startLimit)
			terminate(t, c.Nodes()...)
			continue
		}
		c.AwaitReady(startLimit)
		g := raftyard.GroupID(order[1])
		a := c.Node(order[0]).Create(t.Context(), g, kvGroup(1, 2, 3))
		if a.Error() != nil {
			t.Fatalf("create a group on two of three nodes: %v", a)
		}
		if err := put(t, c.Node(order[1]), g, "key", []byte("value")); err != nil {
			t.Fatal(err)
		}
		c.Node(order[2]).Start()
		c.AwaitReady(startLimit)
		cluster.Eventually(t, settleLimit, "the last node has a replica", func() error {
			return hasMembers(t, c.Node(order[2]), g, []raftyard.NodeID{1, 2, 3})
		})
		wantKeys(t, c, g, "key")
		verifyHashes(t, c.Nodes(), []raftyard.GroupID{g})
		terminate(t, c.Nodes()...)
	}
}

// awaitAlone waits until a node that has no other says so for a while: it lives,
// it is not ready and names the check, and requests end with a reason.
func awaitAlone(t *testing.T, n *cluster.Node) {
	t.Helper()
	looks := 0
	err := cluster.Poll(t.Context(), func() (bool, error) {
		live := n.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/livez"})
		if live.Status == 0 {
			return false, nil // it does not listen yet
		}
		if live.Status != http.StatusOK {
			return false, fmt.Errorf("livez: %v", live)
		}
		ready := n.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/readyz"})
		if ready.Status != http.StatusServiceUnavailable || ready.Problem == nil {
			return false, fmt.Errorf("readyz: %d %v, want 503", ready.Status, ready)
		}
		looks++
		return looks == 50, nil
	})
	if err != nil {
		t.Fatalf("node %d alone: %v", n.ID(), err)
	}
	a := n.Do(t.Context(), cluster.Request{
		Method: http.MethodPut, Path: cluster.KeyPath(1, "key"), Body: []byte("value"),
		Timeout: 500 * time.Millisecond,
	})
	if a.Outcome != cluster.NotApplied || a.Problem == nil {
		t.Errorf("a write to node %d alone: %v (%v), want a problem: not applied",
			n.ID(), a.Outcome, a)
	}
}

// TestStopWithoutQuorum stops a node with SIGTERM that cannot do what it was asked
// for: its peers are dead or frozen, and clients wait.
func TestStopWithoutQuorum(t *testing.T) {
	cluster.Long(t)
	tests := []struct {
		name string
		hurt func(c *cluster.Cluster)
		heal func(c *cluster.Cluster)
	}{
		{
			name: "peers dead",
			hurt: func(c *cluster.Cluster) { c.Kill(c.Node(2), c.Node(3)) },
			heal: func(c *cluster.Cluster) { c.Node(2).Start(); c.Node(3).Start() },
		},
		{
			name: "peers frozen",
			hurt: func(c *cluster.Cluster) { c.Node(2).Freeze(); c.Node(3).Freeze() },
			heal: func(c *cluster.Cluster) { c.Node(2).Thaw(); c.Node(3).Thaw() },
		},
		{
			name: "one peer frozen",
			hurt: func(c *cluster.Cluster) { c.Node(3).Freeze() },
			heal: func(c *cluster.Cluster) { c.Node(3).Thaw() },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cluster.New(t, cluster.Config{})
			c.Start()
			groups := groupIDs(4)
			createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
			for _, g := range groups {
				if err := put(t, c.Node(1), g, "before", []byte("value")); err != nil {
					t.Fatal(err)
				}
			}
			tt.hurt(c)
			y := newTally()
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					g := groups[i%len(groups)]
					y.note(g, pendingWrite(t.Context(), c.Node(1), g, i))
				})
			}
			awaitPending(t, c.Node(1))
			took := terminate(t, c.Node(1))
			wg.Wait()
			t.Logf("stopped in %.2fs; 200 writes that waited: %v", took.Seconds(), y)
			y.check(t)
			tt.heal(c)
			c.Node(1).Start()
			c.AwaitReady(startLimit)
			for _, g := range groups {
				if err := put(t, c.Node(1), g, "after", []byte("value")); err != nil {
					t.Error(err)
				}
			}
			verifyHashes(t, c.Nodes(), groups)
		})
	}
}

// pendingWrite sends a write that has much time.
func pendingWrite(
	ctx context.Context, n *cluster.Node, g raftyard.GroupID, i int,
) cluster.Answer {
	return n.Do(ctx, cluster.Request{
		Method: http.MethodPut, Path: cluster.KeyPath(g, fmt.Sprintf("pending-%d", i)),
		Body: []byte("value"), Timeout: time.Minute,
	})
}

// awaitPending waits until the node has not done anything for the clients for a
// while: those that can be served are, the others wait.
func awaitPending(t *testing.T, n *cluster.Node) {
	t.Helper()
	same, last := 0, -1.0
	cluster.Eventually(t, startLimit, "the clients wait", func() error {
		got, err := n.Metric(t.Context(), "raftyard_proposals_total", `outcome="applied"`)
		if err != nil {
			return err
		}
		if got == last {
			same++
		} else {
			same, last = 0, got
		}
		return want(same > 25, "%v writes done", got)
	})
}

// TestStopEarlyAndTwice stops a node with SIGTERM as soon as it runs, and with two
// signals in a row.
func TestStopEarlyAndTwice(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	n := c.Node(1)
	n.Start()
	cluster.Eventually(t, startLimit, "the node says that it starts", func() error {
		return want(len(n.LogLines("starting")) > 0, "the log is empty")
	})
	n.Terminate()
	// It may be open by now, or be interrupted before that.
	if code := n.AwaitExit(stopLimit); code != 0 && code != 130 {
		t.Errorf("exit code %d after a signal during the start, want 0 or 130", code)
	}
	c.Start()
	n.Terminate()
	n.Terminate() // it may have ended by then
	// A second signal ends it at once; if the first one was quicker, it is done.
	if code := n.AwaitExit(stopLimit); code != 0 && code != 130 {
		t.Errorf("exit code %d after two signals, want 0 or 130", code)
	}
	n.Start()
	c.AwaitReady(startLimit)
	if lines := n.LogLines("panic"); len(lines) > 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}
