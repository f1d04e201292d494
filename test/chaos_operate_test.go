//go:build unix

package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// operatorTimeout bounds what an operator asks for, and extraGroups is the first id
// of the groups that operators create and delete.
const (
	operatorTimeout = 4 * time.Second
	extraGroups     = 1000
)

// operate is one operator: somebody who moves groups, hands over leaderships, takes
// snapshots, drains nodes, has nodes follow groups, creates groups and deletes them, at
// random, whatever else goes on.
func (x *chaos) operate(dice *rand.Rand, operator uint64) {
	for i := uint64(0); x.hold(within(dice, 50*time.Millisecond, 1200*time.Millisecond)); i++ {
		n := x.some(dice, 1)[0]
		g := x.groups[dice.IntN(len(x.groups))]
		to := x.some(dice, 1)[0].ID()
		want := x.members(dice)
		x.still.RLock()
		begun := time.Now()
		switch draw := dice.IntN(100); {
		case draw < 32:
			a := n.Transfer(x.t.Context(), g, to, operatorTimeout)
			x.done("transfer", begun, a, "group %d to node %d", g, to)
		case draw < 62:
			a := n.SetMembers(x.t.Context(), g, want, operatorTimeout)
			x.done("members", begun, a, "group %d to %v and %v", g, want.Voters, want.Learners)
		case draw < 82:
			a := n.Snapshot(x.t.Context(), g, operatorTimeout)
			x.done("snapshot", begun, a, "group %d on node %d", g, n.ID())
		case draw < 86:
			x.drained(dice, n, to)
		case draw < 90:
			x.follows(dice, n, g, to)
		default:
			x.passing(n, raftyard.GroupID(extraGroups+i*operators+operator), want)
		}
		x.still.RUnlock()
	}
}

// drained drains a node, and lets it lead again after a while.
func (x *chaos) drained(dice *rand.Rand, n *cluster.Node, id raftyard.NodeID) {
	begun := time.Now()
	a := n.Drain(x.t.Context(), id, operatorTimeout)
	x.done("drain", begun, a, "node %d", id)
	x.hold(within(dice, 0, 5*time.Second))
	begun = time.Now()
	a = n.Undrain(x.t.Context(), id, operatorTimeout)
	x.done("undrain", begun, a, "node %d", id)
}

// follows has a node follow a group for a while.
func (x *chaos) follows(
	dice *rand.Rand, n *cluster.Node, g raftyard.GroupID, id raftyard.NodeID,
) {
	begun := time.Now()
	a := n.Attach(x.t.Context(), g, id, operatorTimeout)
	x.done("attach", begun, a, "node %d to group %d", id, g)
	x.hold(within(dice, 0, 3*time.Second))
	begun = time.Now()
	a = n.Detach(x.t.Context(), g, id, operatorTimeout)
	x.done("detach", begun, a, "node %d from group %d", id, g)
}

// undrainAll lets every node lead again, whatever operators have left.
func (x *chaos) undrainAll() {
	x.t.Helper()
	for _, n := range x.c.Nodes() {
		cluster.Eventually(x.t, settleLimit, "the nodes may lead again", func() error {
			return n.Undrain(x.t.Context(), n.ID(), operatorTimeout).Error()
		})
	}
}

// done writes down what an operator did.
func (x *chaos) done(what string, begun time.Time, a cluster.Answer, format string, args ...any) {
	x.operated.note(0, a)
	name := fmt.Sprintf("%s: %v", what, a.Outcome)
	x.faults.note(name, begun, fmt.Sprintf(format, args...)+" "+a.Why)
}

// members draws the members that a group is to have.
func (x *chaos) members(dice *rand.Rand) client.Members {
	nodes := ids(x.some(dice, chaosNodes))
	voters := 3
	switch draw := dice.IntN(10); {
	case draw < 1:
		voters = 1
	case draw < 3:
		voters = chaosNodes
	case draw < 4:
		voters = 2
	}
	m := client.Members{Voters: slices.Clone(nodes[:voters])}
	if voters < chaosNodes && dice.IntN(3) == 0 {
		m.Learners = nodes[voters : voters+1]
	}
	slices.Sort(m.Voters)
	return m
}

// passing creates a group and deletes it. Whatever comes of it, the group must be
// gone in the end if its deletion was acknowledged.
func (x *chaos) passing(n *cluster.Node, g raftyard.GroupID, m client.Members) {
	spec := kvGroup(m.Voters...)
	spec.Learners = m.Learners
	begun := time.Now()
	a := n.Create(x.t.Context(), g, spec)
	x.done("create", begun, a, "group %d on %v", g, m.Voters)
	if a.Outcome == cluster.NotApplied {
		return
	}
	begun = time.Now()
	a = n.Delete(x.t.Context(), g)
	x.done("delete", begun, a, "group %d", g)
	if a.Outcome == cluster.Applied {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.gone = append(x.gone, g)
	}
}
