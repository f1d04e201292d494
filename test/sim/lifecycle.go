package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
)

// generateLife makes the schedule of a seed in which groups, members and replicas come
// and go: what operators do, most of it small steps from where a group is, and a few
// faults just when that goes on.
func generateLife(s *setup, d *rand.Rand) Schedule {
	m := &lifeMaker{
		maker: maker{s: s, d: d}, members: make(map[raftyard.GroupID]memberSets),
	}
	times := make([]time.Duration, 6+d.IntN(30))
	for i := range times {
		times[i] = m.at()
	}
	slices.Sort(times)
	what := m.operations()
	for _, at := range times {
		what[d.IntN(len(what))](at)
	}
	for i := range s.guests {
		m.join(raftyard.NodeID(s.nodes + i + 1))
	}
	m.leave()
	kinds := m.disturbances()
	for range d.IntN(10) {
		m.add(kinds[d.IntN(len(kinds))])
	}
	if d.IntN(12) == 0 {
		m.clock()
	}
	m.out = append(m.out, m.losses()...)
	slices.SortStableFunc(m.out, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return m.out
}

// lifeMaker makes up what operators do.
type lifeMaker struct {
	maker

	// members are those that each group was last asked to have, if it has heard of
	// it and has not been made anew since.
	members map[raftyard.GroupID]memberSets
}

// memberSets are members as sets of nodes, as those of a fault are.
type memberSets struct{ voters, learners uint64 }

// operations are some of all that operators do: a run in which little else happens
// finds what one in which everything does cannot.
func (m *lifeMaker) operations() []func(time.Duration) {
	all := []func(time.Duration){
		m.step, m.step, m.step, m.swap, m.hasty, m.renew, m.renew, m.contest, m.handOver,
		m.comeBack, m.comeBack, m.crashOnRemoval, m.crashOnRemoval, m.forget, m.cutLeader,
		m.orphan, m.cutRegistry, m.snapshot, m.drain, m.move, m.interact, m.interact, m.bury,
		m.bury,
	}
	m.d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:3+m.d.IntN(len(all)-3)]
}

// disturbances are some kinds of faults.
func (m *lifeMaker) disturbances() []FaultKind {
	all := []FaultKind{
		Crash, Crash, Kill, Stop, CrashAll, Pause, Stall, SlowDisk, FailDisk, Cut, Split, Split,
		Isolate, Flaky, Flaky, SlowNet, SlowNet, LagBehind, Trip, Trip, Tear, swizzle, flap,
		storm, surprise,
	}
	m.d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+m.d.IntN(6)]
}

// losses are what costs a node its disk, in some runs.
func (m *lifeMaker) losses() Schedule {
	f := Fault{
		At: m.at(), Node: m.node(), For: m.between(time.Millisecond, 500*time.Millisecond),
	}
	switch m.d.IntN(8) {
	case 0, 1:
		return m.wipes(f)
	case 2:
		f.Kind = Rot
	case 3:
		f.Kind, f.At, f.N = Revert, f.At/2, m.d.Uint64N(6*revertAgain)
		f.For += 100 * time.Millisecond
	default:
		return nil
	}
	return Schedule{f}
}

// wipes has some nodes lose their disks, one after the other: each as soon as nobody needs
// it any more, and often while it is to become a member of something, or none.
func (m *lifeMaker) wipes(f Fault) (out Schedule) {
	for range 1 + m.d.IntN(3) {
		f.Kind = Wipe
		if m.d.IntN(2) == 0 {
			f.At = m.amid(f.At)
		}
		out = append(out, f)
		f.At, f.Node = m.later(f.At), m.node()
	}
	return out
}

// amid is some time at which, or soon after which, members change or a group is deleted;
// or at if nothing of the kind ever happens.
func (m *lifeMaker) amid(at time.Duration) time.Duration {
	var times []time.Duration
	for i := range m.out {
		switch m.out[i].Kind {
		case Members, Replace, Delete, Recreate, Attach:
			times = append(times, m.out[i].At)
		default:
		}
	}
	if len(times) == 0 {
		return at
	}
	return times[m.d.IntN(len(times))] + m.between(0, 500*time.Millisecond)
}

// any returns some group.
func (m *lifeMaker) any() raftyard.GroupID {
	if m.d.IntN(3) == 0 {
		return m.coming()
	}
	return m.group()
}

// coming returns some group that comes and goes.
func (m *lifeMaker) coming() raftyard.GroupID {
	if m.d.IntN(8) == 0 {
		return contested
	}
	return ownGroup + raftyard.GroupID(m.d.IntN(ownGroups))
}

// bit returns the set of one node.
func bit(id raftyard.NodeID) uint64 { return 1 << (id - 1) }

// ask adds that a group is asked to have members.
func (m *lifeMaker) ask(at time.Duration, g raftyard.GroupID, sets memberSets) {
	sets.learners &^= sets.voters
	if sets.voters == 0 {
		sets.voters = bit(m.node())
	}
	m.members[g] = sets
	kind := Members
	if m.d.IntN(6) == 0 {
		kind = Replace
	}
	m.out = append(m.out, Fault{
		At: at, Kind: kind, Group: g, N: sets.voters, M: sets.learners &^ sets.voters,
	})
}

// now returns the members that a group is thought to have.
func (m *lifeMaker) now(g raftyard.GroupID) memberSets {
	sets, known := m.members[g]
	for !known && sets.voters == 0 {
		sets = memberSets{m.set(), m.few()}
	}
	return sets
}

// few is a set of few nodes.
func (m *lifeMaker) few() uint64 {
	set := m.set()
	return set & m.set()
}

// later is some time after another: often at once.
func (m *lifeMaker) later(at time.Duration) time.Duration {
	return at + m.between(0, 2*time.Second)
}

// step has one node become a member of a group, be one in another role, or none.
func (m *lifeMaker) step(at time.Duration) {
	g := m.any()
	sets, node := m.now(g), bit(m.node())
	sets.voters, sets.learners = sets.voters&^node, sets.learners&^node
	switch m.d.IntN(3) {
	case 0:
		sets.voters |= node
	case 1:
		sets.learners |= node
	}
	m.ask(at, g, sets)
}

// swap has a group have other members altogether.
func (m *lifeMaker) swap(at time.Duration) {
	m.ask(at, m.any(), memberSets{m.set(), m.set()})
}

// hasty has several ask for different members of a group at about the same time.
func (m *lifeMaker) hasty(at time.Duration) {
	g := m.any()
	for range 2 + m.d.IntN(3) {
		m.ask(at, g, memberSets{m.set() | m.now(g).voters, m.set()})
		at += m.between(0, 200*time.Millisecond)
	}
}

// remove returns the members without a node.
func (s memberSets) remove(node raftyard.NodeID) memberSets {
	return memberSets{s.voters &^ bit(node), s.learners &^ bit(node)}
}

// comeBack takes a node out of a group that cannot hear of it, and makes it a member
// again before it has.
func (m *lifeMaker) comeBack(at time.Duration) {
	g, node := m.any(), m.node()
	sets := m.now(g)
	sets.voters |= m.set()
	m.out = append(m.out, Fault{
		At: at, Kind: Isolate, Node: node, N: m.d.Uint64N(3),
		For: m.between(100*time.Millisecond, 3*time.Second),
	})
	at += m.between(0, 100*time.Millisecond)
	for range 1 + m.d.IntN(2) {
		m.ask(at, g, sets.remove(node))
		at = m.later(at)
		again := sets.remove(node)
		if m.d.IntN(2) == 0 {
			again.voters |= bit(node)
		} else {
			again.learners |= bit(node)
		}
		m.ask(at, g, again)
		at = m.later(at)
	}
}

// crashOnRemoval has a node lose power in one of the syncs that its removal takes.
func (m *lifeMaker) crashOnRemoval(at time.Duration) {
	g, node := m.any(), m.node()
	if m.d.IntN(3) == 0 {
		m.renewAt(at, m.coming())
	} else {
		m.ask(at, g, m.now(g).remove(node))
	}
	m.out = append(m.out, Fault{
		At: at + m.between(0, 100*time.Millisecond), Kind: Trip, Node: node,
		N: 1 + m.d.Uint64N(12), For: m.between(time.Millisecond, time.Second),
	})
}

// forget has a node be down while its replica of a group is removed, or the group
// deleted, or made anew.
func (m *lifeMaker) forget(at time.Duration) {
	g, node := m.any(), m.node()
	kinds := []FaultKind{Crash, Kill, Stop}
	m.out = append(m.out, Fault{
		At: at, Kind: kinds[m.d.IntN(len(kinds))], Node: node,
		For: m.between(200*time.Millisecond, 4*time.Second),
	})
	at += m.between(0, 300*time.Millisecond)
	if m.d.IntN(2) == 0 {
		m.renewAt(at, m.coming())
		return
	}
	m.ask(at, g, m.now(g).remove(node))
}

// orphan has a group be on a node alone, which is down while the group is made anew
// elsewhere, and hears nothing of that when it is back.
func (m *lifeMaker) orphan(at time.Duration) {
	g, node := ownGroup+raftyard.GroupID(m.d.IntN(ownGroups)), m.node()
	m.out = append(m.out, Fault{At: at / 2, Kind: Create, Group: g, N: m.d.Uint64N(16)})
	m.ask(at/2+m.between(0, time.Second), g, memberSets{voters: bit(node)})
	down := m.between(500*time.Millisecond, 3*time.Second)
	m.out = append(m.out,
		Fault{At: at, Kind: Kill, Node: node, For: down},
		Fault{
			At: at + m.between(0, down), Kind: Recreate, Group: g,
			N: m.d.Uint64N(16) | m.d.Uint64N(2)*byForce,
		},
		Fault{
			At: at + m.between(0, down), Kind: Isolate, Node: node,
			For: down + m.between(0, 2*time.Second),
		})
	delete(m.members, g)
}

// renew creates or deletes groups that come and go.
func (m *lifeMaker) renew(at time.Duration) {
	g := ownGroup + raftyard.GroupID(m.d.IntN(ownGroups))
	for range 1 + m.d.IntN(3) {
		m.renewAt(at, g)
		at = m.later(at)
	}
}

func (m *lifeMaker) renewAt(at time.Duration, g raftyard.GroupID) {
	if g == contested {
		m.contest(at)
		return
	}
	kinds := []FaultKind{Create, Create, Recreate, Recreate, Recreate, Delete}
	delete(m.members, g)
	m.out = append(m.out, Fault{
		At: at, Kind: kinds[m.d.IntN(len(kinds))], Group: g,
		N: m.d.Uint64N(16), M: m.few(),
	})
}

// contest has several create and delete one group.
func (m *lifeMaker) contest(at time.Duration) {
	for range 2 + m.d.IntN(2) {
		m.out = append(m.out, Fault{
			At: at + m.between(0, time.Second), Kind: Contest,
			N: m.d.Uint64(), M: 1 + m.d.Uint64N(8),
		})
	}
}

// handOver has a node lead a group, and then be no voter of it any more.
func (m *lifeMaker) handOver(at time.Duration) {
	g, node := m.any(), m.node()
	m.out = append(m.out, Fault{At: at, Kind: Transfer, Node: node, Group: g})
	sets := m.now(g).remove(node)
	if m.d.IntN(3) == 0 {
		sets.learners |= bit(node)
	}
	m.ask(at+m.between(0, 500*time.Millisecond), g, sets)
}

// cutLeader freezes the leader of a group while its members change.
func (m *lifeMaker) cutLeader(at time.Duration) {
	g := m.any()
	round := time.Duration(m.s.election) * m.s.tick
	m.ask(at, g, memberSets{m.set(), m.set()})
	m.out = append(m.out, Fault{
		At: at + m.between(0, 300*time.Millisecond), Kind: Usurp, Group: g,
		For: m.between(round/2, 4*round),
	})
}

// cutRegistry freezes the leader of the registry while something is decided: it may be
// decided only when whoever has asked for it has given up, and has asked again.
func (m *lifeMaker) cutRegistry(at time.Duration) {
	round := time.Duration(m.s.election) * m.s.tick
	m.out = append(m.out, Fault{
		At: at + m.between(0, 100*time.Millisecond), Kind: Usurp, Group: raftyard.SystemGroup,
		For: m.between(round/2, 4*round),
	})
	switch m.d.IntN(3) {
	case 0:
		m.step(at)
	case 1:
		m.contest(at)
	default:
		m.renew(at)
	}
}

// join has a node join, and be asked to hold replicas soon after.
func (m *lifeMaker) join(node raftyard.NodeID) {
	at := m.at() / 2
	m.out = append(m.out, Fault{
		At: at, Kind: Join, Node: node, N: m.d.Uint64N(2), For: m.between(0, time.Second),
	})
	g := m.any()
	sets := m.now(g).remove(node)
	sets.voters |= bit(node)
	m.ask(m.later(at), g, sets)
}

// drain has a node lead nothing, mostly for a while.
func (m *lifeMaker) drain(at time.Duration) {
	f := Fault{At: at, Kind: Drain, Node: m.node()}
	m.out = append(m.out, f)
	if m.d.IntN(4) > 0 {
		f.At, f.Kind = m.later(at), Undrain
		m.out = append(m.out, f)
	}
}

// move has a node move, or all at the same time.
func (m *lifeMaker) move(at time.Duration) {
	m.out = append(m.out, Fault{
		At: at, Kind: Move, Node: m.node(), N: m.d.Uint64N(2),
		For: m.between(time.Millisecond, time.Second),
	})
}

func (m *lifeMaker) snapshot(at time.Duration) {
	m.out = append(m.out, Fault{At: at, Kind: Snapshot, Node: m.node(), Group: m.any()})
}
