package node

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// followers are members that were sent a snapshot and have not come up with the rest of the
// log yet, with the index of that snapshot. What comes behind it is kept for them: while a
// snapshot was on its way more may have been written than a log keeps otherwise, and without it
// they would need another snapshot, and another one after that.
type followers map[raftyard.ReplicaID]uint64

// follow notes that a member has been given a snapshot.
func (r *replica) follow(to raftyard.ReplicaID, index uint64) {
	if r.behind == nil {
		r.behind = make(followers)
	}
	r.behind[to] = index
	r.hasFollowed(to)
}

// hasFollowed forgets a member as soon as it needs no more of the log than there is for anybody.
// It may be gone for ever before the log is cut the next time.
func (r *replica) hasFollowed(id raftyard.ReplicaID) {
	index, ok := r.behind[id]
	if !ok {
		return
	}
	p := r.raft.Status().Progress[id]
	window := r.raft.Committed() - min(r.raft.Committed(), r.meta.State.Descriptor.TrailingEntries)
	if p.PendingSnapshot == 0 && p.Match >= max(index, window) {
		delete(r.behind, id)
	}
}

// followed returns window, or less where a member follows behind a snapshot that it was given. It
// forgets those that need nothing older than window, that are being given another one, and all
// when the replica leads no more.
func (r *replica) followed(window uint64) uint64 {
	if len(r.behind) == 0 {
		return window
	}
	st := r.raft.Status()
	to := window
	for id, index := range r.behind {
		p, ok := st.Progress[id]
		at := max(index, p.Match)
		if st.Role != group.Leader || !ok || p.PendingSnapshot != 0 || at >= window {
			delete(r.behind, id)
			continue
		}
		to = min(to, at)
	}
	return to
}
