package node

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// receive lets a replica see a message. One that it cannot take is counted: raft
// messages may be lost, and a bad one must not do harm.
func (w *worker) receive(in *inbound) {
	r := in.r
	switch {
	case in.sleep != nil:
		w.shield(r, "hear of sleep", func() { w.hearOfSleep(r, in.sleep) })
		return
	case in.rouse:
		w.guard(r, "stay awake", func() {})
		return
	case in.told != nil:
		w.guard(r, "hear what is committed", func() { r.hearTold(in.told) })
		return
	case in.damaged != 0:
		w.guard(r, "replace a member", func() { w.memberDamaged(r, in.damaged) })
		return
	}
	if in.m.GetType() != raftpb.MsgHeartbeatResp || in.m.GetTerm() != r.leader.Term {
		w.guard(r, "take a message", func() { w.takeMessage(r, in) })
		return
	}
	if r.sleep.state == awake { // otherwise it was on its way when the group went to sleep
		w.shield(r, "take an answer", func() { w.takeMessage(r, in) }) // nothing has happened
	}
}

func (w *worker) takeMessage(r *replica, in *inbound) {
	if !w.takesEntries(r, in.m) {
		w.node.metrics.messagesDropped.Add(1)
		return
	}
	r.learn(raftyard.ReplicaID(in.m.GetFrom()), in.from)
	err := r.raft.Step(in.m)
	if errors.Is(err, group.ErrDamaged) {
		// The leader counts on entries that this log has lost.
		w.node.condemn(r, err, nil)
		return
	}
	if err != nil {
		w.node.metrics.messagesRefused.Add(1)
		return
	}
	w.heard(r, in)
	if in.m.GetType() == raftpb.MsgReadIndex {
		w.tellAll(r) // or the read would wait for it
	}
	if in.m.GetType() == raftpb.MsgAppResp {
		r.hasFollowed(raftyard.ReplicaID(in.m.GetFrom()))
	}
	delete(r.steering.damaged, raftyard.ReplicaID(in.m.GetFrom())) // it is back
	if r.steering.unmet && in.m.GetType() == raftpb.MsgAppResp {
		w.steer(r)
	}
	w.touch(r)
}
