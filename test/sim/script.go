package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
	"github.com/raftyard/raftyard/transport"
)

// A Verdict is what an interceptor decides about a message. The zero value lets it
// pass.
type Verdict = simnet.Verdict

// scriptPatience is how long a script waits for anything, in virtual time.
const scriptPatience = time.Minute

// A Script is a [World] in which a test says what happens. Rules are checked as
// ever; a broken one ends the test. Nothing fails unless the script says so.
type Script struct {
	t testing.TB
	w *World
}

// Start returns a script whose nodes and groups are up. The defaults of cfg.Nodes and
// cfg.Groups are 3 and 1; there are no clients. Everything ends with the test.
func Start(t testing.TB, cfg Config) *Script {
	t.Helper()
	s := begin(t, cfg)
	s.Until("every group is created", func() bool {
		for _, g := range s.w.groups {
			if !g.created {
				return false
			}
		}
		return true
	})
	return s
}

// begin is Start, without waiting for anything.
func begin(t testing.TB, cfg Config) *Script {
	t.Helper()
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Groups == 0 {
		cfg.Groups = 1
	}
	if cfg.Lacking == nil {
		cfg.Lacking = []raftyard.NodeID{}
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Script{t: t, w: w}
	t.Cleanup(func() {
		w.close()
		if t.Failed() {
			t.Logf("the last events:\n%s", w.trace)
		}
	})
	w.plan()
	w.watchSleepers()
	for _, h := range w.members() {
		h.wanted = true
		h.start()
	}
	return s
}

// Time returns the virtual time since the beginning.
func (s *Script) Time() time.Duration { return s.w.turns.Time() }

// Until lets time pass until something is so. It ends the test when that takes more
// than a minute.
func (s *Script) Until(what string, so func() bool) {
	s.t.Helper()
	limit := s.Time() + scriptPatience
	s.w.turns.At(int64(limit), func() {})
	held := s.w.turns.Until(func() bool { return so() || s.Time() >= limit })
	if f := s.w.result(); f != nil {
		s.t.Fatal(f)
	}
	if !held || !so() {
		s.t.Fatalf("after %v it is not so that %s", scriptPatience, what)
	}
}

// Run lets time pass.
func (s *Script) Run(d time.Duration) {
	s.t.Helper()
	end := s.Time() + d
	s.w.turns.At(int64(end), func() {})
	s.Until("the time has passed", func() bool { return s.Time() >= end })
}

// Crash takes the power from a node: what it has not synced may be gone. It stays
// down until Restart.
func (s *Script) Crash(id raftyard.NodeID) {
	s.w.host(id).wanted = false
	s.w.crash(id, 0)
}

// Kill kills a node's process. It stays down until Restart.
func (s *Script) Kill(id raftyard.NodeID) {
	s.w.host(id).wanted = false
	s.w.kill(id, 0)
}

// Stop closes a node in order and waits for that. It stays down until Restart.
func (s *Script) Stop(id raftyard.NodeID) {
	s.t.Helper()
	h := s.w.host(id)
	h.wanted = false
	h.stop()
	s.Until("the node is closed", func() bool { return h.state == down })
}

// Restart starts a node, and waits until it is up.
func (s *Script) Restart(id raftyard.NodeID) {
	s.t.Helper()
	h := s.w.host(id)
	h.wanted = true
	h.start()
	s.Until("the node is up", func() bool { return h.state == running })
}

// Lack says whether a node lacks the kinds from its next start on; see [Config.Lacking].
func (s *Script) Lack(id raftyard.NodeID, lacks bool) {
	without := slices.DeleteFunc(slices.Clone(s.w.cfg.Lacking), func(o raftyard.NodeID) bool {
		return o == id
	})
	if lacks {
		without = append(without, id)
	}
	s.w.cfg.Lacking = without
}

// Pause has a node stand still for d.
func (s *Script) Pause(id raftyard.NodeID, d time.Duration) { s.w.pause(id, d) }

// FailSync has the next sync of a node fail. The node, or what it was for, is
// stopped, and started again within half a second.
func (s *Script) FailSync(id raftyard.NodeID) { s.w.host(id).failSync = true }

// Cut lets nothing pass that from sends to to.
func (s *Script) Cut(from, to raftyard.NodeID) { s.set(from, to, true) }

// Mend ends a cut.
func (s *Script) Mend(from, to raftyard.NodeID) { s.set(from, to, false) }

func (s *Script) set(from, to raftyard.NodeID, cut bool) {
	s.w.net.SetFaults(simnet.Route{From: from, To: to}, func(f *simnet.Faults) { f.Cut = cut })
}

// Isolate cuts a node off from all others, both ways.
func (s *Script) Isolate(id raftyard.NodeID) {
	for _, h := range s.w.hosts {
		if h.id != id {
			s.Cut(id, h.id)
			s.Cut(h.id, id)
		}
	}
}

// Heal ends all cuts.
func (s *Script) Heal() { s.w.net.Heal(s.w.ids()) }

// Inject does what a fault says.
func (s *Script) Inject(f Fault) {
	s.w.working = true // faults are of the first phase
	if s.w.fits(&f) {
		s.w.inject(&f)
	}
}

// Intercept has fn decide about every message between replicas, in place of an
// earlier one. fn must not change the message. Nil ends it.
func (s *Script) Intercept(fn func(env *transport.Envelope) Verdict) { s.w.net.Intercept(fn) }

// Held returns how many messages are kept back under a name.
func (s *Script) Held(name string) int { return s.w.net.Held(name) }

// Release lets the messages arrive that are kept back under a name, also at a node
// that has been started again: in their order, or the last one first.
func (s *Script) Release(name string, reversed bool) { s.w.net.Release(name, reversed) }

// On runs fn with a node, and returns its error, or [ErrDied] if the node crashes
// before it returns, or [ErrDown] if it is not up.
func (s *Script) On(
	id raftyard.NodeID, fn func(ctx context.Context, n *node.Node) error,
) error {
	h := s.w.host(id)
	if h.state != running {
		return ErrDown
	}
	return s.w.call(h, "script", scriptPatience/2, fn)
}

// Begin is On without waiting: done reports whether fn has ended, and how.
func (s *Script) Begin(
	id raftyard.NodeID, fn func(ctx context.Context, n *node.Node) error,
) (done func() (bool, error)) {
	var ended bool
	var err error
	h := s.w.host(id)
	s.w.clients.Go("begin", func() {
		if h.state != running {
			ended, err = true, ErrDown
			return
		}
		err = s.w.call(h, "script", scriptPatience/2, fn)
		ended = true
	})
	return func() (bool, error) { return ended, err }
}

// Propose proposes a command on a node.
func (s *Script) Propose(
	id raftyard.NodeID, g raftyard.GroupID, cmd []byte,
) (res group.Result, err error) {
	err = s.On(id, func(ctx context.Context, n *node.Node) (err error) {
		res, err = n.Propose(ctx, g, cmd)
		return err
	})
	return res, err
}

// Leader returns the node that leads a group in the highest term that any replica
// is in, or zero.
func (s *Script) Leader(g raftyard.GroupID) raftyard.NodeID { return s.w.leader(g) }

// Applied returns how far a node's state machine of a group is.
func (s *Script) Applied(id raftyard.NodeID, g raftyard.GroupID) uint64 {
	r, _ := s.replica(id, g)
	return r.Applied
}

// First returns the first index in a node's log of a group.
func (s *Script) First(id raftyard.NodeID, g raftyard.GroupID) uint64 {
	r, _ := s.replica(id, g)
	return firstOf(&r)
}

// replica returns what is seen of a node's replica of a group.
func (s *Script) replica(id raftyard.NodeID, g raftyard.GroupID) (world.Replica, bool) {
	return s.w.host(id).replica(g)
}
