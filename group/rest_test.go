package group

import (
	"slices"
	"testing"
)

// atRest returns the ids of the members that are at rest.
func (e *env) atRest() (ids []int) {
	for _, m := range e.members {
		if m.r.AtRest() {
			ids = append(ids, int(m.id))
		}
	}
	return ids
}

// TestAtRest has something to do for a group, and for single replicas.
func TestAtRest(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(e *env)
		want []int
	}{
		{"nothing", func(*env) {}, []int{1, 2, 3}},
		{"a command that waits", func(e *env) {
			e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
		}, []int{2, 3}},
		{"a command that one has not got", func(e *env) {
			e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
			e.stabilize(1, 2)
		}, []int{1, 2, 3}}, // who has not heard of it cannot know
		{"a command that is not committed", func(e *env) {
			e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
			e.stabilize(1)
		}, []int{2, 3}},
		{"a command of which one does not know that it is committed", func(e *env) {
			e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
			e.stabilize(1)
			e.stabilize(2)
		}, []int{3}},
		{"a read at the leader", func(e *env) { e.must(e.member(1).r.Read(1)) }, []int{2, 3}},
		{"a read at a follower", func(e *env) { e.must(e.member(2).r.Read(1)) }, []int{1, 3}},
		{"a change of members", func(e *env) {
			next := e.member(1).state.Descriptor.Clone()
			next.Epoch++
			next.NextReplica++
			next.Members = append(next.Members, Member{ID: 4, Node: 4, Role: Learner})
			e.must(e.member(1).r.ChangeMembers(next, 1))
		}, []int{2, 3}},
		{"no leader", func(e *env) {
			e.must(e.member(2).r.ForgetLeader())
			e.stabilize()
		}, []int{1, 3}},
		{"a leadership on its way", func(e *env) {
			e.must(e.member(1).r.TransferLeader(2))
			e.stabilize(1)
		}, []int{2, 3}},
		{"a step under way", func(e *env) {
			e.must(e.member(1).r.Read(1))
			e.take(e.member(1))
		}, []int{2, 3}},
		{"no member any more", func(e *env) { e.member(3).r.Close() }, []int{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.found(testDescriptor(voters(3)...))
			e.must(e.member(1).r.Campaign())
			e.stabilize()
			tt.do(e)
			if got := e.atRest(); !slices.Equal(got, tt.want) {
				t.Errorf("%d are at rest, want %d", got, tt.want)
			}
		})
	}
}
