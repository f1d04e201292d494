package node

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
)

const (
	// quietTimeouts is after how many election timeouts in which a replica has heard
	// nothing from anybody it stands for election more rarely: its clock goes slower, by
	// slowClock.
	quietTimeouts = 20
	slowClock     = 8
)

// A hearing is what a replica has heard lately.
type hearing struct {
	silent int    // ticks since the last message of anybody
	ups    uint64 // connections that had come up then
}

// tick counts a tick, and reports whether raft shall see it. A replica to which nobody
// speaks is slow: it may be no member any more, and nobody can tell it. When somebody
// speaks to it, or any node has come up, it is at once as fast as the others.
func (h *hearing) tick(timeout int, ups uint64, leads bool) bool {
	if h.silent++; leads || ups != h.ups {
		h.silent, h.ups = 0, ups
	}
	return h.silent <= quietTimeouts*timeout || h.silent%slowClock == 0
}

// heard takes note of a message. A leader's says that the replica is a member still.
func (w *worker) heard(r *replica, in *inbound) {
	m := in.m
	r.hearing.silent = 0
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() >= r.raft.Position().Term {
			r.leaderless.Store(0)
			r.sleep.unheard, r.sleep.wish = false, nil
		}
	case raftpb.MsgPreVote, raftpb.MsgVote:
		w.hearCandidate(r, in)
	default:
	}
}

// tickRaft lets raft's clock go on.
func (w *worker) tickRaft(r *replica) {
	leads := r.leader.Role == group.Leader
	if leads {
		r.leaderless.Store(0)
	} else {
		r.leaderless.Add(1)
	}
	if !w.node.isVouched(r) {
		return // it must not stand for election yet
	}
	switch {
	case r.sleep.state == asking:
		return // a heartbeat would wake those who have agreed
	case r.sleep.stand > 0:
		return // it stands for election when it is its turn
	}
	if r.hearing.tick(w.node.cfg.ElectionTicks, w.node.ups.Load(), leads) {
		r.raft.Tick()
	}
}
