package check

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// Healed tells that no fault is left, and none comes any more: from now on there
// must be progress.
func (c *Checker) Healed() {
	for _, g := range c.order {
		if c.cfg.Now != nil {
			g.moved = c.cfg.Now()
		}
	}
}

// Unsettled returns what of the liveness rules does not hold yet, in a fixed order.
// It changes nothing: what is still missing after a fair time is reported by
// [Checker.Overdue]. It asks nothing of groups that have lost their majority.
func (c *Checker) Unsettled() []Violation {
	var u unsettled
	for _, g := range c.order {
		w, wanted := c.wishes[g.key.id]
		if wanted && (w.Deleted || w.Incarnation != g.key.incarnation) {
			u.gone(g)
			continue
		}
		u.group(c, g)
		if wanted {
			u.placed(c, g, w)
		}
	}
	for _, id := range sortedKeys(c.wishes) {
		w := c.wishes[id]
		g := c.groups[groupKey{id, w.Incarnation}]
		if !w.Deleted && (g == nil || len(g.changes) == 0) {
			u.add(Progress, "group %d was never founded", id)
		}
	}
	u.purged(c)
	u.drained(c)
	for _, id := range sortedKeys(c.requests) {
		u.add(Resolved, "request %d has no answer: %s", id, c.requests[id])
	}
	return u.list
}

// Overdue makes violations of whatever [Checker.Unsettled] returns.
func (c *Checker) Overdue() {
	for _, v := range c.Unsettled() {
		c.fail(v.Rule, "%s", v.Text)
	}
}

// Finished tells that all nodes are closed and no request is under way; leaks names
// what is left over.
//
// Rules 19, [Resolved], and 20, [NoLeaks].
func (c *Checker) Finished(leaks ...string) {
	for _, id := range sortedKeys(c.requests) {
		c.fail(Resolved, "request %d was never answered: %s", id, c.requests[id])
	}
	for _, leak := range leaks {
		c.fail(NoLeaks, "left over: %s", leak)
	}
}

// unsettled collects what does not hold yet.
type unsettled struct{ list []Violation }

func (u *unsettled) add(rule Rule, format string, args ...any) {
	u.list = append(u.list, violationf(rule, format, args...))
}

// gone: nothing is left of a group that was deleted.
//
// Rule 16, [Tidy].
func (u *unsettled) gone(g *groupState) {
	for _, s := range g.order {
		if s.shown && s.home.node.up {
			u.add(Tidy, "%v is still there, the group is deleted", s)
		}
	}
}

// group: a group with a healthy majority has a leader, which commits, and members
// that are as far as the leader.
//
// Rules 15, [Progress], 17, [CaughtUp], and 18, [AtRest].
func (u *unsettled) group(c *Checker, g *groupState) {
	if len(g.changes) == 0 {
		return
	}
	d := g.changes[len(g.changes)-1].members
	u.members(g, d)
	u.stopped(c, g, d)
	healthy := func(id raftyard.ReplicaID) bool {
		m, ok := d.Member(id)
		return ok && c.nodes[m.Node] != nil && c.nodes[m.Node].up && g.fit(m)
	}
	if !majority(d, healthy) {
		return
	}
	leader := g.leader()
	if leader == nil {
		u.add(Progress, "group %d has a majority of %s, and no leader", g.key.id, describe(d))
		return
	}
	if own, state := termAt(leader.log, leader.seen.commit); state != present ||
		own != leader.seen.term {
		u.add(Progress, "%v leads term %d, in which nothing is committed", leader, leader.seen.term)
	}
	for _, m := range d.Members {
		if healthy(m.ID) {
			u.caughtUp(g, m, leader)
		}
	}
	if c.cfg.Now != nil && c.cfg.Now()-g.moved < c.cfg.Rest {
		u.add(AtRest, "group %d has changed its leader or term at %v", g.key.id, g.moved)
	}
}

// members: whatever there is of the group is a member. Another may just be on its way
// to a node that has one of its predecessors.
//
// Rule 16, [Tidy]: no replica that was removed is left anywhere, and none that was lost
// with its disk is a member.
func (u *unsettled) members(g *groupState, d group.Descriptor) {
	for _, s := range g.order {
		_, member := d.Member(s.id)
		switch n := s.home.node; {
		case !member && s.shown && n.up && !s.lost:
			u.add(Tidy, "%v is still there, and is no member of %s", s, describe(d))
		case member && s.lost && n.up && s.home.disk != n.disk:
			u.add(Tidy, "%v was lost with its disk, and is still a member of %s", s, describe(d))
		}
	}
}

// stopped: no member stays stopped that has lost nothing. What a disk loses may stop a replica
// elsewhere for a while, and not for ever.
//
// Rule 14, [Quarantine].
func (u *unsettled) stopped(c *Checker, g *groupState, d group.Descriptor) {
	for _, m := range d.Members {
		s := g.replicas[m.ID]
		if s != nil && s.shown && !s.seen.serving && !s.dead && !s.lost && !s.excused &&
			c.nodes[m.Node] != nil && c.nodes[m.Node].up {
			u.add(Quarantine, "%v is stopped still, though it has lost nothing", s)
		}
	}
}

// fit reports whether a member can take part: it has lost nothing, and is not
// stopped. One that is not there yet still has to come.
func (g *groupState) fit(m group.Member) bool {
	s := g.replicas[m.ID]
	return s == nil || !s.dead && !s.lost && !s.excused && (!s.shown || s.seen.serving)
}

// leader returns the leader of the newest term, if there is one.
func (g *groupState) leader() *replicaState {
	var leader *replicaState
	for _, s := range g.order {
		if s.shown && s.seen.serving && s.seen.role == group.Leader &&
			(leader == nil || s.seen.term > leader.seen.term) {
			leader = s
		}
	}
	return leader
}

// starves reports whether a replica needs a state that nobody has who is awake: the state
// machines that have it are those of other starts. Who is awake and lacks it is no help.
func (g *groupState) starves(s, leader *replicaState) bool {
	first := leader.seen.durableFirst
	return s != nil && s.shown && s.seen.last+1 < first &&
		g.asleep(func(o *replicaState) bool { return o.seen.applied+1 >= first })
}

// sleeps reports whether every replica that has taken part in the group sleeps.
func (g *groupState) sleeps() bool {
	return g.asleep(func(*replicaState) bool { return true })
}

// asleep reports whether there are such replicas among those that have taken part in the
// group, and all of them sleep.
func (g *groupState) asleep(such func(*replicaState) bool) bool {
	asleep := false
	for _, s := range g.order {
		if s.shown && s.seen.serving && s.seen.members > 0 && such(s) {
			if !s.seen.asleep {
				return false
			}
			asleep = true
		}
	}
	return asleep
}

// caughtUp: a member has applied all that is committed, and every write that was
// acknowledged.
func (u *unsettled) caughtUp(g *groupState, m group.Member, leader *replicaState) {
	s := g.replicas[m.ID]
	switch {
	case g.starves(s, leader):
	case s == nil || !s.shown:
		u.add(CaughtUp, "group %d: member %d is not on node %d", g.key.id, m.ID, m.Node)
	case s.seen.commit < leader.seen.commit || s.seen.applied < leader.seen.commit:
		u.add(CaughtUp, "%v has committed %d and applied %d, the leader has committed %d",
			s, s.seen.commit, s.seen.applied, leader.seen.commit)
	case s.machine.open && s.machine.index < g.acked:
		u.add(AckedSurvives, "%v has applied commands up to %d, one at %d was acknowledged",
			s, s.machine.index, g.acked)
	}
}
