package node

import (
	"fmt"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestOwnDecisionsAreSeen asks the node that had something decided, wherever the registry
// is led.
func TestOwnDecisionsAreSeen(t *testing.T) {
	c := newCluster(t, 3)
	c.leader(0)
	for i := range 30 {
		at := raftyard.NodeID(i%3 + 1)
		label := map[string]string{"round": fmt.Sprint(i)}
		spec := NodeSpec{ID: 9, Peer: "127.0.0.1:9", Labels: label}
		if _, err := c.nodes[at].PutNode(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		rec, _ := c.nodes[at].registry.Node(9)
		if rec.Labels["round"] != label["round"] {
			t.Fatalf("node %d has let node 9 be labelled %v, and says %v", at, label, rec.Labels)
		}
	}
}
