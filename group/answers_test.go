package group

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func answer(to, term, index uint64, reject bool) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), To: &to, Term: &term, Index: &index, Reject: &reject,
	}
}

// TestDropRepeated: an answer is dropped if it says what the last one said, in a step that
// commits something, and nothing else is.
func TestDropRepeated(t *testing.T) {
	first := answer(1, 3, 7, false)
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum(), To: new(uint64(1))}
	type list []*raftpb.Message
	for _, tt := range []struct {
		name      string
		before    list
		msgs      list
		committed bool
		kept      []int
	}{
		{"the same again", list{first}, list{first}, true, nil},
		{"beside another", list{first}, list{beat, first, beat}, true, []int{0, 2}},
		{"nothing is committed", list{first}, list{first}, false, []int{0}},
		{"the first", nil, list{first}, true, []int{0}},
		{"of a greater index", list{first}, list{answer(1, 3, 8, false)}, true, []int{0}},
		{"of a lesser index", list{first}, list{answer(1, 3, 6, false)}, true, []int{0}},
		{"in another term", list{first}, list{answer(1, 4, 7, false)}, true, []int{0}},
		{"to another leader", list{first}, list{answer(2, 3, 7, false)}, true, []int{0}},
		{"a refusal", list{first}, list{answer(1, 3, 7, true)}, true, []int{0}},
		{"after a refusal", list{first, answer(1, 3, 9, true)}, list{first}, true, []int{0}},
		{"two of them", list{first}, list{first, first}, true, []int{0, 1}},
		{"no answer", list{first}, list{beat}, true, []int{0}},
	} {
		var a acknowledgement
		for _, m := range tt.before {
			a.dropRepeated(list{m}, false)
		}
		var want list
		for _, i := range tt.kept {
			want = append(want, tt.msgs[i])
		}
		if got := a.dropRepeated(slices.Clone(tt.msgs), tt.committed); !slices.Equal(got, want) {
			t.Errorf("%s: %d messages are left, want those at %d", tt.name, len(got), tt.kept)
		}
	}
}

// TestLostAnswer: a leader that an acknowledgement has not reached hears it again, though the
// follower need not answer the word that the entry is committed.
func TestLostAnswer(t *testing.T) {
	e := ledByOne(t)
	e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
	e.stabilize(1)
	e.stabilize(2, 3)
	e.network = slices.DeleteFunc(e.network, func(m *raftpb.Message) bool {
		return m.GetFrom() == 2 && m.GetType() == raftpb.MsgAppResp
	})
	answers := 0
	e.observe = func(_ *member, out Output) {
		for _, m := range slices.Concat(out.Messages, out.After) {
			if m.GetType() == raftpb.MsgAppResp {
				answers++
			}
		}
	}
	e.stabilize()
	if answers != 0 {
		t.Errorf("%d answers to the word that something is committed, want none", answers)
	}
	last := e.member(1).r.Status().Last
	if got := e.member(1).r.Status().Progress[2].Match; got == last {
		t.Fatalf("the leader knows that replica 2 has %d", last)
	}
	e.beatsTo(1)
	if got := e.member(1).r.Status().Progress[2].Match; got != last {
		t.Errorf("the leader believes that replica 2 has %d, want %d", got, last)
	}
}
