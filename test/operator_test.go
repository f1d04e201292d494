//go:build unix

package test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A life is what an operator does with a cluster in the course of time.
type life struct {
	c     *cluster.Cluster
	load  *load
	where placed // of the groups that are written to
	begun time.Time
}

// TestOperatorsLife begins with three nodes, lets two more join, moves groups to them,
// drains one and replaces its disk, removes one for good, gives all others new addresses
// at once, and deletes a group while a node is down: under writes, none of which may be
// lost, and without ever typing the id of a replica. In the end all is where it is
// wanted, and nothing else is anywhere.
func TestOperatorsLife(t *testing.T) {
	x := &life{c: cluster.New(t, cluster.Config{}), where: make(placed), begun: time.Now()}
	x.c.Start()
	groups := groupIDs(cluster.Sized(4, 16))
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries = 100 // some members begin with a snapshot
	createGroups(t, x.c.Nodes(), groups, spec)
	four, five := x.c.Add(), x.c.Add()
	x.load = newLoad(loadSpec{
		nodes: x.c.Nodes(), groups: groups, clients: 8, keys: 50_000, size: 100,
	})
	x.load.start(t)
	x.load.grant(1, 1)
	x.step(t, "three nodes")

	x.join(t, four, five)
	x.move(t, groups)
	x.drain(t, x.c.Node(2))
	x.replaceDisk(t, x.c.Node(2))
	x.leave(t, x.c.Node(1))
	x.moveHouse(t)
	x.deleteWithoutOne(t, five)

	x.load.end()
	t.Log(x.load.tally)
	x.load.tally.check(t)
	x.load.tally.only(t, client.CodeNotReady, client.CodeNoLeader, client.CodeNotLeader,
		client.CodeNodeRemoved, client.CodeClosing, client.CodeTimeout, client.CodeOutcomeUnknown,
		"connection_refused", "connection_lost")
	x.wantOrder(t)
	x.load.verifyLists(t, x.c.Nodes()[1:])
	for _, g := range groups {
		verifyHashes(t, x.members(g), []raftyard.GroupID{g})
	}
	verifyHashes(t, x.c.Nodes()[1:], []raftyard.GroupID{raftyard.SystemGroup})
	verifyDisks(t, x.c, x.where)
}

// step waits until the groups go on, and says what was done.
func (x *life) step(t *testing.T, what string) {
	t.Helper()
	x.load.awaitApplied(t, 50)
	t.Logf("%6.1fs %s", time.Since(x.begun).Seconds(), what)
}

// members returns the nodes that have a replica of a group.
func (x *life) members(g raftyard.GroupID) []*cluster.Node {
	var nodes []*cluster.Node
	for _, id := range x.where[g] {
		nodes = append(nodes, x.c.Node(id))
	}
	return nodes
}

// running returns the nodes that run.
func (x *life) running() []*cluster.Node {
	return slices.DeleteFunc(x.c.Nodes(), func(n *cluster.Node) bool { return !n.Running() })
}

// join lets two nodes join: one that runs already, and one that does not run yet.
func (x *life) join(t *testing.T, early, late *cluster.Node) {
	t.Helper()
	early.Start()
	cluster.Eventually(t, startLimit, "it says that it waits to be let in", func() error {
		a := early.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/readyz"})
		return want(a.Why == client.CodeNotReady, "%v", a)
	})
	for _, n := range []*cluster.Node{early, late} {
		if a := x.c.Node(2).PutNode(t.Context(), n); a.Status != http.StatusCreated {
			t.Fatalf("node %d is to join: %d %v", n.ID(), a.Status, a)
		}
	}
	late.Start()
	x.c.AwaitReady(startLimit)
	x.step(t, "two nodes have joined")
}

// move moves each group to other nodes, and at least one replica to those that are new.
func (x *life) move(t *testing.T, groups []raftyard.GroupID) {
	t.Helper()
	sets := [][]raftyard.NodeID{{2, 3, 4}, {1, 2, 5}, {1, 4, 5}, {2, 4, 5}}
	err := eachGroup(groups, 4, func(i int, g raftyard.GroupID) error {
		m := client.Members{Voters: sets[i%len(sets)]}
		return x.c.Nodes()[i%5].SetMembers(t.Context(), g, m, moveLimit).Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range groups {
		x.where[g] = sets[i%len(sets)]
	}
	x.wantPlaced(t)
	x.step(t, "the groups have moved")
}

func (x *life) wantPlaced(t *testing.T) {
	t.Helper()
	for g, voters := range x.where {
		awaitPlaced(t, x.running(), g, voters)
	}
}

// drain has a node lead nothing.
func (x *life) drain(t *testing.T, n *cluster.Node) {
	t.Helper()
	if a := x.c.Node(4).Drain(t.Context(), n.ID(), moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	x.wantLeadless(t, n)
	x.step(t, fmt.Sprintf("node %d is drained", n.ID()))
	x.wantLeadless(t, n)
}

// wantLeadless checks that a node is drained and leads nothing.
func (x *life) wantLeadless(t *testing.T, n *cluster.Node) {
	t.Helper()
	st, err := x.c.Node(5).NodeStatus(t.Context(), n.ID())
	if err != nil {
		t.Fatal(err)
	}
	led, err := n.Metric(t.Context(), "raftyard_leaders")
	if err != nil {
		t.Fatal(err)
	}
	if st.State != "drained" || st.Leaders != 0 || led != 0 {
		t.Errorf("node %d is %s and leads %d groups; it says itself: %v",
			n.ID(), st.State, st.Leaders, led)
	}
}

// replaceDisk starts a node with an empty disk. Its replicas must come back under new
// ids, by themselves.
func (x *life) replaceDisk(t *testing.T, n *cluster.Node) {
	t.Helper()
	old := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for g, voters := range x.where {
		if slices.Contains(voters, n.ID()) {
			old[g] = raftOf(t, n, g).Replica.Replica
		}
	}
	terminate(t, n)
	n.Wipe()
	x.step(t, fmt.Sprintf("node %d has an empty disk", n.ID()))
	n.Start()
	x.c.AwaitReady(startLimit)
	for g, before := range old {
		awaitReplaced(t, n, g, before)
	}
	x.wantPlaced(t)
	for g := range old {
		verifyHashes(t, x.members(g)[:1], []raftyard.GroupID{g})
	}
	x.wantLeadless(t, n)
	if a := n.Undrain(t.Context(), n.ID(), moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	x.step(t, fmt.Sprintf("node %d has got its %d replicas again", n.ID(), len(old)))
}

// awaitReplaced waits until a node has a later replica of a group than before, and that
// has caught up.
func awaitReplaced(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, before raftyard.ReplicaID,
) {
	t.Helper()
	what := fmt.Sprintf("group %d is there again on node %d", g, n.ID())
	cluster.Eventually(t, moveLimit, what, func() error {
		r, err := n.Raft(t.Context(), g)
		if err != nil {
			return err
		}
		got, err := n.Group(t.Context(), g)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(got.Members, func(m client.Member) bool { return m.Node == n.ID() })
		return cmp.Or(
			want(r.Replica.Replica > before, "it has replica %d, before it had %d",
				r.Replica.Replica, before),
			want(r.Fault == "" && r.Applied > 0, "applied %d, fault %q", r.Applied, r.Fault),
			want(i >= 0 && got.Members[i].Role == "voter", "members %v", got.Members),
		)
	})
}

// leave has a node leave for ever. Its replicas must go elsewhere by themselves.
func (x *life) leave(t *testing.T, n *cluster.Node) {
	t.Helper()
	asked := x.c.Node(3)
	if a := asked.Remove(t.Context(), n.ID(), false); a.Why != client.CodeNodeInUse {
		t.Errorf("remove a node that is in use: %v", a)
	}
	if a := asked.Drain(t.Context(), n.ID(), moveLimit); a.Error() != nil {
		t.Fatal(a)
	}
	if a := asked.Remove(t.Context(), n.ID(), false); a.Error() != nil {
		t.Fatal(a)
	}
	cluster.Eventually(t, moveLimit, "the node is removed", func() error {
		st, err := asked.NodeStatus(t.Context(), n.ID())
		return cmp.Or(err, want(st.State == "removed", "it is %s: %s", st.State, st.Problem))
	})
	for g := range x.where {
		got, err := asked.Group(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Voters) != 3 || slices.Contains(got.Voters, n.ID()) {
			t.Errorf("group %d has the voters %v", g, got.Voters)
		}
		x.where[g] = got.Voters
	}
	x.step(t, fmt.Sprintf("node %d has left", n.ID()))
	terminate(t, n)
	x.wantPlaced(t)
	if a := asked.PutNode(t.Context(), n); a.Why != client.CodeNodeRemoved {
		t.Errorf("node %d is to join again: %v", n.ID(), a)
	}
}

// moveHouse gives all nodes other addresses at once. Each knows its own, and those of the
// nodes that have founded the cluster.
func (x *life) moveHouse(t *testing.T) {
	t.Helper()
	nodes := x.running()
	terminate(t, nodes...)
	for _, n := range nodes {
		was := n.PeerAddr()
		n.Move()
		for _, other := range nodes {
			other.Configure(was, n.PeerAddr())
		}
	}
	for _, n := range nodes {
		n.Start()
	}
	x.c.AwaitReady(startLimit)
	x.wantPlaced(t)
	for _, n := range nodes {
		what := fmt.Sprintf("node %d is known where it is", n.ID())
		cluster.Eventually(t, startLimit, what, func() error {
			st, err := nodes[0].NodeStatus(t.Context(), n.ID())
			return cmp.Or(err, want(st.Live && st.Peer == n.PeerAddr(),
				"it is known at %s, live %t: %s", st.Peer, st.Live, st.LastError))
		})
	}
	x.step(t, "all nodes have moved")
}

// deleteWithoutOne deletes a group while one of its nodes is down, and creates one of the
// same id.
func (x *life) deleteWithoutOne(t *testing.T, away *cluster.Node) {
	t.Helper()
	const g = 1000
	createGroups(t, x.running()[:1], []raftyard.GroupID{g}, kvGroup(3, 4, 5))
	if err := put(t, x.c.Node(2), g, "old", []byte("value")); err != nil {
		t.Fatal(err)
	}
	away.Kill()
	if a := x.c.Node(2).Delete(t.Context(), g); a.Error() != nil {
		t.Fatal(a)
	}
	createGroups(t, x.running()[:1], []raftyard.GroupID{g}, kvGroup(2, 3, 4))
	if err := put(t, x.c.Node(2), g, "new", []byte("value")); err != nil {
		t.Fatal(err)
	}
	away.Start()
	x.c.AwaitReady(startLimit)
	x.where[g] = []raftyard.NodeID{2, 3, 4}
	x.wantPlaced(t)
	for _, n := range x.running() {
		value, err := readKey(t.Context(), n, g, "old", client.Linearizable)
		if err = cmp.Or(err, want(value == nil, "it has a key of the group before")); err != nil {
			t.Errorf("node %d: %v", n.ID(), err)
		}
	}
	x.step(t, "a group is deleted and created again while a node was down")
}

// wantOrder waits until every node finds all as it is wanted, and nothing to complain of.
func (x *life) wantOrder(t *testing.T) {
	t.Helper()
	for _, n := range x.running() {
		what := fmt.Sprintf("node %d finds all in order", n.ID())
		cluster.Eventually(t, moveLimit, what, func() error {
			var st client.Status
			if err := n.Get(t.Context(), "/v1/status", nil, &st); err != nil {
				return err
			}
			states := make(map[raftyard.NodeID]string)
			for i := range st.Nodes {
				states[st.Nodes[i].ID] = st.Nodes[i].State + st.Nodes[i].Problem
			}
			all := map[raftyard.NodeID]string{2: "active", 3: "active", 4: "active", 5: "active"}
			return cmp.Or(
				want(st.Ready, "it is not ready: %v", st.Checks),
				want(len(st.Problems) == 0, "there are problems: %v", st.Problems),
				want(maps.Equal(states, all), "the nodes are %v", states),
				want(st.Groups.Total == len(x.where), "there are %d groups", st.Groups.Total),
			)
		})
	}
}
