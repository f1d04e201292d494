package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// wish wants the group of a bench on nodes.
func (b *bench) wish(voters ...raftyard.NodeID) {
	b.c.Wanted(benchGroup, Wish{Incarnation: incarnation(), Voters: voters})
}

// A gap is something that a cluster at rest must not have.
type gap struct {
	name string
	rule Rule
	do   func(b *bench)
}

func TestUnsettled(t *testing.T) {
	for _, g := range []gap{
		{"no leader", Progress, func(b *bench) {
			b.r(1).Role = group.Follower
			b.step(1)
		}},
		{"a leader that commits nothing", Progress, func(b *bench) { b.elect(1, 3) }},
		{"a group that was never founded", Progress, func(b *bench) {
			b.c.Wanted(9, Wish{Incarnation: incarnation(), Voters: []raftyard.NodeID{1}})
		}},
		{"a joint group, with a wished node down", Tidy, func(b *bench) {
			b.members(group.Voter, group.Voter, group.Demoting)
			b.wish(1, 2, 3, 4)
		}},
		{"a learner that shall be a voter", Tidy, func(b *bench) {
			b.members(group.Voter, group.Voter, group.Learner)
		}},
		{"a replica that is not wanted, with a wished node down", Tidy, func(b *bench) {
			b.wish(1, 2, 4)
		}},
		{"a replica that is no member, where one is wanted", Tidy, func(b *bench) {
			b.wish(1, 2, 3)
			b.without(3)
			b.c.Crashed(1, LostNothing)
			b.c.Crashed(2, LostNothing)
		}},
		{"what was of a replica that is destroyed", Tidy, func(b *bench) {
			b.without(3)
			b.wish(1, 2)
			b.nodes[3].Replicas = nil
			b.nodes[3].Stored[0].Tombstone = &storage.Tombstone{NextReplica: 4, Epoch: 2}
			b.step(3)
		}},
		{"a node without a member, where each shall have one", Tidy, func(b *bench) {
			b.c.Wanted(benchGroup, Wish{
				Incarnation: incarnation(), Nodes: []raftyard.NodeID{1, 2, 3, 4},
			})
			b.c.Opened(4, &Examined{Node: 4})
		}},
		{"a drained node that leads", Tidy, func(b *bench) { b.c.Drained(1, true) }},
		{"a replica of a deleted group", Tidy, func(b *bench) {
			b.c.Wanted(benchGroup, Wish{Incarnation: incarnation(), Deleted: true})
		}},
		{"a replica of an earlier life of the group", Tidy, func(b *bench) {
			b.c.Wanted(benchGroup, Wish{Incarnation: raftyard.Incarnation{2}})
		}},
		{"a member that is missing", CaughtUp, func(b *bench) {
			b.wish(1, 2)
			b.bury()
			b.c.group(groupKey{benchGroup, incarnation()}).replica(3).dead = false
		}},
		{"a member that has not heard of the commit", CaughtUp, func(b *bench) {
			index := b.replicate(1, 2, 3)
			b.commit(1, index)
			b.commit(2, index)
		}},
		{"a member that has not applied", CaughtUp, func(b *bench) { b.lag(4) }},
		{"a member that lacks what was acknowledged", AckedSurvives, func(b *bench) {
			b.ack(3, "\x03", "done")
			b.c.group(groupKey{benchGroup, incarnation()}).replica(3).machine.index = 2
		}},
		{"a member that needs a state, which one has who is awake", CaughtUp, func(b *bench) {
			b.starve(1)
		}},
		{
			"a member that needs a state, which one has who is awake and far enough", CaughtUp,
			func(b *bench) {
				b.starve(1)
				b.c.group(groupKey{benchGroup, incarnation()}).replica(2).seen.applied = 2
			},
		},
		{"a joint group whose members sleep", Tidy, func(b *bench) {
			b.members(group.Voter, group.Voter, group.Demoting)
			b.starve(1, 2)
		}},
		{"a member that lags, and needs no state, while others sleep", CaughtUp, func(b *bench) {
			b.starve(1, 2)
			b.c.group(groupKey{benchGroup, incarnation()}).replica(1).seen.durableFirst = 1
		}},
		{"a member that is stopped still, after a loss elsewhere", Quarantine, func(b *bench) {
			b.c.anyLoss = true
			b.r(3).Serving, b.r(3).Fault = false, errors.New("broken")
			b.step(3)
		}},
		{"a voter that is not wanted, while others are awake", Tidy, func(b *bench) {
			b.members(group.Voter, group.Voter, group.Learner)
			b.wish(2, 3)
		}},
		{
			"a voter that is not wanted and waits for nobody, while others sleep", Tidy,
			func(b *bench) {
				b.starve(1, 2)
				b.wish(1, 2)
			},
		},
		{"a learner that is not wanted, while others sleep", Tidy, func(b *bench) {
			b.members(group.Voter, group.Voter, group.Learner)
			b.starve(1, 2)
			b.wish(1, 2, 4)
		}},
		{"a request without an answer", Resolved, func(b *bench) {
			b.c.Asked(1, "put")
			b.c.Asked(2, "get")
			b.c.Answered(1)
		}},
	} {
		t.Run(g.name, func(t *testing.T) {
			b := newBench(t, Config{})
			b.wish(1, 2, 3)
			if vs := b.c.Unsettled(); len(vs) > 0 {
				t.Fatalf("at rest, but: %v", vs)
			}
			g.do(b)
			vs := b.c.Unsettled()
			if len(vs) == 0 || vs[0].Rule != g.rule {
				t.Fatalf("Unsettled = %v, want %v", vs, g.rule)
			}
			t.Log(vs)
			b.none()
			b.c.Overdue()
			b.want(g.rule)
		})
	}
}

// members commits a change of the roles of all replicas.
func (b *bench) members(roles ...group.Role) {
	b.t.Helper()
	d := threeVoters().Descriptor
	d.Epoch++
	for i, r := range roles {
		d.Members[i].Role = r
	}
	index := b.write(1)
	for _, n := range []raftyard.NodeID{1, 2, 3} {
		b.r(n).State = group.State{Index: index, Descriptor: d}
		b.step(n)
	}
	b.none()
}

// without commits the removal of a replica, which does not hear of it.
func (b *bench) without(id raftyard.ReplicaID) {
	b.t.Helper()
	d := threeVoters().Descriptor
	d.Epoch++
	d.Members = slices.DeleteFunc(d.Members, func(m group.Member) bool { return m.ID == id })
	index := b.write(1)
	for _, n := range []raftyard.NodeID{1, 2} {
		b.r(n).State = group.State{Index: index, Descriptor: d}
		b.step(n)
	}
	b.none()
}

// starve leaves replica 3 with nothing, and cuts the leader's log. Those on some nodes
// sleep.
func (b *bench) starve(asleep ...raftyard.NodeID) {
	g := b.c.group(groupKey{benchGroup, incarnation()})
	g.replica(1).seen.durableFirst = 3
	g.replica(3).seen = sight{serving: true}
	for _, n := range asleep {
		g.replica(raftyard.ReplicaID(n)).seen.asleep = true
	}
}

// TestUnsettledSpares: nothing is asked of what cannot be.
func TestUnsettledSpares(t *testing.T) {
	for name, do := range map[string]func(b *bench){
		"a group without a majority": func(b *bench) {
			b.c.Crashed(1, LostNothing)
			b.c.Crashed(2, LostNothing)
		},
		"a voter that waits for one in its place, while all sleep": func(b *bench) {
			b.members(group.Voter, group.Voter, group.Learner)
			b.starve(1, 2)
			b.wish(2, 3)
		},
		"a majority that has lost its log": func(b *bench) {
			b.lose(2)
			b.lose(3)
			b.c.Crashed(1, LostNothing)
		},
		"a member on a node that is down": func(b *bench) {
			b.c.Crashed(3, LostNothing)
		},
		"a member that was broken on purpose": func(b *bench) {
			b.c.Excuse(b.identity(3))
			b.r(3).Serving, b.r(3).Fault = false, errors.New("broken")
			b.step(3)
		},
		"each node's member": func(b *bench) {
			b.c.Wanted(benchGroup, Wish{
				Incarnation: incarnation(), Nodes: []raftyard.NodeID{1, 2, 3},
			})
		},
		"a drained node that leads, for want of another": func(b *bench) {
			for n := range raftyard.NodeID(3) {
				b.c.Drained(n+1, true)
			}
		},
		"a drained node whose voters are down": func(b *bench) {
			b.c.Drained(1, true)
			b.c.Drained(2, true)
			b.c.Crashed(3, LostNothing)
		},
		"a member that needs a state which all who have it sleep with": func(b *bench) {
			b.members(group.Voter, group.Voter, group.Learner)
			b.starve(1, 2)
		},
		"a member that needs a state, while who is awake is behind it, too": func(b *bench) {
			b.starve(1)
			behind := &b.c.group(groupKey{benchGroup, incarnation()}).replica(2).seen
			behind.applied, behind.last = 1, 1
		},
		"the wish for a node that is down": func(b *bench) {
			b.wish(1, 2, 3, 4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{})
			b.wish(1, 2, 3)
			do(b)
			if vs := b.c.Unsettled(); len(vs) > 0 {
				t.Errorf("Unsettled = %v", vs)
			}
			b.none()
		})
	}
}

// Rule 18: after a change of leader a group is at rest only some time later.
func TestAtRest(t *testing.T) {
	now := time.Duration(0)
	b := newBench(t, Config{Now: func() time.Duration { return now }, Rest: time.Second})
	now = 5 * time.Second
	b.c.Healed()
	rests := func() bool {
		for _, v := range b.c.Unsettled() {
			if v.Rule == AtRest {
				return false
			}
		}
		return true
	}
	if rests() {
		t.Error("at rest at the moment of the last fault")
	}
	now += time.Second
	if !rests() {
		t.Error("not at rest a second later")
	}
	b.elect(2, 3)
	b.write(2)
	if rests() {
		t.Error("at rest after an election")
	}
	now += time.Second
	if !rests() {
		t.Error("not at rest a second after an election")
	}
	b.write(2)
	if !rests() {
		t.Error("not at rest after a write")
	}
	b.none()
}

func TestFinished(t *testing.T) {
	b := newBench(t, Config{})
	b.c.Finished()
	b.none()
	b.c.Asked(1, "put")
	b.c.Finished("a goroutine")
	vs := b.c.Violations()
	if len(vs) != 2 || vs[0].Rule != Resolved || vs[1].Rule != NoLeaks {
		t.Errorf("Violations = %v", vs)
	}
}

func TestViolations(t *testing.T) {
	c := New(Config{MaxViolations: 2, Now: func() time.Duration { return time.Second }})
	if c.Broken() || c.Err() != nil {
		t.Errorf("a new checker: Broken = %t, Err = %v", c.Broken(), c.Err())
	}
	for range 5 {
		c.Measured("queue", 2, 1)
	}
	err := c.Err()
	if !c.Broken() || len(c.Violations()) != 2 || err == nil {
		t.Fatalf("Broken = %t, Violations = %v, Err = %v", c.Broken(), c.Violations(), err)
	}
	for _, want := range []string{"rule 13 (budgets): at 1s: queue is 2", "and 3 more"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Err = %v, want it to say %q", err, want)
		}
	}
	var v Violation
	if !errors.As(err, &v) || v.Rule != Budgets {
		t.Errorf("errors.As finds %v", v)
	}
}

func TestRuleString(t *testing.T) {
	for r := OneLeader; r <= NoLeaks; r++ {
		if !strings.Contains(r.String(), "(") {
			t.Errorf("rule %d has no name: %v", uint8(r), r)
		}
	}
	if got := Rule(0).String() + Rule(99).String(); got != "rule 0rule 99" {
		t.Errorf("unknown rules are %q", got)
	}
}
