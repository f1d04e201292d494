package check

import (
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// placed: the members are where they are wanted, and nothing else of the group is.
// While a node of the wish is down its member cannot come, and nobody can become a voter
// while all who have the state sleep: then only what does not need them is asked for.
//
// Rule 16, [Tidy]: no group is joint, no learner is left over, and no replica that
// was removed.
func (u *unsettled) placed(c *Checker, g *groupState, w Wish) {
	if len(g.changes) == 0 {
		return
	}
	d := g.changes[len(g.changes)-1].members
	if d.IsJoint() {
		u.add(Tidy, "group %d is joint: %s", g.key.id, describe(d))
	}
	nodes := slices.Concat(w.Voters, w.Learners, w.Nodes)
	for _, s := range g.order {
		if s.shown && s.home.node.up && !slices.Contains(nodes, s.home.node.id) && !s.lost &&
			!g.keeps(s, d, w) {
			u.add(Tidy, "%v is not wanted there", s)
		}
	}
	if g.sleeps() {
		return
	}
	for _, id := range nodes {
		if n := c.nodes[id]; n == nil || !n.up {
			return
		}
	}
	voters, learners := membersOn(d, group.Voter), membersOn(d, group.Learner)
	if len(w.Nodes) > 0 {
		if !slices.Equal(sorted(slices.Concat(voters, learners)), sorted(w.Nodes)) {
			u.add(Tidy, "group %d has %s, wanted are members on %v", g.key.id, describe(d), w.Nodes)
		}
		return
	}
	if !slices.Equal(voters, sorted(w.Voters)) || !slices.Equal(learners, sorted(w.Learners)) {
		u.add(Tidy, "group %d has %s, wanted are voters %v and learners %v",
			g.key.id, describe(d), w.Voters, w.Learners)
	}
}

// keeps reports whether a voter that is not wanted has to wait for one that is wanted in its
// place, and cannot become a voter because all who have the state sleep. Those that are
// wanted and those that are not change places in one step.
func (g *groupState) keeps(s *replicaState, d group.Descriptor, w Wish) bool {
	m, member := d.Member(s.id)
	voters := membersOn(d, group.Voter)
	return member && m.Role == group.Voter && g.sleeps() &&
		slices.ContainsFunc(w.Voters, func(id raftyard.NodeID) bool {
			return !slices.Contains(voters, id)
		})
}

// Drained tells whether a node shall lead nothing from now on.
func (c *Checker) Drained(node raftyard.NodeID, drained bool) { c.node(node).drained = drained }

// drained: a node that shall lead nothing leads nothing that a voter on another node
// could lead.
//
// Rule 16, [Tidy].
func (u *unsettled) drained(c *Checker) {
	for _, g := range c.order {
		leader := g.leader()
		if leader == nil || !leader.home.node.drained || !leader.home.node.up {
			continue
		}
		for _, m := range g.changes[len(g.changes)-1].members.Voters() {
			if n := c.nodes[m.Node]; n != nil && n.up && !n.drained && !n.lacks && g.fit(m) {
				u.add(Tidy, "%v leads, and is drained: replica %d on node %d could",
					leader, m.ID, n.id)
				break
			}
		}
	}
}

// membersOn returns the nodes of the members with a role.
func membersOn(d group.Descriptor, role group.Role) []raftyard.NodeID {
	var nodes []raftyard.NodeID
	for _, m := range d.Members {
		if m.Role == role {
			nodes = append(nodes, m.Node)
		}
	}
	return sorted(nodes)
}

func sorted(nodes []raftyard.NodeID) []raftyard.NodeID {
	return slices.Sorted(slices.Values(nodes))
}
