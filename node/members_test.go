package node

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// TestMembersThatAreRefused asks for what must be refused, with a reason and without any
// effect.
func TestMembersThatAreRefused(t *testing.T) {
	c := newCluster(t, 6)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	n := c.nodes[1]
	ctx := within(t, testTimeout)
	c.setState(5, registry.NodeDrained, registry.NodeLeaving, registry.NodeRemoved)
	c.setState(6, registry.NodeDrained, registry.NodeLeaving)
	c.close(4)
	c.eventually("node 4 is given up", func() bool { return !n.liveNodes()[4] })
	var many []raftyard.NodeID
	for id := range raftyard.NodeID(registry.MaxMembers + 1) {
		many = append(many, id+1)
	}
	ids := nodeIDs
	before, _ := n.registry.Group(1)
	tests := []struct {
		name string
		m    Members
		want error
	}{
		{"no voters", Members{Learners: ids(1)}, ErrInvalid},
		{"twice", Members{Voters: ids(1, 1)}, ErrInvalid},
		{"voter and learner", Members{Voters: ids(1, 2), Learners: ids(2)}, ErrInvalid},
		{"node 0", Members{Voters: ids(0, 1)}, ErrInvalid},
		{"too many", Members{Voters: many}, ErrInvalid},
		{"too many, forced", Members{Voters: many, Force: true}, ErrInvalid},
		{"unknown", Members{Voters: ids(1, 2, 9)}, ErrInvalid},
		{"unknown, forced", Members{Voters: ids(1, 2, 9), Force: true}, ErrInvalid},
		{"removed", Members{Voters: ids(1, 2, 5), Force: true}, ErrUnhealthy},
		{"removed learner", Members{Voters: ids(1, 2), Learners: ids(5)}, ErrUnhealthy},
		{"leaving", Members{Voters: ids(1, 2, 6), Force: true}, ErrUnhealthy},
		{"half of two is down", Members{Voters: ids(1, 4)}, ErrUnhealthy},
		{"the only one is down", Members{Voters: ids(4)}, ErrUnhealthy},
		{"another epoch", Members{Voters: ids(1, 2), ExpectEpoch: 99}, ErrEpochMismatch},
		{
			"another epoch, forced",
			Members{Voters: ids(1, 2), ExpectEpoch: 99, Force: true},
			ErrEpochMismatch,
		},
	}
	for _, tt := range tests {
		_, err := n.SetMembers(ctx, 1, tt.m, false)
		if !errors.Is(err, tt.want) || !NotApplied(err) {
			t.Errorf("%s: SetMembers(%+v) = %v, want %v", tt.name, tt.m, err, tt.want)
		}
	}
	// Not the registry's version: node 6, which is leaving, may be let go meanwhile.
	if after, _ := n.registry.Group(1); !reflect.DeepEqual(after, before) {
		t.Errorf("the record went from %+v to %+v", before, after)
	}
	if _, err := n.SetMembers(ctx, 1, Members{Voters: ids(1, 2, 4)}, false); err != nil {
		t.Errorf("SetMembers with two of three alive = %v", err)
	}
	_, err := n.SetMembers(ctx, 1, Members{Voters: ids(2, 3), Force: true}, false)
	if !errors.Is(err, ErrChangeInProgress) {
		t.Errorf("SetMembers while node 4 is brought in = %v, want ErrChangeInProgress", err)
	}
	c.add(1, 1, "b")
}

// setState has a node go through states, one after the other.
func (c *cluster) setState(id raftyard.NodeID, states ...registry.NodeState) {
	c.t.Helper()
	for _, s := range states {
		res, err := c.nodes[1].command(within(c.t, testTimeout),
			registry.EncodeSetNodeState(registry.SetNodeState{ID: id, State: s}))
		if err != nil || res.Code != registry.OK {
			c.t.Fatalf("node %d becomes %v: %v %s, %v", id, s, res.Code, res.Detail, err)
		}
	}
}

// TestForcedMemberThatNeverComes adds a voter that is down to a group of one. The group
// must not depend on it, and must be able to give it up again.
func TestForcedMemberThatNeverComes(t *testing.T) {
	c := newCluster(t, 4)
	c.create(1, 1)
	c.close(4)
	n := c.nodes[1]
	c.eventually("node 4 is given up", func() bool { return !n.liveNodes()[4] })
	both := Members{Voters: nodeIDs(1, 4), Force: true}
	if _, err := n.SetMembers(t.Context(), 1, both, false); err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	c.eventually("it is a learner", func() bool {
		st, err := n.Group(t.Context(), 1)
		return err == nil && len(st.Members) == 2
	})
	c.add(2, 1, "still writable")
	ctx := within(t, testTimeout)
	if _, err := n.SetMembers(ctx, 1, Members{Voters: nodeIDs(1)}, true); err != nil {
		t.Errorf("SetMembers back = %v", err)
	}
	c.wantWords(3, 1, "still writable")
}

// TestTwoChangesAtOnce has two callers want different members at the same time, again and
// again: each hears that it is done, or that another change is in progress.
func TestTwoChangesAtOnce(t *testing.T) {
	c := newCluster(t, 5)
	c.create(1, 1, 2, 3)
	ctx := within(t, testTimeout)
	for round := range 6 {
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				m := Members{Voters: nodeIDs(1, 2, 3, raftyard.NodeID(4+i))}
				var st GroupStatus
				st, errs[i] = c.nodes[raftyard.NodeID(i+1)].SetMembers(ctx, 1, m, true)
				if errs[i] == nil && !hasVoter(st, raftyard.NodeID(4+i)) {
					errs[i] = fmt.Errorf("done, and the group is %+v", st)
				}
			})
		}
		wg.Wait()
		done := 0
		for i, err := range errs {
			switch {
			case err == nil:
				done++
			case !errors.Is(err, ErrChangeInProgress):
				t.Errorf("round %d: SetMembers with node %d = %v", round, 4+i, err)
			}
		}
		if done == 0 {
			t.Errorf("round %d: neither was done", round)
		}
		three := Members{Voters: nodeIDs(1, 2, 3)}
		if _, err := c.nodes[3].SetMembers(ctx, 1, three, true); err != nil {
			t.Fatalf("round %d: SetMembers back = %v", round, err)
		}
	}
}

func hasVoter(st GroupStatus, id raftyard.NodeID) bool {
	return slices.ContainsFunc(st.Members, func(m MemberStatus) bool {
		return m.Node == id && m.Role == "voter"
	})
}

// TestReplicaThatIsBehindProvesNothing: that this node's replica is where the group shall
// be does not count as long as it is at an earlier epoch than the group was before.
func TestReplicaThatIsBehindProvesNothing(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	n := c.nodes[1]
	rec, _ := n.registry.Group(1)
	epoch := n.replica(1).view.Load().State.Descriptor.Epoch
	if !n.awaitMembers(t.Context(), rec, epoch, reached) {
		t.Error("the members are not reached at the group's own epoch")
	}
	if n.awaitMembers(within(t, 50*time.Millisecond), rec, epoch+1, reached) {
		t.Error("the members are reached at an earlier epoch than the group was at")
	}
}
