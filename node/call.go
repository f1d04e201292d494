package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/group"
)

// A call is one request to a replica that somebody waits for: a proposal, a
// read, a membership change. It is the token that a [group.Replica] hands back,
// and it is finished at most once; whoever finishes it never blocks.
type call struct {
	r        *replica
	done     chan struct{} // holds one value when answer is there
	answered atomic.Bool   // somebody sets answer, or has
	answer   answer        // of whoever has taken the value from done

	// ended is set by the worker when nobody waits any more: a call that has not
	// reached raft by then never will.
	ended bool
	begun bool // it has reached raft

	// append: whoever waits needs no result, only to know that it is committed.
	append bool
}

// An answer ends a call.
type answer struct {
	result group.Result
	err    error
}

func newCall(r *replica) *call { return &call{r: r, done: make(chan struct{}, 1)} }

// finish ends the call. A second answer is dropped: it can only come after the
// caller was told that the outcome is unknown.
func (c *call) finish(res group.Result, err error) {
	if c.answered.CompareAndSwap(false, true) {
		c.answer = answer{result: res, err: err}
		c.done <- struct{}{}
	}
}

// waitFor returns the call's answer. When ctx ends first, or the node closes, or the limit is
// over, unless that is zero, it asks the worker what the outcome is by then; when the replica
// is gone the outcome is unknown. It makes no context for the limit: most calls end soon, and
// there are many.
func (c *call) waitFor(ctx context.Context, limit time.Duration) (group.Result, error) {
	n := c.r.worker.node
	var cause error
	switch n.world.awaitWithin(c.done, bounds{
		first: c.r.gone, second: ctx.Done(), third: n.running.Done(), limit: limit,
	}) {
	case byValue:
		return c.answer.result, c.answer.err
	case byFirst:
		return c.lost(c.r.goneReason())
	case bySecond:
		cause = context.Cause(ctx)
	case byThird:
		cause = ErrClosed
	case byClock:
		cause = context.DeadlineExceeded
	}
	c.r.worker.box.control(func() { c.r.worker.cancel(c, cause) })
	if _, from := await(n.world, c.done, c.r.gone, nil); from == fromValues {
		return c.answer.result, c.answer.err
	}
	return c.lost(c.r.goneReason())
}

// comesTooLate ends a call that has not reached raft, and cannot any more: its replica has
// gone. It certainly has no effect.
func (c *call) comesTooLate() bool {
	if c.r.serving() {
		return false
	}
	c.finish(group.Result{}, fmt.Errorf("group %d: %w", c.r.group, c.r.goneReason()))
	return true
}

// lost prefers an answer that came just before the replica went.
func (c *call) lost(reason error) (group.Result, error) {
	select {
	case <-c.done:
		return c.answer.result, c.answer.err
	default:
		return group.Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, reason)
	}
}

// outcomeError translates what a group says into this package's errors.
func outcomeError(r *replica, err error) error {
	if err == nil {
		return nil
	}
	if nl, ok := errors.AsType[*group.NotLeaderError](err); ok {
		return &NotLeaderError{Group: r.group, Leader: r.nodeOf(nl.Leader)}
	}
	for _, m := range outcomeErrors {
		if errors.Is(err, m.group) {
			return fmt.Errorf("%w: %w", m.node, err)
		}
	}
	if group.NotApplied(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// outcomeErrors maps the errors of package group that have a counterpart here.
var outcomeErrors = []struct{ group, node error }{
	{group.ErrTooLarge, ErrTooLarge},
	{group.ErrOverloaded, ErrOverloaded},
	{group.ErrChangeInProgress, ErrChangeInProgress},
	{group.ErrEpochMismatch, ErrEpochMismatch},
	{group.ErrDropped, ErrDropped},
	{group.ErrSkipped, ErrSkipped},
	{group.ErrStopped, ErrNoReplica},
	{group.ErrRemoved, ErrNoReplica},
	{group.ErrUninitialised, ErrNoReplica},
}
