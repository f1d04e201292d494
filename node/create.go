package node

import (
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// createAll makes replicas that can be made now.
func (l *lifecycle) createAll(cs map[raftyard.GroupID]creation) {
	var made []creation
	ws := make([]write, 0, len(cs))
	for _, g := range slices.Sorted(maps.Keys(cs)) {
		c := cs[g]
		switch {
		case l.node.purging(c.group) && !l.node.setAside(c.group):
			l.postpone(c)
		case l.creatable(c):
			ws = append(ws, l.createWrite(c))
			made = append(made, c)
		}
	}
	for i, err := range l.node.committer.wait(ws) {
		if err == nil {
			err = l.node.openReplica(made[i].group)
		}
		if err != nil {
			l.node.logger.Error("replica not started", groupAttr(made[i].group), errAttr(err))
		}
	}
}

// postpone keeps a founding until what a former replica stored here is deleted.
// For other replicas the message that asks for them comes again.
func (l *lifecycle) postpone(c creation) {
	if c.genesis == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, queued := l.creates[c.group]; !queued {
		l.creates[c.group] = c
	}
}

// creatable looks again: the round before may have changed what was true when
// the creation was asked for.
func (l *lifecycle) creatable(c creation) bool {
	if r := l.node.replica(c.group); r != nil {
		// A later replica of the group on this node: the one here was removed, and has not
		// been told. Whoever vouches for the later one can prove that.
		if r.incarnation == c.incarnation && r.id < c.id {
			at := r.view.Load().State.Descriptor.Epoch
			if epoch, proven := c.vouched.proves(r.id, at); proven {
				l.destroy(r, r.bygone(epoch, c.id))
			}
		}
		return false
	}
	if c.group != raftyard.SystemGroup && !l.exists(c.group, c.incarnation) {
		return false // it is deleted by now
	}
	st, ok := l.node.store.Replica(c.group)
	return !ok || st.Incarnation != c.incarnation ||
		(st.Tombstone != nil && c.id >= st.Tombstone.NextReplica)
}

func (l *lifecycle) createWrite(c creation) write {
	w := write{
		kind: writeCreate, group: c.group,
		replica: storage.Replica{Group: c.group, Incarnation: c.incarnation, ID: c.id},
	}
	var m meta
	if c.group == raftyard.SystemGroup {
		// A former replica may have noted something, and some may have come meanwhile.
		ns := l.node.mergeNotes(l.node.noted.load())
		m.Stores, m.StoresAt = ns.list, ns.at
	}
	if c.genesis != nil {
		snap, hs := group.Genesis(*c.genesis)
		m.State = group.State{Descriptor: *c.genesis, Index: snap.GetMetadata().GetIndex()}
		m.Floor = floor{Index: snap.GetMetadata().GetIndex(), Term: snap.GetMetadata().GetTerm()}
		w.update = storage.Update{HardState: hs, Snapshot: snap, Reset: true}
	}
	m.NoMachine = l.node.kindMissing(c)
	w.update.Meta = m.encode()
	w.replica.Meta = w.update.Meta
	return w
}
