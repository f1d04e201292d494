//go:build unix

package test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// probeLimit is how long a supervisor or a load balancer waits for an answer.
const probeLimit = time.Second

// probe asks a node as a supervisor or a load balancer does, and wants it to be well, or to
// name one check that fails.
func probe(t *testing.T, n *cluster.Node, path, fails string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), probeLimit)
	defer cancel()
	a := n.Do(ctx, cluster.Request{Method: http.MethodGet, Path: path})
	switch {
	case fails == "":
		return want(a.Status == http.StatusOK, "node %d: %s = %d %v, want 200",
			n.ID(), path, a.Status, a)
	case a.Problem == nil:
		return want(false, "node %d: %s = %d %v, want it to fail", n.ID(), path, a.Status, a)
	}
	return want(a.Status == http.StatusServiceUnavailable && a.Why == client.CodeNotReady &&
		strings.HasPrefix(a.Problem.Detail, fails+": "), "node %d: %s = %d %v, want it for %s",
		n.ID(), path, a.Status, a, fails)
}

// wantWell wants a node to be well. Like a supervisor it asks three times before it says that
// it is not: the processor may have been somebody else's for a second.
func wantWell(t *testing.T, n *cluster.Node, path string) {
	t.Helper()
	var err error
	for range 3 {
		if err = probe(t, n, path, ""); err == nil {
			return
		}
	}
	t.Error(err)
}

// TestProbes asks nodes that are well, without their majority, and starting with many groups
// whether they live and are ready. A process that can work lives, so that nobody kills it
// for what a restart does not mend; one that has started stays ready without a majority,
// and one that has not says what it waits for. Which groups have no leader is listed.
func TestProbes(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := groupIDs(cluster.Sized(30, 1_000))
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	for _, n := range c.Nodes() {
		wantWell(t, n, "/livez")
		wantWell(t, n, "/readyz")
	}

	alone := c.Node(1)
	c.Kill(c.Node(2), c.Node(3))
	cluster.Eventually(t, startLimit, "groups without a leader are listed", func() error {
		listed, err := problems(t, alone, "no_leader")
		if err != nil {
			return err
		}
		return want(listed == len(groups), "%d groups of %d are listed", listed, len(groups))
	})
	wantWell(t, alone, "/livez")
	wantWell(t, alone, "/readyz")

	alone.Kill()
	alone.Start()
	asked := 0
	cluster.Eventually(t, startLimit, "the node says what it waits for", func() error {
		a := alone.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/livez"})
		if a.Status == 0 && asked == 0 {
			return a.Err // it does not listen yet
		}
		asked++
		if a.Status != http.StatusOK {
			t.Errorf("a node that starts: /livez = %v, want 200", a)
		}
		return probe(t, alone, "/readyz", "registry")
	})
	t.Logf("asked %d times while it started with %d groups", asked, len(groups))

	c.Node(2).Start()
	c.AwaitReady(startLimit)
	wantWell(t, alone, "/livez")
	c.Node(3).Start()
	c.AwaitReady(startLimit)
	cluster.Eventually(t, settleLimit, "no group has a problem", func() error {
		listed, err := problems(t, alone, "any")
		if err != nil {
			return err
		}
		return want(listed == 0, "%d groups have one", listed)
	})
}

// problems returns how many groups, but for the system group, a node lists with a problem.
func problems(t *testing.T, n *cluster.Node, word string) (int, error) {
	t.Helper()
	count := 0
	query := map[string][]string{"problem": {word}, "limit": {"1000"}}
	for {
		var page client.Groups
		if err := n.Get(t.Context(), "/v1/groups", query, &page); err != nil {
			return 0, err
		}
		for i := range page.Groups {
			if page.Groups[i].ID != raftyard.SystemGroup {
				count++
			}
		}
		if page.NextCursor == "" {
			return count, nil
		}
		query["cursor"] = []string{page.NextCursor}
	}
}
