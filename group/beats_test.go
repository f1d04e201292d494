package group

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// beatsTo has replica 1 tick so many times, and returns to whom it sends heartbeats then.
// They arrive.
func (e *env) beatsTo(ticks int) (to []uint64) {
	m := e.member(1)
	for range ticks {
		m.r.Tick()
	}
	e.observe = func(_ *member, out Output) {
		for _, msg := range out.Messages {
			if msg.GetType() == raftpb.MsgHeartbeat {
				to = append(to, msg.GetTo())
			}
		}
	}
	e.stabilize()
	e.observe = nil
	return to
}

// TestHeartbeatsLeftOut: who has been sent an append since the last heartbeats, and has
// acknowledged one, gets no heartbeat, once. Everybody else gets all of them.
func TestHeartbeatsLeftOut(t *testing.T) {
	propose := func(e *env) {
		e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
	}
	for _, tt := range []struct {
		name  string
		do    func(e *env)
		ticks int
		want  []uint64
	}{
		{"nothing was said", func(*env) {}, 1, []uint64{2, 3}},
		{"both have acknowledged", func(e *env) { propose(e); e.stabilize() }, 1, nil},
		{"one has", func(e *env) { propose(e); e.stabilize(1, 2) }, 1, []uint64{3}},
		{"long ago", func(e *env) {
			propose(e)
			e.stabilize()
			e.beatsTo(1)
		}, 1, []uint64{2, 3}},
		{"the leader was held up", func(e *env) { propose(e); e.stabilize() }, 2, []uint64{2, 3}},
		{"a read asks whether it still leads", func(e *env) {
			propose(e)
			e.stabilize()
			e.must(e.member(1).r.Read(2))
		}, 0, []uint64{2, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := ledByOne(t)
			tt.do(e)
			got := e.beatsTo(tt.ticks)
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("heartbeats to %v, want them to %v", got, tt.want)
			}
		})
	}
}

// ledByOne returns a group of three that replica 1 leads, a heartbeat after its election.
func ledByOne(t *testing.T) *env {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	e.must(e.member(1).r.Campaign())
	e.stabilize()
	if got := e.beatsTo(2); len(got) == 0 {
		t.Fatal("no heartbeats at all")
	}
	return e
}

// TestAllHeartbeats: where few heartbeats fit into an election timeout none is left out.
func TestAllHeartbeats(t *testing.T) {
	e := ledByOne(t)
	m := e.member(1)
	m.r.cfg.ElectionTicks = saysMore - 1
	e.must(m.r.Propose(Proposal{Data: []byte("x"), Token: 1}))
	e.stabilize()
	if got := e.beatsTo(1); len(got) != 2 {
		t.Errorf("heartbeats to %v, want them to 2 and 3", got)
	}
}

// TestLostCommitIsTold: a follower to which the word of a commit was lost hears it from the
// second heartbeat at the latest, though it has acknowledged the entry.
func TestLostCommitIsTold(t *testing.T) {
	e := ledByOne(t)
	e.must(e.member(1).r.Propose(Proposal{Data: []byte("x"), Token: 1}))
	e.stabilize(1)
	e.stabilize(2, 3)
	e.stabilize(1) // it is committed, and they are told
	e.network = nil
	index := e.member(1).list.applied
	for _, id := range []int{2, 3} {
		if got := e.member(id).list.applied; got == index {
			t.Fatalf("replica %d has applied %d, which nobody has told it", id, got)
		}
	}
	if got := e.beatsTo(1); len(got) != 0 {
		t.Errorf("heartbeats to %v at the first tick, want none", got)
	}
	e.beatsTo(1)
	for _, id := range []int{2, 3} {
		if got := e.member(id).list.applied; got != index {
			t.Errorf("replica %d has applied %d, want %d", id, got, index)
		}
	}
}

// TestConversations: an acknowledgement without an append since the last heartbeats, or an
// append that was refused, does not stand for a heartbeat; nor does anything before those.
func TestConversations(t *testing.T) {
	app := &raftpb.Message{Type: raftpb.MsgApp.Enum(), To: new(uint64(2))}
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2))}
	ack := &raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2))}
	refusal := &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), Reject: new(true),
	}
	send := func(c *conversations, m *raftpb.Message) { c.leaveOut([]*raftpb.Message{m}) }
	for _, tt := range []struct {
		name string
		do   func(c *conversations)
		left int
	}{
		{"both", func(c *conversations) { send(c, app); c.hear(ack) }, 0},
		{"sent only", func(c *conversations) { send(c, app) }, 1},
		{"acknowledged only", func(c *conversations) { c.hear(ack) }, 1},
		{"refused", func(c *conversations) { send(c, app); c.hear(refusal) }, 1},
		{"in another term", func(c *conversations) { send(c, app); c.hear(ack); c.end() }, 1},
		{"for others", func(c *conversations) {
			send(c, app)
			c.hear(ack)
			send(c, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(3))})
		}, 1},
	} {
		var c conversations
		tt.do(&c)
		if got := c.leaveOut([]*raftpb.Message{beat}); len(got) != tt.left {
			t.Errorf("%s: %d heartbeats are left, want %d", tt.name, len(got), tt.left)
		}
	}
}

// TestNewTermForgetsConversations: what was said while a replica led stands for no heartbeat
// of a later term.
func TestNewTermForgetsConversations(t *testing.T) {
	e := ledByOne(t)
	r := e.member(1).r
	e.must(r.Propose(Proposal{Data: []byte("x"), Token: 1}))
	e.stabilize()
	if len(r.speaks.sent) == 0 || len(r.speaks.acked) == 0 {
		t.Fatal("nothing is noted of what was said")
	}
	e.must(r.TransferLeader(2))
	e.stabilize()
	if r.view.role == Leader {
		t.Fatal("it leads still")
	}
	if len(r.speaks.sent)+len(r.speaks.acked) != 0 {
		t.Errorf("it remembers %+v of the term before", r.speaks)
	}
}
