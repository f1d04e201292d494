package turns

import (
	"context"
	"errors"
	"time"
)

// deadlineContext is a context that a virtual timer ends. Contexts made from it
// hang on the one inside, so that they need no goroutine; they see Canceled, with
// the cause that the time is up.
type deadlineContext struct {
	context.Context

	deadline time.Time
}

// Deadline returns when the context ends, by the station's clock.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Err tells a timeout from a cancellation, as a context of package context does.
func (c *deadlineContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// WithTimeout is context.WithTimeout by the station's clock.
func (st *Station) WithTimeout(
	parent context.Context, d time.Duration,
) (context.Context, context.CancelFunc) {
	deadline := st.Now().Add(d)
	if before, ok := parent.Deadline(); ok && before.Before(deadline) {
		return context.WithCancel(parent)
	}
	inner, cancel := context.WithCancelCause(parent)
	ctx := &deadlineContext{Context: inner, deadline: deadline}
	if d <= 0 {
		cancel(context.DeadlineExceeded)
	} else {
		st.s.At(st.after(d), func() {
			cancel(context.DeadlineExceeded)
			st.Touch()
		})
	}
	return ctx, func() { cancel(context.Canceled) }
}
