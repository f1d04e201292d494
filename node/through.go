package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// A leader without a state machine puts commands into the log and cannot tell what comes
// of them. Another member can: it waits for the command, by its id, at its own state
// machine, and has the leader append it.
//
//	caller ──▶ member with state: waits for the id ──▶ leader: appends
//	  ◀── result ── its state machine applies the id ◀── log ──┘ ── committed at index ──▶
//
// What is certain of the leader's answer is certain for the caller. When the answer is lost
// the member may still see the command applied; otherwise nobody knows.

// expected are the commands that somebody waits for at a state machine, though this
// replica has not proposed them. The zero value is ready.
type expected struct {
	mu     sync.Mutex
	m      map[group.CommandID]*expectation
	passed uint64 // a snapshot of this index was taken over
}

// expectation is one command that somebody waits for.
type expectation struct {
	call  *call
	index uint64 // at which it is committed; zero: not known
}

// maxExpected bounds the commands that are waited for at one state machine.
const maxExpected = 1 << 14

// add begins to wait for a command; it is false if too many wait.
func (e *expected) add(id group.CommandID, c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.m) >= maxExpected {
		return false
	}
	if e.m == nil {
		e.m = make(map[group.CommandID]*expectation)
	}
	e.m[id] = &expectation{call: c}
	return true
}

// remove ends waiting for a command.
func (e *expected) remove(id group.CommandID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.m, id)
}

// at hears at which index a command is committed.
func (e *expected) at(id group.CommandID, index uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.m[id]; x != nil {
		x.index = index
		e.concludeLocked()
	}
}

// pass hears that the state machine has taken over a snapshot: results up to its index
// are not seen here any more.
func (e *expected) pass(index uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.passed = max(e.passed, index)
	e.concludeLocked()
}

func (e *expected) concludeLocked() {
	for id, x := range e.m { // each ends on its own, so the order does not matter
		if x.index != 0 && x.index <= e.passed {
			delete(e.m, id)
			x.call.finish(group.Result{}, fmt.Errorf(
				"%w: it is committed at index %d, and a snapshot came in place of its result",
				ErrUnknownOutcome, x.index))
		}
	}
}

// answer tells those who wait for one of the commands.
func (e *expected) answer(commands []group.Command, results []group.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(commands) && len(e.m) > 0; i++ {
		if x := e.m[commands[i].ID]; x != nil {
			delete(e.m, commands[i].ID)
			results[i].Index = commands[i].Index
			x.call.finish(results[i], nil)
		}
	}
}

// proposeHere proposes through this node's replica, which has the state, to whoever leads.
func (n *Node) proposeHere(
	ctx context.Context, at address, p group.Proposal,
) (group.Result, error) {
	r, err := n.servingAt(at)
	if err != nil {
		return group.Result{}, err
	}
	if r.machine.logOnly.Load() {
		return group.Result{}, r.noState()
	}
	switch leader := r.view.Load().LeaderNode; leader {
	case 0:
		return group.Result{}, &NotLeaderError{Group: r.group}
	case n.cfg.ID:
		return n.proposeLocal(ctx, at, p)
	default:
		return n.proposeThrough(ctx, r, leader, p)
	}
}

// proposeHereAsked is proposeHere for another node.
func (n *Node) proposeHereAsked(
	ctx context.Context, at address, p group.Proposal,
) (group.Result, error) {
	if limit := n.answerWithin(ctx); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = n.world.withTimeout(ctx, limit)
		defer cancel()
	}
	return n.proposeHere(ctx, at, p)
}

// proposeThrough has the leader append a command and waits for it here.
func (n *Node) proposeThrough(
	ctx context.Context, r *replica, leader raftyard.NodeID, p group.Proposal,
) (group.Result, error) {
	c := newCall(r)
	if !r.machine.expected.add(p.ID, c) {
		n.metrics.refuse(proposalLimit)
		return group.Result{}, fmt.Errorf("group %d: %w", r.group, ErrOverloaded)
	}
	defer r.machine.expected.remove(p.ID)
	index, err := n.appendAt(ctx, leader, r, p)
	switch {
	case err == nil:
		r.machine.expected.at(p.ID, index)
		unknown := fmt.Errorf("group %d: %w: it is committed at index %d, and not applied here "+
			"within the deadline", r.group, ErrUnknownOutcome, index)
		return c.awaitApplied(ctx, unknown)
	case NotApplied(err):
		return group.Result{}, err
	default:
		// It may be on its way through the log.
		short, cancel := n.world.withTimeout(ctx, n.ticks(2*n.cfg.ElectionTicks))
		defer cancel()
		return c.awaitApplied(short, err)
	}
}

// awaitApplied waits until the command of c is applied here, or ctx ends, when its outcome
// is what the caller says.
func (c *call) awaitApplied(ctx context.Context, unknown error) (group.Result, error) {
	switch _, from := await(c.r.worker.node.world, c.done, c.r.gone, ctx.Done()); from {
	case fromValues:
		return c.answer.result, c.answer.err
	case fromFirst:
		return c.lost(c.r.goneReason())
	default:
		return group.Result{}, unknown
	}
}

// appendAt has the leader append a command, and returns the index at which it is committed.
func (n *Node) appendAt(
	ctx context.Context, leader raftyard.NodeID, r *replica, p group.Proposal,
) (uint64, error) {
	body := r.address().append(make([]byte, 0, len(p.Data)+64))
	body = wire.AppendID(body, p.ID)
	body = wire.AppendBytes(body, p.Data)
	answer, err := n.ask(ctx, leader, askAppend, body)
	if err != nil {
		return 0, err
	}
	b := wire.NewReader(answer)
	index := b.Uvarint()
	if err = b.Close(); err == nil && index == 0 {
		err = errors.New("no index")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: answer of node %d: %w", ErrUnknownOutcome, leader, err)
	}
	return index, nil
}

// serveAppend appends a command whose result the asking node sees for itself.
func (n *Node) serveAppend(ctx context.Context, b *wire.Reader) ([]byte, error) {
	at := readAddress(b)
	p := group.Proposal{ID: group.CommandID(b.ID()), Data: b.Bytes()}
	if err := b.Close(); err != nil {
		return nil, err
	}
	r, err := n.servingAt(at)
	if err != nil {
		return nil, err
	}
	c := newCall(r)
	c.append = true
	if err = c.propose(p); err != nil {
		return nil, err
	}
	res, err := c.waitFor(ctx, n.answerWithin(ctx))
	if err != nil {
		return nil, err
	}
	return wire.AppendUvarint(nil, res.Index), nil
}

// atState calls try with a node that can answer from the group's state: the leader, or, if
// that has none, a member that has, with through set. It goes on as [Node.atLeader] does.
func (n *Node) atState(
	ctx context.Context, g raftyard.GroupID, try func(to raftyard.NodeID, through bool) error,
) error {
	var avoid raftyard.NodeID
	return n.atLeader(ctx, g, func(to raftyard.NodeID) error {
		if !n.leadsWithoutState(g, to) {
			if err := try(to, false); !errors.Is(err, ErrNoState) {
				return err
			}
		}
		holder, err := n.stateHolder(ctx, g, avoid)
		if err != nil {
			return err
		}
		avoid = holder
		err = try(holder, true)
		if holder != n.cfg.ID && NotApplied(err) &&
			(errors.Is(err, ErrClosed) || errors.Is(err, ErrFaulty)) {
			return &unreachableError{node: holder, err: err} // another one may do
		}
		return err
	})
}

// leadsWithoutState reports whether a node is known to lead a group without having the
// state.
func (n *Node) leadsWithoutState(g raftyard.GroupID, id raftyard.NodeID) bool {
	leader, ok := n.Leader(g)
	if !ok || leader != id || !n.kinds.any() {
		return false
	}
	kind, ok := n.Kind(g)
	return ok && n.kinds.lacks(id, n.liveBoots()[id], kind)
}

// stateHolder returns a node that has the state of a group, as far as can be found out:
// this one if it has.
func (n *Node) stateHolder(
	ctx context.Context, g raftyard.GroupID, avoid raftyard.NodeID,
) (raftyard.NodeID, error) {
	kind, _ := n.Kind(g)
	r, err := n.serving(g)
	if err == nil && !r.machine.logOnly.Load() && avoid != n.cfg.ID {
		return n.cfg.ID, nil
	}
	rec, _ := n.registry.Group(g)
	nodes := slices.Concat(rec.Voters, rec.Learners)
	if err == nil {
		for _, m := range r.view.Load().State.Descriptor.Members {
			nodes = append(nodes, m.Node)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	n.askForKindsOf(ctx, nodes)
	live := n.liveBoots()
	nodes = slices.DeleteFunc(nodes, func(id raftyard.NodeID) bool {
		return !n.kinds.has(id, live[id], kind)
	})
	nodes = butNot(nodes, avoid)
	if len(nodes) == 0 {
		if fault := n.localFault(g); fault != nil && n.isAlone(r) {
			return 0, fault // waiting is of no use
		}
		return 0, fmt.Errorf("group %d: %w: no member with a state machine is connected",
			g, ErrNoState)
	}
	return nodes[n.world.roll(int64(len(nodes)))], nil
}
