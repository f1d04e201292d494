package node

import (
	"cmp"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// systemNode is what matters of a node to who shall be a member of the system group.
type systemNode struct {
	id    raftyard.NodeID
	state registry.NodeState
	live  bool // connected
	empty bool // of a leaving one: no group has a member on it any more
}

// systemWant returns the members that the system group shall have, from those that it
// has and the nodes that are registered, in the order of their ids. Every node is a
// member, for every node has to read the registry; the voters are as many as the
// largest odd number up to five and up to the number of nodes that stay.
//
//   - Voters stay, whether they answer or not: they are exchanged only when they leave.
//   - A learner becomes a voter while it is connected, and not by making the voters an
//     even number.
//   - A voter that leaves goes when enough others are voters. Until then it stays, if it
//     is connected. After that it is a learner, for as long as groups need it.
//   - There are no fewer voters than one: if all nodes leave, nothing changes, and if
//     nobody is there to follow, the voters stay.
//   - When all voters are drained, one of them makes place for a node that is not.
//
// A cluster that is as it returns is left as it is.
func systemWant(d group.Descriptor, nodes []systemNode) group.Want {
	p := newSystemPlan(d, nodes)
	if p.stay == 0 {
		return wantOf(d)
	}
	p.keepVoters()
	p.addVoters()
	p.holdLeaving()
	p.evenOut()
	p.exchangeDrained()
	if len(p.voters) == 0 {
		for _, m := range d.Voters() {
			p.voters = append(p.voters, p.find(m.Node))
		}
	}
	return p.result()
}

type systemPlan struct {
	d      group.Descriptor
	nodes  []systemNode
	stay   int // nodes that do not leave
	target int // how many voters there shall be

	voters []systemNode // those that stay, then newcomers, then those that leave
	added  int          // how many newcomers there are
}

func newSystemPlan(d group.Descriptor, nodes []systemNode) *systemPlan {
	p := &systemPlan{d: d, nodes: nodes}
	for _, n := range nodes {
		if n.stays() {
			p.stay++
		}
	}
	p.target = systemVoters(p.stay)
	return p
}

// systemVoters is how many voters the system group has among so many nodes: the largest
// odd number up to five.
func systemVoters(nodes int) int {
	n := min(nodes, maxSystemVoters)
	return n - (n+1)%2
}

func (n systemNode) stays() bool {
	return n.state == registry.NodeActive || n.state == registry.NodeDrained
}

// find returns the node with the id; one that is not registered leaves.
func (p *systemPlan) find(id raftyard.NodeID) systemNode {
	i := slices.IndexFunc(p.nodes, func(n systemNode) bool { return n.id == id })
	if i < 0 {
		return systemNode{id: id, state: registry.NodeRemoved, empty: true}
	}
	return p.nodes[i]
}

func (p *systemPlan) votes(id raftyard.NodeID) bool {
	return slices.ContainsFunc(p.voters, func(n systemNode) bool { return n.id == id })
}

// keepVoters takes the voters that there are. Of too many, those stay that can be made
// use of, and of these the oldest.
func (p *systemPlan) keepVoters() {
	for _, m := range p.d.Voters() {
		if n := p.find(m.Node); n.stays() {
			p.voters = append(p.voters, n)
		}
	}
	if len(p.voters) > p.target {
		slices.SortStableFunc(p.voters, byUse)
		p.voters = p.voters[:p.target]
	}
}

// byUse puts first who is connected, and before others who is not drained.
func byUse(a, b systemNode) int {
	return cmp.Or(boolCompare(b.live, a.live),
		boolCompare(a.state == registry.NodeDrained, b.state == registry.NodeDrained))
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// spares are the nodes that could be voters and are none, the most useful ones first.
func (p *systemPlan) spares() []systemNode {
	var list []systemNode
	for _, n := range p.nodes {
		if n.stays() && n.live && !p.votes(n.id) {
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, byUse)
	return list
}

func (p *systemPlan) addVoters() {
	for _, n := range p.spares() {
		if len(p.voters) < p.target {
			p.voters = append(p.voters, n)
			p.added++
		}
	}
}

// holdLeaving keeps voters that leave for as long as there are too few without them.
func (p *systemPlan) holdLeaving() {
	for _, m := range p.d.Voters() {
		n := p.find(m.Node)
		if n.state == registry.NodeLeaving && n.live && len(p.voters) < p.target {
			p.voters = append(p.voters, n)
		}
	}
}

// evenOut lets one of those who leave go, or leaves one newcomer out, if newcomers make
// the voters an even number.
func (p *systemPlan) evenOut() {
	if len(p.voters)%2 == 0 && p.added > 0 {
		p.voters = p.voters[:len(p.voters)-1]
	}
}

// exchangeDrained makes sure that somebody may lead.
func (p *systemPlan) exchangeDrained() {
	for _, n := range p.voters {
		if n.state == registry.NodeActive {
			return
		}
	}
	for _, n := range p.spares() {
		if n.state == registry.NodeActive && len(p.voters) > 0 {
			slices.SortStableFunc(p.voters, byUse)
			p.voters[len(p.voters)-1] = n
			return
		}
	}
}

func (p *systemPlan) result() group.Want {
	var want group.Want
	for _, n := range p.voters {
		want.Voters = append(want.Voters, n.id)
	}
	for _, n := range p.nodes {
		_, member := p.d.MemberOn(n.id)
		leaving := n.state == registry.NodeLeaving && member && !n.empty
		if !p.votes(n.id) && (n.stays() || leaving) {
			want.Learners = append(want.Learners, n.id)
		}
	}
	slices.Sort(want.Voters)
	slices.Sort(want.Learners)
	return want
}
