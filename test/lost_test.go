//go:build unix

package test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A loss is a cluster with groups on three of four nodes, of which one loses data.
type loss struct {
	*founded
	node   *cluster.Node
	groups []raftyard.GroupID
	older  string // a copy of the node's directory, from before the keys were written
}

// lostKeys is how many keys of each group the node has acknowledged and then loses.
const lostKeys = 50

func newLoss(t *testing.T, tolerate ...string) *loss {
	t.Helper()
	l := &loss{
		founded: found(t, cluster.Config{Nodes: 4, Tolerate: tolerate}), groups: groupIDs(3),
		older: filepath.Join(t.TempDir(), "older"),
	}
	l.node = l.Node(3)
	createGroups(t, l.Nodes(), l.groups[1:], kvGroup(1, 2, 3))
	verifyHashes(t, l.Nodes()[:3], l.groups)
	terminate(t, l.node)
	if err := os.CopyFS(l.older, os.DirFS(l.node.Dir())); err != nil {
		t.Fatal(err)
	}
	l.node.Start()
	l.AwaitReady(startLimit)
	for _, g := range l.groups {
		for i := range lostKeys {
			key := fmt.Sprintf("key-%02d", i)
			if err := put(t, l.node, g, key, []byte("value")); err != nil {
				t.Fatal(err)
			}
		}
	}
	verifyHashes(t, l.Nodes()[:3], l.groups)
	return l
}

// stop stops the node, and lets the others find leaders.
func (l *loss) stop(t *testing.T) {
	t.Helper()
	terminate(t, l.node)
	awaitLeader(t, l.Cluster)
	l.remember(t)
}

// isBack waits until the node has come back by itself, with other replicas, and checks
// that nothing is lost, also when one of those is gone that had the rest.
func (l *loss) isBack(t *testing.T, old map[raftyard.GroupID]raftyard.ReplicaID) {
	t.Helper()
	begun := time.Now()
	l.AwaitReady(startLimit)
	for _, g := range l.groups {
		awaitReplaced(t, l.node, g, old[g])
		awaitPlaced(t, l.Nodes(), g, []raftyard.NodeID{1, 2, 3})
	}
	t.Logf("node 3 has its replicas again after %.1fs", time.Since(begun).Seconds())
	l.undisturbed(t)
	verifyHashes(t, l.Nodes()[:3], l.groups)
	l.Kill(l.Node(2))
	for _, n := range []*cluster.Node{l.Node(1), l.node, l.Node(4)} {
		for _, g := range l.groups {
			l.wantLostKeys(t, n, g)
		}
	}
	l.Node(2).Start()
	l.AwaitReady(startLimit)
	verifyDisks(t, l.Cluster, placed{1: {1, 2, 3}, 2: {1, 2, 3}, 3: {1, 2, 3}})
}

// wantLostKeys checks that a node finds all keys that were acknowledged.
func (l *loss) wantLostKeys(t *testing.T, n *cluster.Node, g raftyard.GroupID) {
	t.Helper()
	keys := 0
	cluster.Eventually(t, settleLimit, "the group is listed", func() error {
		keys = 0
		return n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
			if strings.HasPrefix(string(item.Key), "key-") {
				keys++
			}
		})
	})
	if keys != lostKeys {
		t.Errorf("node %d: group %d has %d of %d keys", n.ID(), g, keys, lostKeys)
	}
}

// replicas returns the ids of the node's replicas.
func (l *loss) replicas(t *testing.T) map[raftyard.GroupID]raftyard.ReplicaID {
	t.Helper()
	ids := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for _, g := range l.groups {
		ids[g] = raftOf(t, l.node, g).Replica.Replica
	}
	return ids
}

// TestWipedNode starts a node with an empty directory. It has forgotten what it had
// acknowledged, so its replicas must not come back; others must, under new ids, by
// themselves, and without disturbing anybody.
func TestWipedNode(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	l := newLoss(t)
	old := l.replicas(t)
	l.stop(t)
	l.node.Wipe()
	l.node.Start()
	l.isBack(t, old)
}

// TestOlderCopy starts a node with an older copy of its directory. That must be noticed
// and said, and the copy must not be heard; an empty directory must do.
func TestOlderCopy(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	l := newLoss(t)
	old := l.replicas(t)
	l.stop(t)
	l.node.Wipe()
	if err := os.CopyFS(l.node.Dir(), os.DirFS(l.older)); err != nil {
		t.Fatal(err)
	}
	l.node.Start()
	cluster.Eventually(t, startLimit, "it says what is wrong", func() error {
		a := l.node.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/readyz"})
		return want(a.Why == client.CodeNotReady && strings.Contains(a.String(), "copy"),
			"%v", a)
	})
	lapse(t, 3*time.Second, 3*time.Second+time.Millisecond)
	if !l.node.Running() {
		t.Error("node 3 has ended")
	}
	for _, g := range l.groups {
		if a := l.node.Do(t.Context(), cluster.Request{
			Method: http.MethodGet, Path: cluster.KeyPath(g, "key-00"), Timeout: time.Second,
		}); a.Error() == nil {
			t.Errorf("it answers from what it has: %v", a)
		}
		l.wantLostKeys(t, l.Node(1), g)
	}
	l.undisturbed(t)
	terminate(t, l.node)
	l.node.Wipe()
	l.node.Start()
	l.isBack(t, old)
}
