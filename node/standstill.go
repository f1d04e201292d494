package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A state machine that fails stands still, and its replica goes on without it, as on a
// node that does not know the kind: it keeps the log, acknowledges and votes, so that the
// group loses nothing of what it can bear. What it does is in logonly.go. Its log is kept
// from where the state machine stands, unless the replica comes by a newer state.
//
//	applies ──▶ fails in several entries ──▶ opened again, applies them one by one ──▶ goes on
//	   │                                              │
//	   └──▶ fails in one ──▶ stands still ◀───────────┘
//	                            │
//	                            ├─ retry: opened again where it stands
//	                            └─ rebuild: a state from another member, opened again with it
//
// A replica whose log cannot be trusted, or in which raft has panicked, is silent.

const (
	// closePatience is how long a state machine that has failed may take to close: one
	// that has panicked may hold a lock for ever.
	closePatience = 2 * time.Second
	// maxPinpoints is how often the entry is looked for at which a state machine fails, or
	// lost state is replaced, before somebody has to say so.
	maxPinpoints = 3
)

// A span is a range of indexes, both included. The zero span has none.
type span struct{ first, last uint64 }

// touches reports whether a run has an index in the span.
func (s span) touches(ap *group.Apply) bool {
	return s.last != 0 && ap.First <= s.last && ap.Last >= s.first
}

// fault returns why the state machine stands still, or nil.
func (m *machine) fault() error {
	if f := m.broken.Load(); f != nil {
		return f
	}
	return nil
}

// standStill ends the work of the state machine. Who waits for it is told that the
// outcome is unknown.
func (m *machine) standStill(fault *faultError) {
	if m.broken.CompareAndSwap(nil, fault) {
		m.logOnly.Store(true)
		m.expected.abandon(fault)
	}
}

// follow goes past commands that are committed, without a state machine.
func (m *machine) follow(ts []task) {
	for _, t := range ts {
		for i, token := range t.apply.Tokens {
			if c, ok := token.(*call); ok {
				m.followed(c, t.apply.Commands[i].Index)
			}
		}
		m.expected.lose(t.apply.Commands, m.unanswered())
		m.moveTo(t.apply)
	}
}

// followed ends a call whose command is committed.
func (m *machine) followed(c *call, index uint64) {
	if c.append {
		c.finish(group.Result{Index: index}, nil)
		return
	}
	c.finish(group.Result{}, m.unanswered())
}

// unanswered is what is known of a command that is committed here.
func (m *machine) unanswered() error {
	if fault := m.fault(); fault != nil {
		return fmt.Errorf("%w: it is committed: %w", ErrUnknownOutcome, fault)
	}
	return fmt.Errorf("%w: it is committed: %w", ErrUnknownOutcome, errLogOnly)
}

// abandon ends waiting for all commands.
func (e *expected) abandon(fault error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, x := range e.m { // each ends on its own, so the order does not matter
		delete(e.m, id)
		x.call.finish(group.Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, fault))
	}
}

// lose ends waiting for commands that are committed, and whose results nobody sees.
func (e *expected) lose(commands []group.Command, reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(commands) && len(e.m) > 0; i++ {
		if x := e.m[commands[i].ID]; x != nil {
			delete(e.m, commands[i].ID)
			x.call.finish(group.Result{}, reason)
		}
	}
}

// mayStandStill reports whether a replica can go on without its state machine. The system
// group's cannot: the node acts on what it says. Nor can any on a node that fails.
func (r *replica) mayStandStill(fault error) bool {
	return r.group != raftyard.SystemGroup && !errors.Is(fault, group.ErrFatal)
}

// machineFailed hears that commands could not be applied. It reports whether the replica
// goes on without its state machine.
func (n *Node) machineFailed(r *replica, ts []task, err error) bool {
	last := ts[len(ts)-1].apply
	at := span{first: last.First, last: last.Last}
	if a, ok := errors.AsType[*applyError](err); ok {
		at = span{first: a.first, last: a.last}
	}
	var index, term uint64
	if at.first == at.last {
		index = at.first
		if t, terr := r.log.Term(index); terr == nil {
			term = t
		}
	}
	if why := r.machine.damage(); why != nil {
		// It has failed because of what it had stored, and would again: it takes another state.
		err = faultyAt(rotReason(why), at.first, term, why)
	}
	fault := machineFault(index, term, err)
	if f, ok := errors.AsType[*faultError](fault); ok && f.index != 0 {
		f.describeEntry(r.log)
	}
	if !r.mayStandStill(fault) {
		n.stopReplica(r, fault)
		return false
	}
	n.standStill(r, fault)
	r.worker.box.control(func() {
		r.worker.guard(r, "stand still", func() { r.worker.stoodStill(r) })
	})
	if _, known := errors.AsType[*faultError](err); known {
		return true
	}
	if index == 0 && r.attempts.Add(1) <= maxPinpoints {
		r.note("the state machine is opened again, to apply %d to %d one by one", at.first, at.last)
		n.reopen(r, &reopening{careful: at})
	}
	return true
}

// standStill has a replica go on without its state machine.
func (n *Node) standStill(r *replica, err error) {
	fault, ok := errors.AsType[*faultError](err)
	if !ok {
		fault = &faultError{reason: MachineFailed, err: err}
	}
	r.events.fault(n.world.now(), fault)
	r.machine.standStill(fault)
	n.stoodStill.Store(true)
	if errors.Is(fault, errThrownAway) {
		n.logger.Info("the state of a replica is thrown away; it takes over another's",
			groupAttr(r.group), replicaAttr(r.id))
		n.noteChange()
		return
	}
	n.metrics.replicasStopped.Add(1)
	n.logger.Error("state machine stopped; its replica keeps the log and votes, and the rest "+
		"of the node goes on", groupAttr(r.group), replicaAttr(r.id), errAttr(fault))
	if p, ok := errors.AsType[*panicError](fault); ok {
		n.logger.Error("where it was", groupAttr(r.group), stackAttr(p.stack))
	}
	n.noteChange()
}

// stoodStill hears that the state machine stands still.
func (w *worker) stoodStill(r *replica) {
	fault := r.machine.broken.Load()
	if fault.reason == DamagedState && fault.index != 0 {
		r.own.wanted, r.own.from, r.own.pause = true, fault.index, 0
	}
	w.lookAtSkips(r)
}

// errHangs: a state machine does not close.
var errHangs = errors.New("the state machine that has failed does not close; " +
	"only a restart of the node can open it again")

// closeApart closes a state machine that may never return from that.
func (m *machine) closeApart(destroy bool) error {
	ctx, cancel := m.world.withTimeout(context.Background(), closePatience)
	defer cancel()
	closed := make(chan error, 1)
	m.world.spawn("close", func() { closed <- m.close(destroy) })
	err, from := await(m.world, closed, nil, ctx.Done())
	if from == fromSecond {
		return errHangs
	}
	return err
}

// loadBroken has a replica whose state machine cannot be brought up start without it. It
// returns the error if that must not be.
func (n *Node) loadBroken(r *replica, err error) error {
	fault := loadFault(err)
	if !r.mayStandStill(fault) || quarantineOf(fault).Reason == DamagedLog {
		return err
	}
	n.standStill(r, fault)
	at := r.meta.Floor
	r.machine.position = position{applied: at.Index, term: at.Term, state: r.meta.State}
	if quarantineOf(fault).Reason == DamagedState {
		r.own.wanted, r.own.rotten = true, errors.Is(err, errRotten)
	}
	return nil
}

// isAlone reports whether a replica is the only member of its group.
func (n *Node) isAlone(r *replica) bool {
	return r != nil && len(r.view.Load().State.Descriptor.Members) == 1
}
