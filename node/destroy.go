package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/storage"
)

// destroyAll ends replicas: first the durable tombstone, then everything else.
func (l *lifecycle) destroyAll(ds map[*replica]remains) {
	var gone []*replica
	for _, r := range slices.SortedFunc(maps.Keys(ds), byGroup) {
		if l.node.replica(r.group) == r {
			gone = append(gone, r)
		}
	}
	// Nothing of a replica may be written after its tombstone.
	for _, r := range gone {
		r.worker.halt(r, fmt.Errorf("%w: replica %d of group %d is removed",
			ErrNoReplica, r.id, r.group))
	}
	ws := make([]write, 0, len(gone))
	left := make([]leftover, 0, len(gone))
	for _, r := range gone {
		last := r.bury(ds[r])
		t := last.tombstone()
		if mutant.On(mutant.NoTombstone) {
			t.NextReplica = 1
		}
		ws = append(ws, write{kind: writeDestroy, group: r.group, tombstone: t})
		left = append(left, leftoverOf(r.stored(), last))
	}
	for i, err := range l.node.committer.wait(ws) {
		if err != nil {
			l.node.logger.Error("replica not destroyed", groupAttr(gone[i].group), errAttr(err))
			l.toDestroy(gone[i], ds[gone[i]]) // nobody else would come back to it
			continue
		}
		l.node.drop(gone[i])
		l.node.beginPurge(left[i], gone[i])
	}
}

// stored is what the log store knows the replica by.
func (r *replica) stored() storage.Replica {
	return storage.Replica{Group: r.group, Incarnation: r.incarnation, ID: r.id}
}

// bury returns what is left of a replica that has stopped, of which so much is known.
func (r *replica) bury(last remains) remains {
	last.NoMachine = r.meta.NoMachine
	r.lookAhead(&last)
	last.NextReplica = max(last.NextReplica, r.id+1)
	return last
}

// lookAhead adds to what is left of a replica all members that it may have vouched for:
// those that it has applied, and those in its log. A deletion that is decided later, when
// the log is gone, depends on it. Whoever has stopped adds nothing to his log any more.
func (r *replica) lookAhead(last *remains) {
	switch own := r.meta.State.Descriptor; {
	case own.Epoch == 0 || own.Epoch == last.Epoch && len(last.Members) > 0:
	case last.Deleted && own.Epoch > last.Epoch:
		last.Descriptor = own
	default:
		last.Ahead = append(last.Ahead, own)
	}
	if st, _ := r.worker.node.store.Replica(r.group); r.log == nil || st.Damage != nil {
		last.Blind = true // what it has vouched for is not known any more
	}
	if r.log == nil {
		return
	}
	ahead, err := group.Ahead(r.log, r.meta.State, r.applied.Load())
	if err != nil {
		r.logger().Warn("log of a replica that is destroyed", errAttr(err))
		last.Blind = true
		return
	}
	last.Ahead = append(last.Ahead, ahead...)
}

// drop lets go of a replica whose tombstone is durable.
func (n *Node) drop(r *replica) {
	n.mu.Lock()
	if n.replicas[r.group] == r {
		delete(n.replicas, r.group)
	}
	n.mu.Unlock()
	if r.group == raftyard.SystemGroup {
		n.lifecycle.lost()
	}
	n.noteChange()
}
