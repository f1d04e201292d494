package node

import (
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// A change of members leaves a joint configuration behind for a moment, and learners that
// are to be voters, or to go. The group's leader goes on from there by itself. What is
// there for long all the same waits for something that may never come, and somebody should
// look at it. Every replica notes what it sees, not the leader alone: whoever leads next
// then knows since when, and so do those that have no leader.

const (
	// jointPatience is how long a group may be in a joint configuration.
	jointPatience = time.Minute
	// orphanPatience is how long a learner may be there that is not to be one. It may need
	// as long for a large state.
	orphanPatience = 10 * time.Minute
)

// halfway is since when a replica has seen its group between two memberships.
type halfway struct {
	epoch   uint64 // of the joint configuration
	joint   time.Time
	orphans map[raftyard.ReplicaID]time.Time
}

// lingering is what a replica publishes of that, unless it is nothing. A zero time says that
// there is none.
type lingering struct {
	joint  time.Time
	orphan time.Time // of the learner that is there for longest
}

// look notes what there is now, of which unwanted says whether a learner is not to be one.
func (h *halfway) look(
	d *group.Descriptor, unwanted func(group.Member) bool, now time.Time,
) (l lingering) {
	switch {
	case !d.IsJoint():
		h.joint = time.Time{}
	case h.joint.IsZero() || h.epoch != d.Epoch:
		h.joint, h.epoch = now, d.Epoch
	}
	l.joint = h.joint
	var orphans map[raftyard.ReplicaID]time.Time
	for _, m := range d.Members {
		if m.Role != group.Learner || !unwanted(m) {
			continue
		}
		since, known := h.orphans[m.ID]
		if !known {
			since = now
		}
		if orphans == nil {
			orphans = make(map[raftyard.ReplicaID]time.Time)
		}
		orphans[m.ID] = since
		if l.orphan.IsZero() || since.Before(l.orphan) {
			l.orphan = since
		}
	}
	h.orphans = orphans
	return l
}

// lookHalfway publishes what is to be seen of a change of members.
func (w *worker) lookHalfway(r *replica) {
	now := r.halfway.look(&r.meta.State.Descriptor, func(m group.Member) bool {
		return r.steering.holds(r) && isOrphan(m, r.steering.want)
	}, w.node.world.now())
	old := r.lingers.Load()
	switch {
	case now == lingering{}: // as in most groups at most times
		if old != nil {
			r.lingers.Store(nil)
		}
	case old == nil || *old != now:
		r.lingers.Store(&now)
	}
}

// isOrphan reports whether a member is a learner and not wanted as one.
func isOrphan(m group.Member, want *registry.Group) bool {
	return m.Role == group.Learner && !slices.Contains(want.Learners, m.Node)
}

// fillHalfway tells for how long the group has been halfway. That holds on every clock.
func (rep *replicaReport) fillHalfway(l *lingering, now time.Time) {
	if l == nil {
		return
	}
	if !l.joint.IsZero() {
		rep.Joint = now.Sub(l.joint)
	}
	if !l.orphan.IsZero() {
		rep.Orphan = now.Sub(l.orphan)
	}
}

// addHalfway adds what lingers of a change of members. Those count who know the present
// members, d.
func (s *GroupSummary) addHalfway(
	d *group.Descriptor, rec *registry.Group, reps []replicaReport, now time.Time,
) {
	var joint, orphan time.Duration
	for i := range reps {
		rep := &reps[i]
		if rep.Incarnation == s.Incarnation && rep.Epoch == s.Epoch {
			joint, orphan = max(joint, rep.Joint), max(orphan, rep.Orphan)
		}
	}
	// Somebody may not know yet that it is wanted. What the system group is to be, its
	// leader alone knows.
	unwanted := s.ID == raftyard.SystemGroup ||
		slices.ContainsFunc(d.Members, func(m group.Member) bool { return isOrphan(m, rec) })
	s.addSince(d.IsJoint() && joint > jointPatience, "joint", now.Add(-joint))
	s.addSince(unwanted && orphan > orphanPatience, "orphan_learner", now.Add(-orphan))
}

// addSince is addProblem with the time at which it began.
func (s *GroupSummary) addSince(has bool, word string, since time.Time) {
	s.addProblem(has, word)
	if !has {
		return
	}
	if s.Since == nil {
		s.Since = make(map[string]time.Time)
	}
	s.Since[word] = since.UTC().Truncate(time.Second)
}
