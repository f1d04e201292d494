package node

import "go.etcd.io/raft/v3/raftpb"

// unsaved is what a replica has of the entries that have come and are not durable yet, of
// which Bounds.UnsavedBytes bounds those of all replicas. With more, only replicas take entries
// that have none, and with twice as much nobody: while a disk hangs, leaders elsewhere go on to
// send to each group as much as may be in flight. What is not taken is as if it had been lost:
// the leader sends it again. Only the replica's worker touches it.
type unsaved struct {
	waiting int64 // taken in, in no step yet
	saving  int64 // in the step that is under way
}

// takesEntries reports whether a replica takes the entries of a message, if it has some, and
// counts them.
func (w *worker) takesEntries(r *replica, m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp || len(m.GetEntries()) == 0 {
		return true
	}
	most := w.node.cfg.Bounds.UnsavedBytes
	if r.unsaved == (unsaved{}) {
		most *= 2
	}
	size := int64(entriesSize(m.GetEntries()))
	if w.node.unsaved.Load()+size > most {
		w.node.metrics.refuse(unsavedLimit)
		return false
	}
	r.unsaved.waiting += size
	w.node.unsaved.Add(size)
	return true
}

// taken: a step has what has come.
func (u *unsaved) taken() {
	u.saving += u.waiting
	u.waiting = 0
}

// saved returns how much is durable with the end of a step.
func (u *unsaved) saved() int64 {
	n := u.saving
	u.saving = 0
	return n
}

// drop returns how much there was of a replica that has gone.
func (u *unsaved) drop() int64 {
	n := u.waiting + u.saving
	*u = unsaved{}
	return n
}
