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
	if in.told != nil {
		if r.told == nil || r.told.index < in.told.index {
			r.told, r.toldTicks = in.told, 0
		}
		return
	}
	if in.damaged != 0 {
		w.guard(r, "replace a member", func() { w.memberDamaged(r, in.damaged) })
		return
	}
	w.guard(r, "take a message", func() {
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
		w.heard(r, in.m)
		delete(r.steering.damaged, raftyard.ReplicaID(in.m.GetFrom())) // it is back
		if r.steering.unmet && in.m.GetType() == raftpb.MsgAppResp {
			w.steer(r)
		}
		w.touch(r)
	})
}
