package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// remembered returns the nodes whose log store knows anything of group 1.
func (c *cluster) remembered() (ids []raftyard.NodeID) {
	for _, p := range c.peers {
		n := c.nodes[p.ID]
		if n == nil {
			continue
		}
		if _, ok := n.store.Replica(1); ok {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// TestForgetGroup deletes a group and forgets it, restarts everybody, and creates the
// group anew: nothing of the old one may be seen, nor be found on a disk.
func TestForgetGroup(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	c.create(2, 1)
	c.add(1, 1, "old", "older")
	old := c.incarnation(1, 1)
	ctx := within(t, testTimeout)
	if err := c.nodes[4].ForgetGroup(ctx, 1); !errors.Is(err, ErrInvalid) || !NotApplied(err) {
		t.Fatalf("ForgetGroup of a group that is there = %v, want ErrInvalid", err)
	}
	if err := c.nodes[4].DeleteGroup(ctx, 1); err != nil {
		t.Fatal(err)
	}
	c.close(2)
	if err := c.nodes[4].ForgetGroup(ctx, 1); !errors.Is(err, ErrNoQuorum) || !NotApplied(err) {
		t.Fatalf("ForgetGroup while a node is down = %v, want ErrNoQuorum", err)
	}
	if _, ok := c.nodes[4].registry.Group(1); !ok {
		t.Fatal("the group is forgotten all the same")
	}
	c.open(2, nil)
	c.eventually("node 2 is connected", func() bool { return c.nodes[4].liveNodes()[2] })
	if err := c.nodes[4].ForgetGroup(ctx, 1); err != nil {
		t.Fatalf("ForgetGroup = %v", err)
	}
	c.eventually("no node remembers it", func() bool { return len(c.remembered()) == 0 })
	for _, call := range []func() error{
		func() error { return c.nodes[1].ForgetGroup(ctx, 1) },
		func() error { return c.nodes[1].DeleteGroup(ctx, 1) },
	} {
		if err := call(); !errors.Is(err, ErrGroupNotFound) {
			t.Errorf("a group that is forgotten: %v, want ErrGroupNotFound", err)
		}
	}
	c.createAfterForgetting(old)
}

// createAfterForgetting restarts everybody and creates group 1 anew, while messages of the
// incarnation that is forgotten come in.
func (c *cluster) createAfterForgetting(old raftyard.Incarnation) {
	c.t.Helper()
	for _, p := range c.peers {
		c.close(p.ID)
	}
	left, err := filepath.Glob(filepath.Join(c.dir, "*", replicasName, "1-*"))
	if err != nil || len(left) > 0 {
		c.t.Errorf("%q are left on disks, %v", left, err)
	}
	for _, p := range c.peers {
		c.open(p.ID, nil)
	}
	late := envelopeTo(1, old, 1)
	flood := func() {
		for _, n := range c.nodes {
			n.strangeMessage(&late)
		}
	}
	flood()
	c.create(1, 2, 3, 4)
	flood()
	c.add(1, 1, "new")
	for id := range raftyard.NodeID(4) {
		c.wantWords(id+1, 1, "new")
	}
	if in := c.incarnation(1, 1); in == old {
		c.t.Error("it is the old incarnation")
	}
}

// TestForgetWaitsForWhatIsStored has a node fail to delete what the group stored.
func TestForgetWaitsForWhatIsStored(t *testing.T) {
	c := newCluster(t, 2)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: nodeIDs(2)})
	c.failDestroy.Store(1 << 20)
	if err := c.nodes[1].DeleteGroup(within(t, testTimeout), 1); err != nil {
		t.Fatal(err)
	}
	err := c.nodes[1].ForgetGroup(within(t, 500*time.Millisecond), 1)
	if !errors.Is(err, ErrTimeout) || !NotApplied(err) {
		t.Fatalf("ForgetGroup = %v, want ErrTimeout", err)
	}
	c.failDestroy.Store(0)
	if err := c.nodes[1].ForgetGroup(within(t, testTimeout), 1); err != nil {
		t.Errorf("ForgetGroup when all is deleted = %v", err)
	}
	c.eventually("no node remembers it", func() bool { return len(c.remembered()) == 0 })
}

// TestTombstoneOfAForgottenGroup: a node that could not be told that a group is forgotten
// finds it out, also when it has been restarted.
func TestTombstoneOfAForgottenGroup(t *testing.T) {
	net := transport.NewMemory(9)
	c := newMemoryCluster(t, 3, net)
	c.create(1, 1, 2, 3)
	ctx := within(t, testTimeout)
	if err := c.nodes[1].DeleteGroup(ctx, 1); err != nil {
		t.Fatal(err)
	}
	rec, _ := c.nodes[1].registry.Group(1)
	if err := c.nodes[1].awaitNothing(ctx, &rec); err != nil {
		t.Fatal(err)
	}
	c.moveLeader(0, 1)
	c.cutOff(net, 3, 1, 2)
	// What ForgetGroup does next, when node 3 has just gone.
	res, err := c.nodes[1].command(ctx, registry.EncodeForgetGroup(registry.ForgetGroup{
		ID: 1, Incarnation: rec.Incarnation,
	}))
	if err != nil {
		t.Fatalf("%v, %v", res.Code, err)
	}
	c.nodes[1].dropTombstones(within(t, time.Second), 1)
	if got := fmt.Sprint(c.remembered()); got != "[3]" {
		t.Errorf("nodes %s remember the group, want node 3 alone", got)
	}
	c.nodes[3].forgetTombstones(within(t, 100*time.Millisecond))
	if err := c.nodes[3].lifecycle.settle(ctx); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.remembered()); got != "[3]" {
		t.Errorf("without the registry: nodes %s remember the group, want node 3", got)
	}
	c.close(3)
	net.HealAll()
	c.open(3, nil)
	c.eventually("node 3 forgets it", func() bool {
		c.nodes[3].forgetTombstones(within(t, time.Second))
		return len(c.remembered()) == 0
	})
}

// TestForgetWithoutARemovedNode: a node that was removed while it was down had a replica
// of a group that was deleted meanwhile. Nobody can ask it any more, and nobody need.
func TestForgetWithoutARemovedNode(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.close(3)
	n := c.nodes[1]
	c.eventually("node 3 is not live", func() bool { return !n.liveNodes()[3] })
	err := n.DeleteGroup(within(t, 2*time.Second), 1)
	if err != nil && !errors.Is(err, ErrNotReached) {
		t.Fatal(err)
	}
	if err = n.ForgetGroup(within(t, testTimeout), 1); !errors.Is(err, ErrNoQuorum) {
		t.Fatalf("ForgetGroup while node 3 is a member = %v, want ErrNoQuorum", err)
	}
	if _, err = n.RemoveNode(within(t, testTimeout), 3, true); err != nil {
		t.Fatal(err)
	}
	c.eventually("node 3 is removed", func() bool { return c.isGone(1, 3) })
	if err = n.ForgetGroup(within(t, testTimeout), 1); err != nil {
		t.Errorf("ForgetGroup when node 3 is removed = %v", err)
	}
}
