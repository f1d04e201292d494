package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// leads returns the groups that a node leads, the system group too.
func (c *cluster) leads(id raftyard.NodeID) (groups []raftyard.GroupID) {
	for _, r := range c.nodes[id].allReplicas() {
		if v := r.view.Load(); r.serving() && v.initialized() && v.Leader == r.id {
			groups = append(groups, r.group)
		}
	}
	return groups
}

// toNode2 hands the leadership of a group to node 2.
func (c *cluster) toNode2(g raftyard.GroupID) {
	c.t.Helper()
	if err := c.anyNode().TransferLeader(c.t.Context(), g, 2); err != nil {
		c.t.Fatalf("TransferLeader of group %d = %v", g, err)
	}
}

func TestDrain(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	for g := range raftyard.GroupID(6) {
		c.create(g+1, 1, 2, 3)
		c.toNode2(g + 1)
	}
	c.toNode2(raftyard.SystemGroup)
	st, err := c.nodes[1].DrainNode(t.Context(), 2)
	if err != nil || st.State != "drained" || st.Leaders != 0 || st.Problem != "" {
		t.Fatalf("DrainNode = %+v, %v", st, err)
	}
	if led := c.leads(2); len(led) != 0 {
		t.Errorf("the drained node leads %v", led)
	}
	for _, id := range nodeIDs(1, 3) {
		// Who is to lead is elected when the drained node leads no longer.
		c.eventually(fmt.Sprintf("node %d leads something", id), func() bool {
			return len(c.leads(id)) != 0
		})
	}
	if err = c.nodes[1].TransferLeader(t.Context(), 1, 2); !errors.Is(err, ErrTransfer) {
		t.Errorf("TransferLeader to a drained node = %v, want ErrTransfer", err)
	}
	c.createSpec(Spec{ID: 7, Kind: "list", Voters: nodeIDs(2)}) // it cannot begin elsewhere
	c.create(8, 1, 2)
	for g, seed := range map[raftyard.GroupID]raftyard.NodeID{7: 2, 8: 1} {
		if rec, _ := c.nodes[1].registry.Group(g); rec.Seed != seed {
			t.Errorf("group %d begins on node %d, want %d", g, rec.Seed, seed)
		}
	}
	// It votes and holds data, and stays drained when it starts again.
	c.close(2)
	c.open(2, nil)
	c.awaitReady(2)
	c.close(3)
	c.eventually("somebody else leads without the third", func() bool {
		led := c.leads(2)
		return len(led) == 1 && led[0] == 7
	})
	c.add(1, 1, "a")
	c.wantWords(2, 1, "a")
	// What stays there does not keep DrainNode waiting.
	st, err = c.nodes[1].DrainNode(t.Context(), 2)
	if err != nil || st.Leaders != 1 || st.Problem == "" {
		t.Errorf("DrainNode again = %+v, %v", st, err)
	}
	if st, err = c.nodes[1].UndrainNode(t.Context(), 2); err != nil || st.State != "active" {
		t.Errorf("UndrainNode = %+v, %v", st, err)
	}
	c.toNode2(1)
}

// TestDrainOfTheOnlyVoter: the system group has somebody else vote for it.
func TestDrainOfTheOnlyVoter(t *testing.T) {
	c := newCluster(t, 2)
	c.awaitReady(1, 2)
	if !c.systemIs(1, nodeIDs(1), nodeIDs(2)) {
		t.Fatalf("founded as %+v", c.system(1).Members)
	}
	if _, err := c.nodes[2].DrainNode(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.eventually("the other node votes and leads", func() bool {
		led, _ := c.nodes[2].Leader(raftyard.SystemGroup)
		return c.systemIs(2, nodeIDs(2), nodeIDs(1)) && led == 2
	})
}

// TestDrainGivesUp: with nobody to take over in time the status says what is left, and
// the decision stands.
func TestDrainGivesUp(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.toNode2(1)
	n := c.nodes[1]
	if res, err := n.setNodeState(t.Context(), 3, registry.NodeDrained); err != nil {
		t.Fatal(res, err)
	}
	if _, err := n.setNodeState(t.Context(), 1, registry.NodeDrained); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	st, err := n.DrainNode(ctx, 2)
	if err != nil || st.Leaders != 1 || st.Problem == "" {
		t.Errorf("DrainNode = %+v, %v", st, err)
	}
	if _, err := n.DrainNode(t.Context(), 9); !errors.Is(err, ErrNodeNotFound) {
		t.Errorf("DrainNode of no node = %v, want ErrNodeNotFound", err)
	}
}
