package transport

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
)

// admission remembers which process speaks for each node, and refuses a second
// one. Connections of both directions are entered: a clone is recognised whether
// it dials or is dialled.
type admission struct {
	perNode int // most connections that one node may have dialled
	total   int // most connections that all nodes together may have dialled

	mu      sync.Mutex
	members map[raftyard.NodeID]*member
	in      int // connections that peers have dialled
}

// member is a node that is, or was, connected.
type member struct {
	process
	conns map[io.Closer]entered
	turns *turns
}

// entered says what a connection is.
type entered struct {
	class   Class
	inbound bool
	turn    uint64 // of an inbound connection for messages
}

// turns keeps the messages of one node in order when a connection takes the place
// of another: the goroutine of the older one may still have some, which must not
// come after those of the newer one.
type turns struct {
	latest atomic.Uint64

	mu sync.Mutex // held while messages are delivered
}

// errOutdated ends a connection whose place another one has taken.
var errOutdated = errors.New("another connection has taken its place")

// deliver calls f, alone, unless the turn is over.
func (ts *turns) deliver(turn uint64, f func()) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.latest.Load() != turn {
		return errOutdated
	}
	f()
	return nil
}

// maxMembers bounds how many nodes are remembered. Those that are not connected
// are forgotten first; a forgotten node's boot counter is not known any more.
const maxMembers = 4096

// enter registers a connection with p, or says why there must be none. An
// inbound connection for messages or requests takes the place of an older one
// of its class: the peer has given that one up before we noticed.
func (a *admission) enter(p *process, class Class, inbound bool, c io.Closer) *RefusalError {
	var outdated []io.Closer
	defer func() {
		for _, old := range outdated {
			closeQuietly(old)
		}
	}()
	a.mu.Lock()
	defer a.mu.Unlock()

	m := a.members[p.Node]
	if m != nil {
		if ref := m.judge(p); ref != nil {
			return ref
		}
	}
	if inbound && a.in >= a.total {
		return refuse(RefusedFull, "%d connections are open", a.in)
	}
	if m == nil {
		if !a.makeRoomLocked() {
			return refuse(RefusedFull, "%d nodes are connected", len(a.members))
		}
		m = &member{conns: make(map[io.Closer]entered), turns: new(turns)}
		a.members[p.Node] = m
	}
	outdated = m.outdated(p, class, inbound)
	for _, old := range outdated {
		a.removeLocked(m, old)
	}
	if inbound && m.inbound() >= a.perNode {
		return refuse(RefusedFull, "node %d has %d connections open", p.Node, len(m.conns))
	}
	m.process = *p
	e := entered{class: class, inbound: inbound}
	if inbound {
		a.in++
		if class == ClassRaft {
			e.turn = m.turns.latest.Add(1)
		}
	}
	m.conns[c] = e
	return nil
}

// turn returns the turn of an inbound connection for messages, unless another one
// has taken its place already.
func (a *admission) turn(node raftyard.NodeID, c io.Closer) (ts *turns, turn uint64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.members[node]
	if m == nil {
		return nil, 0, false
	}
	e, ok := m.conns[c]
	return m.turns, e.turn, ok
}

// judge says whether p may be the process that the node has now.
func (m *member) judge(p *process) *RefusalError {
	sameStore := m.Store == p.Store
	switch {
	case !sameStore && len(m.conns) > 0:
		return refuse(RefusedClone, "node %d is connected with store %s, the newcomer has store %s",
			p.Node, m.Store, p.Store)
	case sameStore && p.Boot < m.Boot:
		return refuse(RefusedStale, "node %d has been seen at start %d, the newcomer is at %d",
			p.Node, m.Boot, p.Boot)
	case sameStore && p.Boot == m.Boot && p.id != m.id && len(m.conns) > 0:
		return refuse(RefusedClone, "node %d is connected, and another process at start %d of "+
			"store %s wants to be", p.Node, p.Boot, p.Store)
	}
	return nil
}

// outdated returns the connections that a new one with p replaces.
func (m *member) outdated(p *process, class Class, inbound bool) []io.Closer {
	var old []io.Closer
	for c, e := range m.conns {
		restarted := m.id != p.id
		replaced := inbound && e.inbound && e.class == class && class != ClassSnapshot
		if restarted || replaced {
			old = append(old, c)
		}
	}
	return old
}

func (m *member) inbound() int {
	n := 0
	for _, e := range m.conns {
		if e.inbound {
			n++
		}
	}
	return n
}

func (a *admission) makeRoomLocked() bool {
	if len(a.members) < maxMembers {
		return true
	}
	for node, m := range a.members {
		if len(m.conns) == 0 {
			delete(a.members, node)
			return true
		}
	}
	return false
}

func (a *admission) removeLocked(m *member, c io.Closer) {
	if e, ok := m.conns[c]; ok {
		delete(m.conns, c)
		if e.inbound {
			a.in--
		}
	}
}

// leave removes a connection. It may be called for one that was replaced.
func (a *admission) leave(node raftyard.NodeID, c io.Closer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.members[node]; m != nil {
		a.removeLocked(m, c)
	}
}

// identity returns what is known of a node.
func (a *admission) identity(node raftyard.NodeID) (Identity, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.members[node]
	if m == nil {
		return Identity{}, false
	}
	return m.Identity, true
}
