package node

// hearTold takes note of what somebody vouches for who has applied it.
func (r *replica) hearTold(told *vouched) {
	if r.told == nil || r.told.index < told.index {
		r.told, r.toldTicks = told, 0
	}
}

// tickTold lets a replica know what somebody vouches for who has applied it, when it
// has been without a leader for an election timeout since: it may just be about to
// win, and what it is told would end its candidacy.
func (w *worker) tickTold(r *replica) {
	switch {
	case r.told == nil:
		return
	case r.leader.Leader != 0:
		r.told = nil
		return
	}
	if r.toldTicks++; r.toldTicks < w.node.cfg.ElectionTicks {
		return
	}
	told := r.told
	r.told = nil
	if err := r.raft.LearnCommitted(told.index, told.term, told.from); err != nil {
		w.node.metrics.messagesRefused.Add(1)
	}
}
