package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// What a node that leaves waits for, in words: which groups, why, and what somebody can do.

// maxNamedGroups bounds the groups that a text names.
const maxNamedGroups = 5

// leaveProblem says what a leaving node still waits for.
func (n *Node) leaveProblem(rec *registry.Node) string {
	p := n.newDeparture(rec)
	if p.load[rec.ID] == 0 {
		return "no group wants a member there any more; it is removed when none has one"
	}
	blocked := make(map[string][]raftyard.GroupID)
	promote := ""
	for g := range n.registry.All() {
		if !wants(&g, rec.ID) {
			continue
		}
		if _, _, why := p.without(&g); why != "" {
			blocked[why] = append(blocked[why], g.ID)
			if why == onlyLearners && promote == "" {
				promote = p.promotion(&g)
			}
		}
	}
	return amount(p.load[rec.ID], "group wants", "groups want") + " a member there" +
		blockedText(blocked, promote)
}

// blockedText says which groups wait for somebody, and what he can do.
func blockedText(blocked map[string][]raftyard.GroupID, promote string) (text string) {
	for _, of := range []struct{ why, what, todo string }{
		{
			nobodyElse, "no other node is there for ",
			"let one join or come back, or force this one out, at the price of a voter",
		},
		{
			onlyLearners, "the only other nodes have learners of ",
			"make one of them a voter, such as by " + promote +
				", or let another node join or come back",
		},
		{
			onlyVoter, "it is the only voter, and no other node is there, for ",
			"let one join or come back, or delete what is not to be kept",
		},
		{
			deadVoter, "it was the only voter, and is not live, for ",
			"bring it back, or delete by force what is to be given up",
		},
	} {
		if ids := blocked[of.why]; len(ids) > 0 {
			text += "; " + of.what + nameGroups(ids) + ": " + of.todo
		}
	}
	return text
}

// promotion is the command that makes a learner of a group a voter in the place of the one
// on the node that leaves.
func (p *departure) promotion(g *registry.Group) string {
	left := func(id raftyard.NodeID) bool { return id == p.id }
	to := p.learnerToPromote(g.Learners)
	voters := append(slices.DeleteFunc(slices.Clone(g.Voters), left), to)
	slices.Sort(voters)
	text := fmt.Sprintf("raftyard member set %d --voters %s", g.ID, joinIDs(voters, ","))
	learners := slices.DeleteFunc(slices.Clone(g.Learners), func(id raftyard.NodeID) bool {
		return left(id) || id == to
	})
	if len(learners) > 0 {
		text += " --learners " + joinIDs(learners, ",")
	}
	return text
}

// keptBy says which groups a leaving node waits for that none wants a member on.
func (n *Node) keptBy(ctx context.Context, rec *registry.Node, st *NodeStatus) string {
	if rec.State != registry.NodeLeaving || n.newDeparture(rec).load[rec.ID] > 0 {
		return st.Problem
	}
	with, err := n.groupsWith(ctx, rec, st.Live && st.Replicas == 0)
	switch {
	case err != nil:
		return st.Problem
	case len(with) == 0 && st.Live && st.Replicas > 0:
		return "no group has a member there any more, but the node still has " +
			amount(st.Replicas, "replica", "replicas") + " that it is asked to destroy"
	case len(with) == 0:
		return st.Problem
	}
	return fmt.Sprintf("a member there, or no leader to say that there is none: %s; it goes on by "+
		"itself when the nodes of the other members are there", nameGroups(with))
}

// nameGroups lists ids in words: group 7, or groups 7 and 8.
func nameGroups(ids []raftyard.GroupID) string {
	if len(ids) == 1 {
		return "group " + ids[0].String()
	}
	return "groups " + nameSome(ids)
}

// nameSome lists ids, and not too many.
func nameSome(ids []raftyard.GroupID) string {
	text := joinIDs(ids[:min(len(ids), maxNamedGroups)], ", ")
	if more := len(ids) - maxNamedGroups; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func joinIDs[T fmt.Stringer](ids []T, sep string) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return strings.Join(names, sep)
}

// amount says how many there are of something.
func amount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
