package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// within gives a test's call a deadline that it is meant to reach.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// incarnation returns which one of a group a node knows.
func (c *cluster) incarnation(at raftyard.NodeID, g raftyard.GroupID) raftyard.Incarnation {
	c.t.Helper()
	rec, ok := c.nodes[at].registry.Group(g)
	if !ok {
		c.t.Fatalf("node %d does not know group %d", at, g)
	}
	return rec.Incarnation
}

// TestDeletionWithoutAQuorum deletes a group of which two voters of three are down: it is
// refused, then forced, and when the two are back, at last nothing of it is left. They are
// a majority, and must not serve the group in the moment of their start.
func TestDeletionWithoutAQuorum(t *testing.T) {
	c := newCluster(t, 5)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	in := c.incarnation(1, 1)
	c.close(2)
	c.close(3)
	if err := c.nodes[4].DeleteGroup(t.Context(), 1); !errors.Is(err, ErrNoQuorum) {
		t.Fatalf("DeleteGroup with a minority = %v, want ErrNoQuorum", err)
	}
	if rec, ok := c.nodes[4].registry.Group(1); !ok || rec.Deleted {
		t.Fatalf("after the refusal the registry has %+v, %t", rec, ok)
	}
	other := in
	other[3]++
	for _, wrong := range []raftyard.Incarnation{other, {}} {
		err := c.nodes[4].ForceDeleteGroup(t.Context(), 1, wrong)
		if !errors.Is(err, ErrInvalid) || !NotApplied(err) {
			t.Fatalf("ForceDeleteGroup of incarnation %v = %v, want ErrInvalid", wrong, err)
		}
	}
	for range 2 { // a repeat comes to the same
		err := c.nodes[4].ForceDeleteGroup(t.Context(), 1, in)
		if !errors.Is(err, ErrNotReached) || NotApplied(err) {
			t.Fatalf("ForceDeleteGroup = %v, want ErrNotReached", err)
		}
	}
	err := c.nodes[5].DeleteGroup(within(t, 300*time.Millisecond), 1)
	if !errors.Is(err, ErrNotReached) {
		t.Fatalf("DeleteGroup after that = %v, want ErrNotReached", err)
	}
	c.hammerWhileOpening(1, 2, 3)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Errorf("DeleteGroup when all are back = %v", err)
	}
	for _, n := range c.nodes {
		if r := n.replica(1); r != nil {
			t.Errorf("node %d still has %v", n.ID(), r)
		}
	}
}

// hammerWhileOpening opens nodes while clients write to a group that is deleted, through
// them: nothing may be acknowledged.
func (c *cluster) hammerWhileOpening(g raftyard.GroupID, ids ...raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	var acked atomic.Int64
	for _, id := range ids {
		c.open(id, nil)
		n := c.nodes[id]
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					short, done := context.WithTimeout(ctx, 20*time.Millisecond)
					if _, err := n.Propose(short, g, []byte("late")); err == nil {
						acked.Add(1)
					}
					done()
				}
			})
		}
	}
	for _, id := range ids {
		c.eventually("the node destroys its replica", func() bool {
			return c.nodes[id].replica(g) == nil
		})
	}
	cancel()
	wg.Wait()
	if n := acked.Load(); n > 0 {
		c.t.Errorf("%d writes to a deleted group were acknowledged", n)
	}
}

// TestDeletionFencesThoseWhoAreCutOff deletes a group whose leader is cut off from
// everybody but its clients.
func TestDeletionFencesThoseWhoAreCutOff(t *testing.T) {
	net := transport.NewMemory(3)
	c := newMemoryCluster(t, 4, net)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.moveLeader(0, 1)
	c.moveLeader(1, 3)
	for _, id := range []raftyard.NodeID{1, 2, 4} {
		net.CutBoth(3, id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := c.nodes[1].DeleteGroup(ctx, 1); err != nil {
		t.Fatalf("DeleteGroup = %v", err)
	}
	_, err := c.nodes[3].Propose(within(t, 500*time.Millisecond), 1, []byte("late"))
	if err == nil {
		t.Error("a write was acknowledged after the group was deleted")
	}
	_, err = c.nodes[3].Query(within(t, 500*time.Millisecond), 1, Linearizable, nil)
	if err == nil {
		t.Error("a linearizable read was answered after the group was deleted")
	}
	net.HealAll()
	c.eventually("node 3 destroys its replica", func() bool { return c.nodes[3].replica(1) == nil })
}

// moveLeader has a group led by a node. An election may come between.
func (c *cluster) moveLeader(g raftyard.GroupID, to raftyard.NodeID) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("group %d is led by node %d", g, to), func() bool {
		return c.nodes[to].TransferLeader(within(c.t, testTimeout), g, to) == nil
	})
}

// TestForcedDeletionOfAMajorityThatIsCutOff: those who cannot be told go on among
// themselves, which the caller hears, and stop when they hear of it.
func TestForcedDeletionOfAMajorityThatIsCutOff(t *testing.T) {
	net := transport.NewMemory(4)
	c := newMemoryCluster(t, 5, net)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.moveLeader(0, 1)
	c.moveLeader(1, 2)
	for _, from := range []raftyard.NodeID{2, 3} {
		for _, to := range []raftyard.NodeID{1, 4, 5} {
			net.CutBoth(from, to)
		}
	}
	ctx := within(t, testTimeout)
	c.eventually("the two are given up", func() bool {
		live := c.nodes[4].liveNodes()
		return !live[2] && !live[3]
	})
	if err := c.nodes[4].DeleteGroup(ctx, 1); !errors.Is(err, ErrNoQuorum) {
		t.Fatalf("DeleteGroup = %v, want ErrNoQuorum", err)
	}
	err := c.nodes[4].ForceDeleteGroup(ctx, 1, c.incarnation(4, 1))
	if !errors.Is(err, ErrNotReached) {
		t.Fatalf("ForceDeleteGroup = %v, want ErrNotReached", err)
	}
	c.add(3, 1, "they go on")
	net.HealAll()
	if err := c.nodes[4].DeleteGroup(ctx, 1); err != nil {
		t.Fatalf("DeleteGroup when all are connected = %v", err)
	}
	if _, err := c.nodes[2].Propose(within(t, 300*time.Millisecond), 1, []byte("b")); err == nil {
		t.Error("a write was acknowledged after the group was deleted")
	}
}

// TestDeletionOfWhatNeverBegan deletes a group whose seed is down: nobody can tell whether
// it has begun, before the seed is back.
func TestDeletionOfWhatNeverBegan(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3) // a founder that is not known yet could wait for node 3
	seed := c.nodes[3].ownStore()
	c.eventually("node 3 is registered", func() bool {
		rec, _ := c.nodes[1].registry.Node(3)
		return rec.Store == seed
	})
	c.close(3)
	res, err := c.nodes[1].command(t.Context(), registry.EncodeCreateGroup(registry.CreateGroup{
		ID: 1, Incarnation: raftyard.Incarnation{7}, Kind: "list",
		Voters: []raftyard.NodeID{1, 2, 3}, Seed: 3, SeedStore: seed,
	}))
	if err != nil || res.Code != registry.Created {
		t.Fatalf("create a group = %v, %v", res.Code, err)
	}
	err = c.nodes[1].DeleteGroup(within(t, 500*time.Millisecond), 1)
	if !errors.Is(err, ErrNotReached) {
		t.Fatalf("DeleteGroup without the seed = %v, want ErrNotReached", err)
	}
	c.open(3, nil)
	if err := c.nodes[1].DeleteGroup(within(t, testTimeout), 1); err != nil {
		t.Errorf("DeleteGroup with the seed = %v", err)
	}
	if r := c.nodes[3].replica(1); r != nil {
		t.Errorf("the seed has %v", r)
	}
}

// TestDeletionsAndCreationsAtOnce has every node create and delete the same group, all at
// once. In the end it is gone everywhere, and the next one is empty.
func TestDeletionsAndCreationsAtOnce(t *testing.T) {
	c := newCluster(t, 3)
	c.leader(0)
	ctx := within(t, testTimeout)
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			for i := range 8 {
				spec := Spec{ID: 1, Kind: "list", Voters: []raftyard.NodeID{1, 2, 3}}
				if _, err := n.CreateGroup(ctx, spec); err != nil {
					t.Errorf("CreateGroup at node %d = %v", n.ID(), err)
				}
				short, done := context.WithTimeout(ctx, 50*time.Millisecond)
				_, _ = n.Propose(short, 1, fmt.Appendf(nil, "%d-%d", n.ID(), i))
				done()
				err := n.DeleteGroup(ctx, 1)
				if err != nil && !errors.Is(err, ErrGroupNotFound) {
					t.Errorf("DeleteGroup at node %d = %v", n.ID(), err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.nodes[2].DeleteGroup(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if r := n.replica(1); r != nil {
			t.Errorf("node %d still has %v", n.ID(), r)
		}
	}
	c.create(1, 1, 2, 3)
	c.wantWords(2, 1)
}

// TestVoterSets looks at who could decide for a group, by what nodes say.
func TestVoterSets(t *testing.T) {
	d := func(epoch uint64, members ...group.Member) holding {
		return holding{
			Epoch: epoch, Members: memberStatuses(group.Descriptor{Members: members}),
		}
	}
	m := func(node raftyard.NodeID, role group.Role) group.Member {
		return group.Member{ID: raftyard.ReplicaID(node), Node: node, Role: role}
	}
	ahead := d(5, m(1, group.Voter), m(2, group.Voter), m(3, group.Voter))
	ahead.Ahead = []membership{{Epoch: 6, Members: d(6, m(2, group.Voter)).Members}}
	told := holding{Epoch: 9} // on somebody's word
	tests := []struct {
		name    string
		answers map[raftyard.NodeID]holding
		gone    []raftyard.NodeID
		want    string // who could go on
	}{
		{"nobody knows", map[raftyard.NodeID]holding{1: {}}, nil, "[]"},
		{
			"one of three is left",
			map[raftyard.NodeID]holding{
				1: d(5, m(1, group.Voter), m(2, group.Voter), m(3, group.Voter)), 2: told,
			},
			[]raftyard.NodeID{1, 2},
			"[]",
		},
		{
			"two of three are left",
			map[raftyard.NodeID]holding{
				1: d(5, m(1, group.Voter), m(2, group.Voter), m(3, group.Voter)),
			},
			[]raftyard.NodeID{1},
			"[2 3]",
		},
		{
			"learners do not count",
			map[raftyard.NodeID]holding{1: d(5, m(1, group.Voter), m(2, group.Learner))},
			[]raftyard.NodeID{1},
			"[]",
		},
		{
			"two of four cannot go on",
			map[raftyard.NodeID]holding{1: d(5,
				m(1, group.Voter), m(2, group.Voter), m(3, group.Voter), m(4, group.Voter))},
			[]raftyard.NodeID{1, 2},
			"[]",
		},
		{
			"the newest counts",
			map[raftyard.NodeID]holding{
				1: d(4, m(1, group.Voter), m(2, group.Voter), m(3, group.Voter)),
				2: d(5, m(1, group.Voter)),
			},
			[]raftyard.NodeID{1},
			"[]",
		},
		{
			"the old half of a joint group",
			map[raftyard.NodeID]holding{
				1: d(5, m(1, group.Voter), m(2, group.Outgoing), m(3, group.Demoting),
					m(4, group.Incoming), m(5, group.Incoming)),
			},
			[]raftyard.NodeID{1, 4, 5},
			"[2 3]",
		},
		{
			"the new half of a joint group",
			map[raftyard.NodeID]holding{
				1: d(5, m(1, group.Voter), m(2, group.Outgoing), m(3, group.Demoting),
					m(4, group.Incoming), m(5, group.Incoming)),
			},
			[]raftyard.NodeID{1, 2, 3},
			"[4 5]",
		},
		{
			"what one has logged and not applied",
			map[raftyard.NodeID]holding{1: ahead},
			[]raftyard.NodeID{1, 3},
			"[2]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := survey{answers: tt.answers}
			out := func(m MemberStatus) bool { return slices.Contains(tt.gone, m.Node) }
			if got := fmt.Sprint(holdouts(s.voterSets(), out)); got != tt.want {
				t.Errorf("%s could go on, want %s", got, tt.want)
			}
		})
	}
}

// TestWhoVouches looks at which answers tell all that a replica had in its log.
func TestWhoVouches(t *testing.T) {
	m := MemberStatus{Replica: 3, Node: 1, Role: "voter", Store: "a"}
	homeless := m
	homeless.Store = ""
	tests := []struct {
		name       string
		member     MemberStatus
		answer     holding
		now, later bool
	}{
		{"its tombstone", m, holding{Store: "a", Replica: 3, Whole: true}, true, true},
		{
			"its tombstone, before directories", homeless,
			holding{Store: "a", Replica: 3, Whole: true},
			true, true,
		},
		{"it has never come", m, holding{Store: "a", Whole: true}, true, true},
		{"an earlier one's", m, holding{Store: "a", Replica: 2, Whole: true}, true, true},
		{"nothing in another directory", m, holding{Store: "b", Whole: true}, false, false},
		{"nothing, before directories", homeless, holding{Store: "a", Whole: true}, false, false},
		{"an earlier one's there", m, holding{Store: "b", Replica: 2, Whole: true}, false, false},
		{"a later one's", m, holding{Store: "a", Replica: 4, Whole: true}, false, false},
		{"its log was not read", m, holding{Store: "a", Replica: 3}, false, false},
		{"another incarnation", m, holding{Store: "a", Other: true}, false, false},
		{"it lives", m, holding{Store: "a", Live: true, Replica: 3}, false, true},
		{"a later one lives", m, holding{Store: "a", Live: true, Replica: 4}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := survey{answers: map[raftyard.NodeID]holding{1: tt.answer}}
			if got := s.vouches(tt.member); got != tt.now {
				t.Errorf("vouches = %t", got)
			}
			if got := s.canVouch(tt.member); got != tt.later {
				t.Errorf("canVouch = %t", got)
			}
		})
	}
	if (&survey{}).vouches(m) || (&survey{}).canVouch(m) {
		t.Error("one who is silent vouches")
	}
}

// TestTombstonesTellTheLog destroys replicas in every way, and looks at what is left of
// what they may have vouched for.
func TestTombstonesTellTheLog(t *testing.T) {
	d := func(epoch uint64) group.Descriptor {
		return group.Descriptor{Epoch: epoch, NextReplica: 9, Members: []group.Member{
			{ID: raftyard.ReplicaID(epoch), Node: 1, Role: group.Voter},
		}}
	}
	word := group.Descriptor{Epoch: 7, NextReplica: 3}
	c := newCluster(t, 1)
	c.create(1, 1)
	r := c.nodes[1].replica(1)
	r.worker.halt(r, ErrNoReplica)
	tests := []struct {
		name  string
		own   uint64
		last  remains
		epoch uint64
		ahead string
	}{
		{"own removal", 5, remains{Descriptor: d(5)}, 5, "[]"},
		{"a word", 5, remains{Descriptor: word}, 7, "[5]"},
		{"a word of the same epoch", 7, remains{Descriptor: word}, 7, "[7]"},
		{"a word, without state", 0, remains{Descriptor: word}, 7, "[]"},
		{"deleted", 6, remains{Descriptor: d(5), Deleted: true}, 6, "[]"},
		{"a word, then deleted", 5, remains{Descriptor: word, Deleted: true}, 7, "[5]"},
	}
	for _, tt := range tests {
		r.meta.State.Descriptor = group.Descriptor{}
		if tt.own > 0 {
			r.meta.State.Descriptor = d(tt.own)
		}
		last := r.bury(tt.last)
		ahead := []uint64{}
		for _, d := range last.Ahead {
			ahead = append(ahead, d.Epoch)
		}
		if last.Epoch != tt.epoch || fmt.Sprint(ahead) != tt.ahead || last.Blind {
			t.Errorf("%s: epoch %d, ahead %d, blind: %t; want epoch %d, ahead %s",
				tt.name, last.Epoch, ahead, last.Blind, tt.epoch, tt.ahead)
		}
	}
	r.log = nil
	if !r.bury(remains{Descriptor: word}).Blind {
		t.Error("a tombstone tells nothing of a log that is not there, and does not say so")
	}
}

// TestNobodyIsServedBeforeTheSweep holds up the round in which a node that has just read
// the registry destroys the replicas of deleted groups.
func TestNobodyIsServedBeforeTheSweep(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	n := c.nodes[1]
	l := n.lifecycle
	n.purges.mu.Lock() // every round needs it
	l.poke()
	c.eventually("a round is held up", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.begun > l.ended
	})
	l.mu.Lock()
	l.fresh, l.swept = false, false
	l.mu.Unlock()
	l.setFresh()
	_, err := n.serving(1)
	n.purges.mu.Unlock()
	if !errors.Is(err, ErrNotReady) {
		t.Errorf("before the sweep a replica serves: %v", err)
	}
	c.eventually("it serves after that", func() bool { _, err := n.serving(1); return err == nil })
}
