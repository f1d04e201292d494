package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// View calls fn with this node's state machine of a group, which must have the
// type S. With [Linearizable] it waits until the state machine has applied
// everything that was acknowledged before View began. fn runs beside Apply, never
// beside Restore or Close: the state machine must lock what both touch. fn must
// neither change the state nor keep it; its error is returned as it is.
//
// A node without a replica of the group gets [ErrNoReplica]; see [Node.Query] for
// reading from anywhere.
func View[S any](
	ctx context.Context, n *Node, g raftyard.GroupID, c Consistency, fn func(S) error,
) error {
	return n.viewLocal(ctx, here(g), c, func(sm group.StateMachine) error {
		s, ok := sm.(S)
		if !ok {
			return fmt.Errorf("group %d: %w: its state machine is a %T", g, ErrUnsupported, sm)
		}
		return fn(s)
	})
}

// Query asks a group's state machine a question that it understands (see
// [group.Querier]), here or, if this node has no replica with state, on one that has. A state
// machine that takes none gives [ErrUnsupported].
func (n *Node) Query(
	ctx context.Context, g raftyard.GroupID, c Consistency, query []byte,
) ([]byte, error) {
	limit, began := n.limitOf(ctx), n.world.now()
	if _, err := n.serving(g); err == nil {
		answer, err := n.queryLocal(ctx, here(g), c, query)
		if !errors.Is(err, ErrNoReplica) && !errors.Is(err, ErrFaulty) {
			return answer, err
		}
	}
	return n.queryAnywhere(ctx, n.left(limit, began), g, c, query)
}

// queryAnywhere has whoever has the group's state answer.
func (n *Node) queryAnywhere(
	ctx context.Context, limit time.Duration, g raftyard.GroupID, c Consistency, query []byte,
) ([]byte, error) {
	ctx, cancel := n.withLimit(ctx, limit)
	defer cancel()
	var answer []byte
	err := n.atState(ctx, g, func(to raftyard.NodeID, _ bool) (err error) {
		switch {
		case to != n.cfg.ID:
			answer, err = n.queryAt(ctx, to, g, c, query)
		default:
			if err = n.keepsLogOnly(g); err == nil {
				answer, err = n.queryLocal(ctx, here(g), c, query)
			}
		}
		if errors.Is(err, ErrUnknownOutcome) {
			return &unreachableError{node: to, err: readError(err)} // a read may be repeated
		}
		return err
	})
	return answer, err
}

// queryAt has another node answer.
func (n *Node) queryAt(
	ctx context.Context, to raftyard.NodeID, g raftyard.GroupID, c Consistency, query []byte,
) ([]byte, error) {
	at, err := n.address(g)
	if err != nil {
		return nil, err
	}
	body := append(at.append(make([]byte, 0, len(query)+64)), byte(c))
	return n.ask(ctx, to, askQuery, wire.AppendBytes(body, query))
}

func (n *Node) queryLocal(
	ctx context.Context, at address, c Consistency, query []byte,
) (answer []byte, err error) {
	err = n.viewLocal(ctx, at, c, func(sm group.StateMachine) (err error) {
		q, ok := sm.(group.Querier)
		if !ok {
			return fmt.Errorf("group %d: %w: it takes no queries", at.group, ErrUnsupported)
		}
		if answer, err = q.Query(query); err != nil {
			return fmt.Errorf("group %d: %w: %w", at.group, ErrQueryFailed, err)
		}
		return nil
	})
	return answer, err
}

func (n *Node) viewLocal(
	ctx context.Context, at address, c Consistency, fn func(group.StateMachine) error,
) error {
	limit, began := n.limitOf(ctx), n.world.now()
	r, err := n.readable(at)
	if errors.Is(err, ErrNotReady) {
		r, err = n.awaitReadable(ctx, limit, at)
	}
	if err != nil {
		return err
	}
	switch c {
	case Stale:
	case Linearizable:
		if err = r.readBarrier(ctx, n.left(limit, began)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: consistency %d", ErrInvalid, c)
	}
	n.metrics.reads.Add(1)
	done, err := r.machine.tryUse(fn)
	if !done {
		err = n.useWithin(ctx, n.left(limit, began), r.machine, fn)
	}
	if errors.Is(err, group.ErrFatal) {
		n.stopReplica(r, faulty(MachineFailed, err))
	}
	return err
}

// useWithin has a state machine read as soon as it is restored.
func (n *Node) useWithin(
	ctx context.Context, limit time.Duration, m *machine, fn func(group.StateMachine) error,
) error {
	ctx, cancel := n.withLimit(ctx, limit)
	defer cancel()
	return m.use(ctx, fn)
}

// left returns how much of a limit is left, at least some; zero is no limit, as ever.
func (n *Node) left(limit time.Duration, began time.Time) time.Duration {
	if limit == 0 {
		return 0
	}
	return max(limit-n.world.now().Sub(began), 1)
}

// readable returns this node's replica if its state machine can be read.
func (n *Node) readable(at address) (*replica, error) {
	r, err := n.servingAt(at)
	switch {
	case err != nil:
		return nil, err
	case r.machine.fault() != nil:
		return nil, fmt.Errorf("group %d: %w", at.group, r.machine.fault())
	case r.machine.logOnly.Load():
		return nil, fmt.Errorf("group %d: %w: %w", at.group, ErrNoReplica, errLogOnly)
	default:
		return r, nil
	}
}

// awaitReadable is readable as soon as the node has read the registry.
func (n *Node) awaitReadable(
	ctx context.Context, limit time.Duration, at address,
) (*replica, error) {
	ctx, cancel := n.withLimit(ctx, limit)
	defer cancel()
	for {
		r, err := n.readable(at)
		if !errors.Is(err, ErrNotReady) || !n.world.sleep(ctx, pollEvery) {
			return r, err
		}
	}
}

// readBarrier returns when the state machine has applied everything that was
// acknowledged before the call. A read has no effect, so its error never says
// that the outcome is unknown. It takes as long as ctx goes on, and no longer than the limit
// unless that is zero.
func (r *replica) readBarrier(ctx context.Context, limit time.Duration) error {
	c := newCall(r)
	if !r.worker.box.read(c) {
		r.worker.node.metrics.refuse(workerQueueLimit)
		return fmt.Errorf("group %d: %w", r.group, ErrOverloaded)
	}
	if _, err := c.waitFor(ctx, limit); err != nil {
		return fmt.Errorf("read: %w", readError(err))
	}
	return nil
}

// readError takes from an error that the outcome is unknown: that a read has
// none is known.
func readError(err error) error {
	if !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	for _, kind := range []error{ErrFaulty, ErrClosed, ErrNoReplica} {
		if errors.Is(err, kind) {
			return &remoteError{text: err.Error(), kind: kind}
		}
	}
	return &remoteError{text: "the leader did not confirm the read in time", kind: ErrNoLeader}
}

// dropRead forgets a confirmed read that waits for the state machine.
func (r *replica) dropRead(c *call) bool {
	for i, wr := range r.reads {
		if wr.call == c {
			r.reads = append(r.reads[:i], r.reads[i+1:]...)
			return true
		}
	}
	return false
}

// notApplied says why a request that was cancelled had not got anywhere.
func (n *Node) notApplied(r *replica, cause error) error {
	if r.leader.Leader == 0 {
		return fmt.Errorf("group %d: %w within the deadline: %w", r.group, ErrNoLeader, cause)
	}
	return fmt.Errorf("group %d: %w: %w", r.group, ErrTimeout, cause)
}
