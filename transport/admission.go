package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

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
	Identity
	told  string // where it has said last that it is reached
	conns map[io.Closer]entered
	idle  chan struct{} // closed when the last of conns has gone
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

// restartPatience is how long a handshake waits for the connections of an earlier start
// to go. Those of a process that has ended go at once; those of a machine that was
// switched off when they have been silent for Config.DeadAfter.
const restartPatience = 250 * time.Millisecond

// await says whether p may be the process that speaks for its node. If an earlier start
// of it is connected, which must have ended, it gives that a moment.
func (a *admission) await(ctx context.Context, p *Identity) *RefusalError {
	ref, idle := a.judge(p)
	if idle == nil {
		return ref
	}
	timer := time.NewTimer(restartPatience)
	defer timer.Stop()
	for idle != nil {
		select {
		case <-idle:
			ref, idle = a.judge(p)
		case <-timer.C:
			return ref
		case <-ctx.Done():
			return ref
		}
	}
	return ref
}

func (a *admission) judge(p *Identity) (ref *RefusalError, idle <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.members[p.Node]
	if m == nil {
		return nil, nil
	}
	ref = m.judge(p)
	if ref != nil && m.Store == p.Store && m.Boot < p.Boot {
		return ref, m.idle
	}
	return ref, nil
}

// enter registers a connection with p, or says why there must be none. An
// inbound connection for messages or requests takes the place of an older one
// of its class: the peer has given that one up before we noticed.
func (a *admission) enter(p *Identity, class Class, inbound bool, c io.Closer) *RefusalError {
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
	if inbound && class != ClassSnapshot {
		outdated = m.inboundOf(class)
	}
	for _, old := range outdated {
		a.removeLocked(m, old)
	}
	if inbound && m.inbound() >= a.perNode {
		return refuse(RefusedFull, "node %d has %d connections open", p.Node, len(m.conns))
	}
	m.Identity = *p
	e := entered{class: class, inbound: inbound}
	if inbound {
		a.in++
		if class == ClassRaft {
			e.turn = m.turns.latest.Add(1)
		}
	}
	if len(m.conns) == 0 {
		m.idle = make(chan struct{})
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

// judge says whether p may be the process that the node has now. One that is connected
// stays that, whatever another says of itself: a later start may be that of a copy, and
// where the earlier one has really ended, its connections go.
func (m *member) judge(p *Identity) *RefusalError {
	switch {
	case m.Store == p.Store && p.Boot < m.Boot:
		return refuse(RefusedStale, "node %d has been seen at start %d of data directory %s, and "+
			"comes with start %d, an earlier one: a later process was started on that directory, "+
			"or on a copy of it; stop the earlier one, and, if the later one is not to be, that "+
			"one as well, and start the node in an empty directory",
			p.Node, m.Boot, m.Store, p.Boot)
	case m.Process == p.Process && m.Store == p.Store || len(m.conns) == 0:
		return nil
	case m.Store != p.Store:
		return refuse(RefusedClone, "node %d is connected with data directory %s, and another "+
			"process comes with %s; if the first has ended this passes when its connections are "+
			"gone, in some seconds, else stop one of the two", p.Node, m.Store, p.Store)
	default:
		return refuse(RefusedClone, "node %d is connected at start %d of data directory %s, and "+
			"another process comes with start %d; if the first has ended this passes when its "+
			"connections are gone, in some seconds, else stop one of the two: they run in one "+
			"directory, or in copies of it", p.Node, m.Boot, p.Store, p.Boot)
	}
}

// inboundOf returns the connections of a class that the peer has dialled.
func (m *member) inboundOf(class Class) []io.Closer {
	var list []io.Closer
	for c, e := range m.conns {
		if e.inbound && e.class == class {
			list = append(list, c)
		}
	}
	return list
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
		if len(m.conns) == 0 {
			close(m.idle)
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

// tell hears where a node that was let in says that it is reached. One that says nothing
// takes nothing back.
func (a *admission) tell(node raftyard.NodeID, addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.members[node]; m != nil && addr != "" {
		m.told = addr
	}
}

// told returns where a node has said last that it is reached, or "".
func (a *admission) told(node raftyard.NodeID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.members[node]; m != nil {
		return m.told
	}
	return ""
}

// presented returns what a node has last presented itself with, and where it has said last
// that it is reached, as far as it has done so.
func (a *admission) presented(node raftyard.NodeID) (id Identity, told string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.members[node]; m != nil {
		return m.Identity, m.told
	}
	return Identity{}, ""
}
