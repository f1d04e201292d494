//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// settleLimit is how long a cluster that is left in peace may take until all its
// replicas are equal.
const settleLimit = 60 * time.Second

// A verdict collects what is wrong. It is safe for concurrent use.
type verdict struct {
	mu    sync.Mutex
	wrong int
	first []string
}

func (v *verdict) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wrong++
	if len(v.first) < 10 {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) report(t *testing.T, what string) {
	t.Helper()
	for _, text := range v.first {
		t.Error(text)
	}
	if v.wrong > 0 {
		t.Fatalf("%s: %d wrong", what, v.wrong)
	}
}

// verifyLists reads every key back through each of the nodes, in lists. The load
// must have ended, or the ledgers would not stand still. The test may have written
// others itself.
func (l *load) verifyLists(t *testing.T, nodes []*cluster.Node, others ...string) {
	t.Helper()
	var bad verdict
	for _, n := range nodes {
		seen := make([]bool, len(l.keys))
		for _, g := range l.groups {
			err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
				if slices.Contains(others, string(item.Key)) {
					return
				}
				i, err := l.index(string(item.Key))
				if err != nil || l.groupOf(i) != g {
					bad.add("node %d: group %d: %v: %s", n.ID(), g, err, item.Key)
					return
				}
				seen[i] = true
				l.judge(&bad, n, i, item.Value)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range seen {
			if !seen[i] {
				l.judge(&bad, n, i, nil)
			}
		}
	}
	bad.report(t, fmt.Sprintf("%d keys listed through %d nodes", len(l.keys), len(nodes)))
}

// judge compares what a node says of a key with the key's ledger. No value: the
// key is not there.
func (l *load) judge(bad *verdict, n *cluster.Node, i int, value []byte) {
	var v version
	if value != nil {
		var err error
		if v, err = l.versionOf(i, value); err != nil {
			bad.add("node %d: %s: %v", n.ID(), l.name(i), err)
			return
		}
	}
	if k := &l.keys[i]; !k.allows(v) {
		bad.add("node %d: group %d: %s is at version %+v; acknowledged is %+v, unknown are %+v",
			n.ID(), l.groupOf(i), l.name(i), v, k.acked, k.maybe)
	}
}

// verifyKeys reads every key back by itself, linearizably, through the nodes in
// turn.
func (l *load) verifyKeys(t *testing.T, nodes []*cluster.Node) {
	t.Helper()
	var bad verdict
	var next atomic.Int64
	var wg sync.WaitGroup
	for range l.clients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(l.keys); i = int(next.Add(1)) - 1 {
				n := nodes[i%len(nodes)]
				value, err := readKey(t.Context(), n, l.groupOf(i), l.name(i), client.Linearizable)
				if err != nil {
					bad.add("node %d: %s: %v", n.ID(), l.name(i), err)
					continue
				}
				l.judge(&bad, n, i, value)
			}
		})
	}
	wg.Wait()
	bad.report(t, fmt.Sprintf("%d keys read one by one", len(l.keys)))
}

// readKey reads one key; nil: it is not there.
func readKey(
	ctx context.Context, n *cluster.Node, g raftyard.GroupID, key string, how client.Consistency,
) ([]byte, error) {
	a := n.Do(ctx, cluster.Request{
		Method: http.MethodGet, Path: cluster.KeyPath(g, key),
		Query: url.Values{"consistency": {string(how)}},
	})
	if a.Why == client.CodeKeyNotFound {
		return nil, nil
	}
	if err := a.Error(); err != nil {
		return nil, err
	}
	return append([]byte{}, a.Body...), nil
}

// verifyHashes waits until the replicas of each group on the nodes have applied
// the same index, and compares what they then hold.
func verifyHashes(t *testing.T, nodes []*cluster.Node, groups []raftyard.GroupID) {
	t.Helper()
	for _, g := range groups {
		what := fmt.Sprintf("group %d equal everywhere", g)
		cluster.Eventually(t, settleLimit, what, func() error {
			return compareHashes(t, nodes, g)
		})
	}
}

func compareHashes(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) error {
	first, err := nodes[0].Hash(t.Context(), g)
	if err != nil {
		return err
	}
	for _, n := range nodes[1:] {
		h, err := n.Hash(t.Context(), g)
		if err != nil {
			return err
		}
		if h.Index != first.Index {
			return fmt.Errorf("node %d is at index %d, node %d at %d",
				first.Node, first.Index, h.Node, h.Index)
		}
		if h.Hash != first.Hash {
			t.Fatalf("group %d at index %d: the hash is %s on node %d, %s on node %d",
				g, h.Index, first.Hash, first.Node, h.Hash, h.Node)
		}
	}
	return nil
}

// groupIDs returns the ids 1 to n.
func groupIDs(n int) []raftyard.GroupID {
	ids := make([]raftyard.GroupID, n)
	for i := range ids {
		ids[i] = raftyard.GroupID(i + 1)
	}
	return ids
}

// createGroups creates groups, a few at a time, through the nodes in turn.
func createGroups(
	t *testing.T, nodes []*cluster.Node, groups []raftyard.GroupID, spec client.Spec,
) time.Duration {
	t.Helper()
	begun := time.Now()
	err := eachGroup(groups, 16, func(i int, g raftyard.GroupID) error {
		a := nodes[i%len(nodes)].Create(t.Context(), g, spec)
		if err := a.Error(); err != nil {
			return fmt.Errorf("create group %d: %w", g, err)
		}
		if a.Status != http.StatusCreated {
			return fmt.Errorf("create group %d: status %d, want 201", g, a.Status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(begun)
}

// eachGroup calls do for every group, for at most so many at a time, and returns
// all errors.
func eachGroup(
	groups []raftyard.GroupID, atOnce int, do func(i int, g raftyard.GroupID) error,
) error {
	errs := make([]error, len(groups))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(atOnce, len(groups)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(groups); i = int(next.Add(1)) - 1 {
				errs[i] = do(i, groups[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// kvGroup is a group of keys on the nodes.
func kvGroup(voters ...raftyard.NodeID) client.Spec {
	return client.Spec{Kind: "kv", Voters: voters}
}
