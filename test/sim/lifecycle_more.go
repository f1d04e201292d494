package sim

import (
	"time"

	"github.com/raftyard/raftyard"
)

// interact attaches a node to a group, for a while, and often detaches one that others
// have made a learner.
func (m *lifeMaker) interact(at time.Duration) {
	g, node := m.any(), m.node()
	f := Fault{At: at, Kind: Attach, Group: g, Node: node}
	if m.d.IntN(4) > 0 {
		m.out = append(m.out, f)
		f.At = m.later(at)
	}
	f.Kind = Detach
	if m.d.IntN(3) > 0 {
		m.out = append(m.out, f)
	}
	if m.d.IntN(4) > 0 {
		return
	}
	kinds := []FaultKind{Crash, Kill, Isolate, Pause}
	m.out = append(m.out, Fault{
		At: f.At + m.between(0, 200*time.Millisecond), Kind: kinds[m.d.IntN(len(kinds))],
		Node: node, For: m.between(10*time.Millisecond, time.Second),
	})
}

// bury deletes a group and has it forgotten, and often created again soon after.
func (m *lifeMaker) bury(at time.Duration) {
	g := ownGroup + raftyard.GroupID(m.d.IntN(ownGroups))
	if m.d.IntN(2) == 0 {
		m.out = append(m.out, Fault{At: at / 2, Kind: Create, Group: g, N: m.d.Uint64N(16)})
	}
	delete(m.members, g)
	m.out = append(m.out, Fault{At: at, Kind: Delete, Group: g, N: m.d.Uint64N(16)})
	at += m.between(0, time.Second)
	m.out = append(m.out, Fault{At: at, Kind: Forget, Group: g})
	if m.d.IntN(3) > 0 {
		at = m.later(at)
		m.out = append(m.out, Fault{At: at, Kind: Create, Group: g, N: m.d.Uint64N(16), M: m.few()})
	}
}

// leave has a node leave, in some runs: often one that groups were just asked to be on.
func (m *lifeMaker) leave() {
	if m.d.IntN(3) > 0 {
		return
	}
	at, node := m.at(), m.node()
	if m.d.IntN(2) == 0 {
		g := m.any()
		sets := m.now(g)
		sets.voters |= bit(node)
		m.ask(at, g, sets)
		at = m.later(at)
	}
	m.out = append(m.out, Fault{At: at, Kind: Leave, Node: node, N: m.d.Uint64N(2)})
}
