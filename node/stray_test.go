package node

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// cutOff cuts a node off from others, both ways, and waits until the others have noticed.
func (c *cluster) cutOff(net *transport.Memory, id raftyard.NodeID, others ...raftyard.NodeID) {
	c.t.Helper()
	for _, o := range others {
		net.CutBoth(id, o)
	}
	for _, o := range others {
		c.eventually("the cut is noticed", func() bool { return !c.nodes[o].liveNodes()[id] })
	}
}

// TestNobodyIsLeftWhomItKnows removes a voter and a learner that are cut off, and moves
// their groups away from everybody whom they know. Connected again with those alone, they
// must go: those have tombstones that know who is a member now.
func TestNobodyIsLeftWhomItKnows(t *testing.T) {
	net := transport.NewMemory(5)
	c := newMemoryCluster(t, 6, net)
	c.create(1, 1, 2, 3)
	c.createSpec(Spec{
		ID: 2, Kind: "list", Voters: []raftyard.NodeID{1}, Learners: []raftyard.NodeID{3},
	})
	c.add(1, 1, "a")
	c.add(1, 2, "b")
	c.eventually("the learner has a state", func() bool {
		r := c.nodes[3].replica(2)
		return r != nil && r.view.Load().initialized()
	})
	c.moveLeader(0, 1)
	c.cutOff(net, 3, 1, 2, 4, 5, 6)
	ctx := within(t, testTimeout)
	for g := range raftyard.GroupID(2) {
		for _, m := range []Members{
			{Voters: []raftyard.NodeID{4, 5}}, {Voters: []raftyard.NodeID{5, 6}},
		} {
			if _, err := c.nodes[5].SetMembers(ctx, g+1, m, true); err != nil {
				t.Fatalf("SetMembers of group %d = %v", g+1, err)
			}
		}
	}
	net.Heal(1, 3)
	net.Heal(3, 1)
	for g := range raftyard.GroupID(2) {
		c.eventually(fmt.Sprintf("the replica of group %d goes", g+1), func() bool {
			return c.nodes[3].replica(g+1) == nil
		})
	}
	c.wantWords(1, 1, "a")
	c.wantWords(1, 2, "b")
}

// TestStoppedReplicaThatIsRemoved moves a group away from a node whose replica is stopped
// and hears nothing.
func TestStoppedReplicaThatIsRemoved(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	r := c.nodes[3].replica(1)
	c.nodes[3].stopReplica(r, fmt.Errorf("%w: for a test", ErrFaulty))
	<-r.gone
	m := Members{Voters: []raftyard.NodeID{1, 2, 4}}
	if _, err := c.nodes[1].SetMembers(within(t, testTimeout), 1, m, true); err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	c.eventually("the stopped replica goes", func() bool { return c.nodes[3].replica(1) == nil })
}

func TestProofOfRemoval(t *testing.T) {
	members := func(ids ...raftyard.ReplicaID) (list []MemberStatus) {
		for _, id := range ids {
			list = append(list, MemberStatus{Replica: id, Node: 1, Role: group.Voter.String()})
		}
		return list
	}
	tests := []struct {
		name string
		st   holding
		want bool
	}{
		{"nothing is there", holding{}, false},
		{"it is a member", holding{Epoch: 9, Next: 8, Members: members(3, 5)}, false},
		{"it was removed", holding{Epoch: 9, Next: 8, Members: members(3, 7)}, true},
		{"at the same epoch", holding{Epoch: 6, Next: 8, Members: members(3, 7)}, false},
		{"earlier", holding{Epoch: 5, Next: 8, Members: members(3, 4)}, false},
		{"it is yet to come", holding{Epoch: 9, Next: 5, Members: members(3, 4)}, false},
		{"nobody knows the members", holding{Epoch: 9, Next: 8}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := survey{answers: map[raftyard.NodeID]holding{1: {}, 2: tt.st}}
			epoch, proven := s.provesRemoved(5, 6)
			if proven != tt.want || proven && epoch != tt.st.Epoch {
				t.Errorf("provesRemoved = %d, %t; want %t", epoch, proven, tt.want)
			}
		})
	}
}

// envelopeTo is a message to a replica on node 1 from one on node 2.
func envelopeTo(
	g raftyard.GroupID, in raftyard.Incarnation, to raftyard.ReplicaID,
) transport.Envelope {
	return transport.Envelope{
		Group: g, Incarnation: in, Epoch: 1,
		From: transport.Endpoint{Node: 2, Replica: 77},
		To:   transport.Endpoint{Node: 1, Replica: to},
		Message: &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(77)), To: new(uint64(to)),
			Term: new(uint64(1)),
		},
	}
}

// TestFloodOfMadeUpMessages sends what nobody can use, in great numbers: nothing of it may
// last, and few answers go back.
func TestFloodOfMadeUpMessages(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	c.create(2, 1)
	if err := c.nodes[1].DeleteGroup(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[1]
	c.eventually("the deleted group is purged", func() bool { return !n.purging(2) })
	in := c.incarnation(1, 1)
	dead := c.incarnation(1, 2)
	wrong := in
	wrong[0]++
	before := len(n.store.Replicas())
	h := &handler{n}
	from := c.nodes[2].identity()
	c.eventually("node 1 listens to node 2", func() bool { return n.accept(from) == nil })
	for i := range 50_000 {
		h.HandleEnvelopes(from, []transport.Envelope{
			envelopeTo(raftyard.GroupID(i+100), in, 2), // no such group
			envelopeTo(1, wrong, raftyard.ReplicaID(i+1)),
			envelopeTo(2, dead, raftyard.ReplicaID(i+1)),
		})
	}
	if err := n.lifecycle.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(n.store.Replicas()); got != before {
		t.Errorf("%d replicas in the store, want %d as before", got, before)
	}
	n.lifecycle.mu.Lock()
	queued := len(n.lifecycle.creates)
	n.lifecycle.mu.Unlock()
	if queued != 0 {
		t.Errorf("%d creations are queued", queued)
	}
	if got := n.Metrics().NoticesSent; got == 0 || got > 1000 {
		t.Errorf("%d notices were sent for 100000 messages, want a few", got)
	}
	n.notices.mu.Lock()
	remembered := len(n.notices.of[2].said)
	n.notices.mu.Unlock()
	if remembered > maxSayings {
		t.Errorf("%d notices are remembered, want %d at most", remembered, maxSayings)
	}
	c.add(1, 1, "fine")
}

// identity is what the node presents itself as.
func (n *Node) identity() transport.Identity { return n.presents }

// TestNoticesAreNoProof tells a replica that its group is deleted, or another one by now,
// which is not so: the node reads the registry, and the replica stays.
func TestNoticesAreNoProof(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	n := c.nodes[1]
	r := n.replica(1)
	for _, kind := range []transport.NoticeKind{
		transport.NoticeGroupDeleted, transport.NoticeWrongIncarnation,
		transport.NoticeReplicaTooOld,
	} {
		n.notice(&transport.Identity{}, &transport.Envelope{
			Group: 1, Incarnation: r.incarnation,
			From:   transport.Endpoint{Node: 2, Replica: 9},
			To:     transport.Endpoint{Node: 1, Replica: r.id},
			Notice: &transport.Notice{Kind: kind, Epoch: 99, NextReplica: 99},
		})
		if kind != transport.NoticeReplicaTooOld && !n.reread.Load() {
			t.Errorf("%v: the registry is not read", kind)
		}
		n.cleanStrays(t.Context())
		if err := n.lifecycle.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.replica(1) != r || !r.serving() {
			t.Fatalf("%v: the replica is gone", kind)
		}
	}
	c.add(1, 1, "fine")
}

// TestNoticeOfDeletion lets a replica whose node is behind hear from another node that its
// group is deleted.
func TestNoticeOfDeletion(t *testing.T) {
	net := transport.NewMemory(6)
	c := newMemoryCluster(t, 3, net)
	c.create(1, 1, 2, 3)
	c.moveLeader(0, 1)
	c.cutOff(net, 3, 1, 2)
	if err := c.nodes[1].DeleteGroup(within(t, testTimeout), 1); err != nil {
		t.Fatal(err)
	}
	in := c.incarnation(1, 1)
	env := envelopeTo(1, in, 1)
	n := c.nodes[1]
	sent := n.Metrics().NoticesSent
	n.strangeMessage(&env)
	n.strangeMessage(&env)
	if got := n.Metrics().NoticesSent - sent; got != 1 {
		t.Errorf("%d notices for two messages of a deleted group, want one", got)
	}
	net.HealAll()
	c.eventually("node 3 destroys its replica", func() bool { return c.nodes[3].replica(1) == nil })
}

func TestNoticesAreLimited(t *testing.T) {
	var ns notices
	now := time.Unix(1000, 0)
	a := saying{group: 1, replica: 2, kind: transport.NoticeRemoved}
	b := a
	b.kind = transport.NoticeBehind
	for _, step := range []struct {
		to   raftyard.NodeID
		what saying
		wait time.Duration
		want bool
	}{
		{1, a, 0, true},
		{1, a, 0, false},
		{1, b, 0, true},
		{2, a, 0, true},
		{1, a, time.Second - 1, false},
		{1, a, 1, true},
		{1, a, 0, false},
	} {
		now = now.Add(step.wait)
		if got := ns.may(step.to, step.what, now, time.Second); got != step.want {
			t.Fatalf("%+v: may = %t", step, got)
		}
	}
	count := 0
	for g := range raftyard.GroupID(10 * maxSayings) {
		if ns.may(3, saying{group: g}, now, time.Second) {
			count++
		}
	}
	if count != maxSayings {
		t.Errorf("%d notices in one period, want %d", count, maxSayings)
	}
}

func TestClockOfAReplicaThatHearsNothing(t *testing.T) {
	const timeout = 10
	var h hearing
	run := func(ticks int, ups uint64, leads bool) (seen int) {
		for range ticks {
			if h.tick(timeout, ups, leads) {
				seen++
			}
		}
		return seen
	}
	quiet := quietTimeouts * timeout
	if got := run(quiet, 0, false); got != quiet {
		t.Errorf("%d of the first %d ticks were seen, want all", got, quiet)
	}
	if got := run(80*slowClock, 0, false); got != 80 {
		t.Errorf("%d of %d ticks were seen after that, want 80", got, 80*slowClock)
	}
	if got := run(quiet, 1, false); got != quiet {
		t.Errorf("%d of %d ticks were seen after a node came up, want all", got, quiet)
	}
	if got := run(10*quiet, 1, true); got != 10*quiet {
		t.Errorf("%d of %d ticks of a leader were seen, want all", got, 10*quiet)
	}
}
