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
		case l.node.purging(c.group) && !l.node.setAside(c.group), l.isOpening(c.group):
			l.postpone(c)
		case l.creatable(c):
			ws = append(ws, l.createWrite(c))
			made = append(made, c)
		}
	}
	for i, err := range l.node.committer.wait(ws) {
		switch {
		case err != nil:
			l.postpone(made[i])
		case made[i].genesis != nil:
			l.openBeside(made[i].group)
		default:
			err = l.node.openReplica(made[i].group)
		}
		l.notStarted(made[i].group, err)
	}
}

func (l *lifecycle) notStarted(g raftyard.GroupID, err error) {
	if err != nil {
		l.node.logger.Error("replica not started", groupAttr(g), errAttr(err))
	}
}

// openBeside opens a replica that begins with a state, and so with a state machine. An
// applier does it: how long a state machine takes to open, and whether it ever does, must
// concern its own group and nobody else. Until then the replica is on the disk alone.
func (l *lifecycle) openBeside(g raftyard.GroupID) {
	st, ok := l.node.store.Replica(g)
	if !ok || st.Tombstone != nil {
		return
	}
	l.setOpening(g, true)
	r := l.node.newReplica(st)
	l.node.appliers.add(r, task{run: func(*machine) {
		l.notStarted(g, l.node.bringUp(r, st, known{}))
		l.setOpening(g, false)
		l.attend(r) // the group may have been deleted meanwhile,
		l.poke()    // and be there again
	}})
}

func (l *lifecycle) setOpening(g raftyard.GroupID, opening bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if opening {
		l.opening[g] = true
	} else {
		delete(l.opening, g)
	}
}

func (l *lifecycle) isOpening(g raftyard.GroupID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opening[g]
}

// postpone keeps a founding for a later round: what a former replica stored here may not
// be deleted yet, or the log store has not taken it. For other replicas the message that
// asks for them comes again.
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
