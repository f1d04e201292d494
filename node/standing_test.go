package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/node/registry"
)

// TestOlderCopyServesNobody: when the registry has seen a later start of its directory a
// node is not ready, and takes no request.
func TestOlderCopyServesNobody(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	rec, _ := c.nodes[3].registry.Node(3)
	if rec.Boot != 1 {
		t.Fatalf("registered with start %d, want 1", rec.Boot)
	}
	c.close(3)
	rec.Boot = 9
	res, err := c.nodes[1].command(t.Context(), registry.EncodeSetNode(registry.SetNode{Node: rec}))
	if err != nil || res.Node.Boot != 9 {
		t.Fatalf("SetNode = %+v, %v", res, err)
	}
	c.open(3, nil)
	n := c.nodes[3]
	c.eventually("it says what is wrong", func() bool {
		ready, checks := n.Ready()
		return !ready && strings.Contains(checks[2].Detail, "older copy")
	})
	if _, err := n.serving(1); !errors.Is(err, ErrNotReady) {
		t.Errorf("its replica is asked: %v, want ErrNotReady", err)
	}
	if err := n.mustBelong(); err == nil {
		t.Error("it would ask something of the cluster")
	}
	c.add(1, 1, "b")
}
