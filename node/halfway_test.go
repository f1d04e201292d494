package node

import (
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

func TestHalfway(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	member := func(id raftyard.ReplicaID, role group.Role) group.Member {
		return group.Member{ID: id, Node: raftyard.NodeID(id), Role: role}
	}
	want := registry.Group{Voters: nodeIDs(1, 2), Learners: nodeIDs(3)}
	simple := []group.Member{member(1, group.Voter), member(3, group.Learner)}
	joint := []group.Member{member(1, group.Voter), member(2, group.Incoming)}
	var h halfway
	for _, step := range []struct {
		what    string
		second  int
		epoch   uint64
		members []group.Member
		// Since which second; zero says that there is none.
		joint, orphan int
	}{
		{"as wanted", 1, 5, simple, 0, 0},
		{"a learner that is to vote", 2, 6, append(simple, member(2, group.Learner)), 0, 2},
		{"and one that is to go", 3, 7, append(simple,
			member(2, group.Learner), member(4, group.Learner)), 0, 2},
		{"the first one is gone", 4, 8, append(simple, member(4, group.Learner)), 0, 3},
		{"and comes again", 5, 9, append(simple, member(2, group.Learner)), 0, 5},
		{"joint", 6, 10, joint, 6, 0},
		{"still", 7, 10, joint, 6, 0},
		{"joint once more, unseen between", 8, 12, joint, 8, 0},
		{"left", 9, 13, simple, 0, 0},
		{"joint again", 10, 14, joint, 10, 0},
	} {
		d := &group.Descriptor{Epoch: step.epoch, Members: step.members}
		got := h.look(d, func(m group.Member) bool { return isOrphan(m, &want) }, at(step.second))
		var exp lingering
		if step.joint != 0 {
			exp.joint = at(step.joint)
		}
		if step.orphan != 0 {
			exp.orphan = at(step.orphan)
		}
		if got != exp {
			t.Errorf("%s: %+v, want %+v", step.what, got, exp)
		}
	}
}
