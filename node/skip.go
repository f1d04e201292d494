package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard/group"
)

// An entry at which all state machines of a group fail can be skipped; see package group
// and decision 17. Here is what a replica does with that:
//
//	entry N comes to be applied ──▶ a skip of N is committed: noted durably, N is passed over
//	                            ──▶ a skip of N may be committed: stands still until it is known
//	                            ──▶ none: applied
//	the skip of N, at M, comes  ──▶ N was passed over here: fine
//	                            ──▶ N was applied here: the state is not what was decided, and
//	                                is thrown away for that of another
//	                            ──▶ stands still at N: opened again

// noteSkipped takes what a run passes over into the replica's record, and reports whether
// that has to be made durable.
func (r *replica) noteSkipped(ap *group.Apply) (changed bool) {
	if ap == nil || r.machine.logOnly.Load() {
		return false
	}
	for _, s := range ap.Skipped {
		if !slices.Contains(r.meta.Skips, s) {
			r.meta.Skips = append(r.meta.Skips, s)
			r.note("entry %d is skipped, by entry %d", s.Index, s.At)
			changed = true
		}
	}
	return changed
}

// dropSkips forgets those that are behind the floor, and behind what the log begins with,
// unless the log has a skip further on: that may be a second one of the same entry.
func (r *replica) dropSkips() {
	first, _ := r.log.Bounds()
	if r.meta.SkipAt >= first {
		return
	}
	r.meta.Skips = slices.DeleteFunc(r.meta.Skips, func(s group.Skip) bool {
		return s.At <= r.meta.Floor.Index && s.At < first
	})
}

// pass takes in which entries a run passes over. An error is why the state machine must
// not be given it: it has applied an entry that the group has skipped.
func (m *machine) pass(ts []task) error {
	for _, t := range ts {
		m.skips = append(m.skips, t.apply.Skipped...)
	}
	last := ts[len(ts)-1].apply
	for _, s := range last.Decided {
		if !slices.ContainsFunc(m.skips, func(o group.Skip) bool { return o.Index == s.Index }) {
			return contradicts(s)
		}
	}
	return nil
}

// contradicts is why a state cannot be used that an entry was applied to which is skipped.
func contradicts(s group.Skip) error {
	return faultyAt(DamagedState, s.At, 0,
		fmt.Errorf("the group has skipped entry %d, which was applied here", s.Index))
}

// stopped returns why the state machine must not go past a run that it has applied.
func stopped(ap *group.Apply) error {
	switch stop := ap.Stop; {
	case stop == nil:
		return nil
	case stop.Held:
		return &faultError{
			reason: PoisonEntry, index: stop.Index, term: stop.Term, held: true, err: errHeld,
		}
	default:
		return faultyAt(PoisonEntry, stop.Index, stop.Term, stop.Err)
	}
}

// noteDecided takes a skip that is committed into the record of a replica that is being
// opened again because of it. The state machine stood at the entry; it has not applied it,
// unless it failed after that.
func (n *Node) noteDecided(r *replica, s *group.Skip) error {
	if s == nil || r.machine.logOnly.Load() || slices.Contains(r.meta.Skips, *s) {
		return nil
	}
	switch at := max(r.machine.position.applied, r.machine.lastCommand); {
	case at >= s.At:
		return nil // it has taken over the state of another
	case at >= s.Index:
		n.standStill(r, contradicts(*s))
		r.own.wanted, r.own.from = true, s.At
		return nil
	}
	r.meta.Skips = append(r.meta.Skips, *s)
	r.note("entry %d is skipped, by entry %d", s.Index, s.At)
	return n.writeMeta(r)
}

// errHeld is why a state machine waits.
var errHeld = errors.New("the entry may have been skipped, which is not known yet")

// errBetween: a state is between an entry that was skipped and the one that says so.
var errBetween = fmt.Errorf("%w: the state is at an index at which others cannot tell that an "+
	"entry was skipped", ErrNotReady)

// between reports whether the state must not go to others: they would take the entry that
// was skipped for applied.
func (m *machine) between() bool {
	at := m.position.applied
	return slices.ContainsFunc(m.skips, func(s group.Skip) bool {
		return s.Index <= at && at < s.At
	})
}

// lookAtSkips has a replica opened again whose state machine stands at an entry that is
// skipped, or that it waited for in vain.
func (w *worker) lookAtSkips(r *replica) {
	f := r.machine.broken.Load()
	if f == nil || f.index == 0 || r.opening {
		return
	}
	s, decided, pending := r.raft.Skipped(f.index)
	switch {
	case decided:
		r.opening = true
		w.node.reopen(r, &reopening{skip: &s})
	case f.held && !pending: // another entry has taken the place of the skip
		r.opening = true
		w.node.reopen(r, &reopening{})
	}
}
