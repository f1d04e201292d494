package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// parseNodes reads nodes such as "1 2- 3d 4l- 5le": d drained, l leaving, e empty, - not
// connected.
func parseNodes(t *testing.T, text string) []systemNode {
	t.Helper()
	var nodes []systemNode
	for word := range strings.FieldsSeq(text) {
		n := systemNode{live: true}
		for _, c := range word {
			switch {
			case c >= '0' && c <= '9':
				n.id = n.id*10 + raftyard.NodeID(c-'0')
			case c == 'd':
				n.state = registry.NodeDrained
			case c == 'l':
				n.state = registry.NodeLeaving
			case c == 'e':
				n.empty = true
			case c == '-':
				n.live = false
			default:
				t.Fatalf("node %q", word)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// systemMembers makes a descriptor with a member on each node, voters first.
func systemMembers(voters, learners []raftyard.NodeID) group.Descriptor {
	var d group.Descriptor
	for _, id := range voters {
		d.Members = append(d.Members, group.Member{
			ID: raftyard.ReplicaID(len(d.Members) + 1), Node: id, Role: group.Voter,
		})
	}
	for _, id := range learners {
		d.Members = append(d.Members, group.Member{
			ID: raftyard.ReplicaID(len(d.Members) + 1), Node: id, Role: group.Learner,
		})
	}
	return d
}

func TestSystemWant(t *testing.T) {
	ids := func(list ...raftyard.NodeID) []raftyard.NodeID { return list }
	tests := []struct {
		name     string
		voters   []raftyard.NodeID
		learners []raftyard.NodeID
		nodes    string
		want     string // voters / learners
	}{
		{"alone", ids(1), nil, "1", "[1] []"},
		{"three", ids(1, 2, 3), nil, "1 2 3", "[1 2 3] []"},
		{"a founding of two", ids(1, 2), nil, "1 2", "[1] [2]"},
		{"one joins one", ids(1), nil, "1 2", "[1] [2]"},
		{"two join one", ids(1), ids(2), "1 2 3", "[1 2 3] []"},
		{"two join one, and one is not there yet", ids(1), ids(2), "1 2 3-", "[1] [2 3]"},
		{"a fourth", ids(1, 2, 3), nil, "1 2 3 4", "[1 2 3] [4]"},
		{"a fifth", ids(1, 2, 3), ids(4), "1 2 3 4 5", "[1 2 3 4 5] []"},
		{"a fifth that was never started", ids(1, 2, 3), ids(4), "1 2 3 4 5-", "[1 2 3] [4 5]"},
		{"more than five", ids(1, 2, 3, 4, 5), nil, "1 2 3 4 5 6 7", "[1 2 3 4 5] [6 7]"},
		{"a voter is down", ids(1, 2, 3), ids(4), "1 2- 3 4", "[1 2 3] [4]"},
		{"a learner is down", ids(1, 2, 3), ids(4, 5), "1 2 3 4- 5-", "[1 2 3] [4 5]"},
		{"a voter is drained", ids(1, 2, 3), ids(4), "1 2d 3 4", "[1 2 3] [4]"},
		{"all voters are drained", ids(1, 2, 3), ids(4), "1d 2d 3d 4", "[1 2 4] [3]"},
		{"the only voter is drained", ids(1), ids(2), "1d 2", "[2] [1]"},
		{"all are drained", ids(1), ids(2), "1d 2d", "[1] [2]"},
		{
			"all voters are drained, and the others are down",
			ids(1, 2, 3), ids(4), "1d 2d 3d 4-", "[1 2 3] [4]",
		},
		{"a voter leaves, another takes over", ids(1, 2, 3), ids(4), "1 2 3l 4", "[1 2 4] [3]"},
		{"a voter has left, empty", ids(1, 2, 3), ids(4), "1 2 3le 4", "[1 2 4] []"},
		{"a voter leaves, the other is down", ids(1, 2, 3), ids(4), "1 2 3l 4-", "[1 2 3] [4]"},
		{
			"a dead voter leaves, the other is down",
			ids(1, 2, 3), ids(4), "1 2 3l- 4-", "[1 2] [3 4]",
		},
		{"a voter leaves, there is no other", ids(1, 2, 3), nil, "1 2 3l", "[1] [2 3]"},
		{"a voter leaves two", ids(1), ids(2), "1l 2", "[2] [1]"},
		{"the rest are down", ids(1), ids(2, 3, 4), "1l 2 3- 4-", "[2] [1 3 4]"},
		{"a voter of five leaves", ids(1, 2, 3, 4, 5), nil, "1 2 3 4 5le", "[1 2 3] [4]"},
		{"of two too many the one that is down", ids(1, 2), nil, "1- 2", "[2] [1]"},
		{"of two too many the drained one", ids(1, 2), nil, "1d 2", "[2] [1]"},
		{"all leave", ids(1, 2, 3), ids(4), "1l 2l 3l 4l", "[1 2 3] [4]"},
		{"nobody is registered", ids(1, 2, 3), nil, "", "[1 2 3] []"},
		{"a learner leaves", ids(1, 2, 3), ids(4), "1 2 3 4l", "[1 2 3] [4]"},
		{"a learner has left", ids(1, 2, 3), ids(4), "1 2 3 4le", "[1 2 3] []"},
		{"one that has left is not taken back", ids(1, 2, 3), nil, "1 2 3 4l", "[1 2 3] []"},
		{"a removed member", ids(1, 2, 3), ids(9), "1 2 3", "[1 2 3] []"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := systemMembers(tt.voters, tt.learners)
			want := systemWant(d, parseNodes(t, tt.nodes))
			got := fmt.Sprint(want.Voters, " ", want.Learners)
			if got != tt.want {
				t.Errorf("systemWant = %s, want %s", got, tt.want)
			}
		})
	}
}

// genSystem draws a cluster: any members, and any nodes.
func genSystem(t *rapid.T) (group.Descriptor, []systemNode) {
	var nodes []systemNode
	var voters, learners []raftyard.NodeID
	for id := range raftyard.NodeID(rapid.IntRange(1, 9).Draw(t, "nodes")) {
		n := systemNode{id: id + 1}
		n.state = registry.NodeState(rapid.IntRange(0, 2).Draw(t, "state"))
		n.live = rapid.Bool().Draw(t, "live")
		n.empty = n.state == registry.NodeLeaving && rapid.Bool().Draw(t, "empty")
		switch rapid.IntRange(0, 3).Draw(t, "member") {
		case 0, 1:
			voters = append(voters, n.id)
		case 2:
			learners = append(learners, n.id)
		}
		if rapid.IntRange(0, 9).Draw(t, "registered") > 0 {
			nodes = append(nodes, n)
		}
	}
	if len(voters) == 0 {
		voters = append(voters, 10)
	}
	d := systemMembers(rapid.Permutation(voters).Draw(t, "voters"), learners)
	return d, nodes
}

// after is the group once it has the members that are wanted: who stays keeps its
// replica, and who is new has a later one.
func after(d group.Descriptor, want group.Want) group.Descriptor {
	var next group.Descriptor
	role := func(id raftyard.NodeID) group.Role {
		switch {
		case slices.Contains(want.Voters, id):
			return group.Voter
		case slices.Contains(want.Learners, id):
			return group.Learner
		}
		return 0
	}
	for _, m := range d.Members {
		if m.Role = role(m.Node); m.Role != 0 {
			next.Members = append(next.Members, m)
		}
	}
	for _, id := range slices.Concat(want.Voters, want.Learners) {
		if _, there := next.MemberOn(id); !there {
			next.Members = append(next.Members, group.Member{
				ID: raftyard.ReplicaID(100 + len(next.Members)), Node: id, Role: role(id),
			})
		}
	}
	return next
}

func TestSystemWantProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, nodes := genSystem(t)
		want := systemWant(d, nodes)
		anyStays := slices.ContainsFunc(nodes, func(n systemNode) bool {
			return n.stays() && slices.Contains(want.Voters, n.id)
		})
		if len(want.Voters) == 0 || len(want.Voters) > maxSystemVoters && anyStays {
			t.Fatalf("%d voters: %v", len(want.Voters), want)
		}
		all := slices.Concat(want.Voters, want.Learners)
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Fatalf("a node is wanted twice: %v", want)
		}
		for _, n := range nodes {
			before, _ := d.MemberOn(n.id)
			votes := slices.Contains(want.Voters, n.id)
			switch {
			case allLeave(nodes):
			case n.stays() && !slices.Contains(all, n.id):
				t.Fatalf("node %d stays and is not wanted: %v", n.id, want)
			case votes && before.Role != group.Voter && (!n.live || !n.stays()):
				t.Fatalf("node %d is made a voter: %+v", n.id, n)
			case n.empty && slices.Contains(all, n.id) && !votes:
				t.Fatalf("node %d is empty and stays: %v", n.id, want)
			}
		}
		next := after(d, want)
		if !reachedWant(next, want) {
			t.Fatalf("%v is not reached by %v", want, next.Members)
		}
		if again := systemWant(next, nodes); !reachedWant(next, again) {
			t.Fatalf("from %v to %v, and then to %v", d.Members, want, again)
		}
	})
}

func allLeave(nodes []systemNode) bool {
	return !slices.ContainsFunc(nodes, systemNode.stays)
}

// TestSystemGroupGetsThere follows the plan of the system group's leaders from any
// members, with what is wanted looked at anew before each step: it ends, on the way there
// are always voters, and with all nodes there it ends where it is to.
func TestSystemGroupGetsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, nodes := genSystem(t)
		d.Group, d.Incarnation, d.Kind = raftyard.SystemGroup, raftyard.Incarnation{1}, systemKind
		d.Epoch, d.NextReplica = 1, 100
		live := make(map[raftyard.NodeID]bool)
		for _, n := range nodes {
			live[n.id] = n.live
		}
		leader, ok := someLeader(d, live)
		if !ok {
			return // nobody can do anything
		}
		for range 30 {
			want := systemWant(d, nodes)
			step := group.Plan(d, want, progressOf(d, live), leader)
			switch step.Kind {
			case group.StepChange, group.StepLeave:
				d = step.Next
				if err := d.Validate(); err != nil {
					t.Fatalf("%s: %v", step.Why, err)
				}
			case group.StepTransfer:
				leader = step.To
			case group.StepDone:
				return
			case group.StepWait:
				down := func(m group.Member) bool { return !live[m.Node] }
				if !slices.ContainsFunc(d.Members, down) {
					t.Fatalf("with all members there it waits: %s; members %v, wanted %v",
						step.Why, d.Members, want)
				}
				return
			}
		}
		t.Fatalf("no end; members %v", d.Members)
	})
}

// someLeader returns a voter that could lead: it is there, and most of them are.
func someLeader(
	d group.Descriptor, live map[raftyard.NodeID]bool,
) (leader raftyard.ReplicaID, ok bool) {
	count, voters := 0, d.Voters()
	for _, m := range voters {
		if live[m.Node] {
			count, leader = count+1, m.ID
		}
	}
	return leader, count > len(voters)/2
}

func progressOf(
	d group.Descriptor, live map[raftyard.NodeID]bool,
) map[raftyard.ReplicaID]group.Progress {
	p := make(map[raftyard.ReplicaID]group.Progress)
	for _, m := range d.Members {
		if live[m.Node] {
			p[m.ID] = group.Progress{Match: 100, RecentActive: true}
		} else {
			p[m.ID] = group.Progress{}
		}
	}
	return p
}
