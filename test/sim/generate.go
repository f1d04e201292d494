package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
)

// generate makes the faults of a seed.
func generate(s *setup, d *rand.Rand) Schedule {
	m := &maker{s: s, d: d}
	switch d.IntN(12) {
	case 0:
		m.add(Wipe)
	case 1:
		m.add(Rot)
	}
	kinds := m.favourites()
	for range 2 + d.IntN(12) {
		m.add(kinds[d.IntN(len(kinds))])
	}
	return m.out
}

// generateMore makes the faults of kinds that came later. They have dice of their own,
// so that a seed without them is what it was before.
func generateMore(s *setup, d *rand.Rand) Schedule {
	m := &maker{s: s, d: d}
	if d.IntN(12) == 0 {
		m.out = append(m.out, Fault{
			At: m.at() / 2, Kind: Revert, Node: m.node(),
			For: m.between(100*time.Millisecond, 3*time.Second),
			N:   m.reversion(),
		})
	}
	if d.IntN(2) == 0 {
		round := time.Duration(s.election) * s.tick
		for range 1 + d.IntN(4) {
			m.out = append(m.out, Fault{
				At: m.at(), Kind: Usurp, Group: m.group(), For: m.between(round, 4*round),
			})
		}
	}
	if d.IntN(6) == 0 {
		for range 1 + d.IntN(3) {
			m.clock()
		}
	}
	if d.IntN(6) == 0 {
		m.out = append(m.out, Fault{
			At: m.at(), Kind: HangDisk, Node: m.node(),
			For: m.between(time.Second, 2*failSync),
		})
	}
	return m.out
}

// reversion is in which way a node is reverted, but for what takes a wipe.
func (m *maker) reversion() uint64 {
	return m.d.Uint64N(6*revertAgain) &^ revertEmptied
}

// clock adds that a clock is set.
func (m *maker) clock() {
	f := Fault{
		At: m.at(), Kind: Clock, Node: m.node(), For: m.between(time.Millisecond, time.Second),
	}
	if most := uint64(1) << (4 + m.d.IntN(31)); m.d.IntN(2) == 0 {
		f.N = 1 + m.d.Uint64N(most) // up to half a year, as likely as a second
	} else {
		f.M = 1 + m.d.Uint64N(most)
	}
	m.out = append(m.out, f)
}

// scheduleOf returns what happens in a run.
func scheduleOf(s *setup, c *Config) Schedule {
	if c.LifeCycle {
		return generateLife(s, newDice(c.Seed, streamLife))
	}
	return faultsOf(s, c.Seed)
}

// faultsOf returns the faults of a seed.
func faultsOf(s *setup, seed uint64) Schedule {
	all := slices.Concat(generate(s, newDice(seed, streamSchedule)),
		generateMore(s, newDice(seed, streamMore)))
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

// maker makes up faults.
type maker struct {
	s   *setup
	d   *rand.Rand
	out Schedule
}

// favourites are some of all kinds: a run in which few things fail finds what one in
// which everything does cannot.
func (m *maker) favourites() []FaultKind {
	all := []FaultKind{
		Crash, Crash, Kill, Stop, CrashAll, Pause, Stall, SlowDisk, FailDisk, Cut, Split,
		Isolate, Flaky, Flaky, SlowNet, LagBehind, LagBehind, Transfer, Members, Members,
		Snapshot, Recreate, Tear, Trip, Trip, Trip, swizzle, flap, storm, surprise, surprise,
		surprise,
	}
	m.d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:3+m.d.IntN(len(all)-3)]
}

// Patterns of several faults.
const (
	swizzle FaultKind = "swizzle" // nodes are cut off one by one, and come back in another order
	flap    FaultKind = "flap"    // a node is cut off again and again
	storm   FaultKind = "storm"   // a node crashes again and again, also while it starts

	// surprise: a node needs a snapshot, and crashes while it takes it over, or the
	// stream breaks.
	surprise FaultKind = "surprise"
)

func (m *maker) node() raftyard.NodeID {
	return raftyard.NodeID(1 + m.d.IntN(m.s.nodes+m.s.guests))
}

func (m *maker) group() raftyard.GroupID {
	return raftyard.GroupID(1 + m.d.IntN(m.s.groups))
}

// at is some time in the first phase.
func (m *maker) at() time.Duration {
	return time.Duration(m.d.Int64N(int64(m.s.chaos))).Round(time.Microsecond)
}

// between is a duration. Short ones are as likely as long ones.
func (m *maker) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(m.d.Float64()*m.d.Float64()*float64(most-least))).
		Round(time.Microsecond)
}

func (m *maker) set() uint64 { return m.d.Uint64() & (1<<(m.s.nodes+m.s.guests) - 1) }

func (m *maker) add(kind FaultKind) {
	f := Fault{At: m.at(), Kind: kind, Node: m.node()}
	switch kind {
	case Crash, Kill, Stop, CrashAll:
		f.For = m.between(time.Millisecond, 2*time.Second)
	case Pause, Stall:
		f.For = m.between(10*time.Millisecond, 3*time.Second)
	case Trip:
		f.N, f.For = 1+m.d.Uint64N(1+m.d.Uint64N(40)), m.between(time.Millisecond, time.Second/2)
	case Tear:
		f.Node, f.N = 0, 10+m.d.Uint64N(60)
		f.For = m.between(500*time.Millisecond, 4*time.Second)
	case Wipe, Rot: // in the second half: before, its disk may not be known
		f.At = m.s.chaos/2 + f.At/2
		f.For = m.between(time.Millisecond, 500*time.Millisecond)
	case SlowDisk:
		f.For, f.N = m.between(100*time.Millisecond, 3*time.Second), 1+m.d.Uint64N(100)
	case Cut:
		f.Peer = m.node()
		f.For = m.between(50*time.Millisecond, 3*time.Second)
	case Split:
		f.Node, f.N = 0, m.set()
		f.For = m.between(50*time.Millisecond, 3*time.Second)
	case Isolate:
		f.N = m.d.Uint64N(3)
		f.For = m.between(50*time.Millisecond, 3*time.Second)
	case Flaky, SlowNet:
		if m.d.IntN(2) == 0 {
			f.Node = 0
		}
		f.N = 1 + m.d.Uint64N(30)
		f.For = m.between(100*time.Millisecond, 4*time.Second)
	case LagBehind:
		f.Group, f.For = m.group(), 4*time.Second
	case Transfer, Snapshot:
		f.Group = m.group()
	case Members, Replace:
		f.Node, f.Group, f.N, f.M = 0, m.group(), m.set(), m.set()
	case Recreate:
		f.Node, f.N = 0, m.d.Uint64N(16)
	case swizzle, flap, storm, surprise:
		m.pattern(kind, f)
		return
	default:
	}
	if kind == CrashAll {
		f.Node = 0
	}
	m.out = append(m.out, f)
}

// pattern adds the faults of a pattern that begins with f.
func (m *maker) pattern(kind FaultKind, f Fault) {
	round := time.Duration(m.s.election) * m.s.tick
	switch kind {
	case swizzle:
		for _, i := range m.d.Perm(m.s.nodes)[:1+m.d.IntN(m.s.nodes)] {
			f.Kind, f.Node = Isolate, raftyard.NodeID(i+1)
			f.At += m.between(0, 200*time.Millisecond)
			f.For = m.between(200*time.Millisecond, 2*time.Second)
			m.out = append(m.out, f)
		}
	case surprise:
		f.Group = m.group()
		f.At /= 2 // it takes a while until a log is cut
		f.Kind, f.For = LagBehind, 4*time.Second
		m.out = append(m.out, f)
		f.For = 4*time.Second + m.between(0, time.Second)
		f.Kind, f.N = Ambush, 1+m.d.Uint64N(1+m.d.Uint64N(40))
		if m.d.IntN(3) == 0 {
			f.Kind, f.Node, f.N = Tear, 0, 20+m.d.Uint64N(70)
		}
		m.out = append(m.out, f)
	case flap:
		f.Kind, f.For = Isolate, round/2
		for range 3 + m.d.IntN(4) {
			m.out = append(m.out, f)
			f.At += round
		}
	default:
		for range 3 + m.d.IntN(4) {
			f.Kind, f.For = Crash, m.between(time.Millisecond, 50*time.Millisecond)
			m.out = append(m.out, f)
			f.At += f.For + m.between(0, 100*time.Millisecond)
		}
	}
}
