package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// pollEvery is how often a condition is looked at.
const pollEvery = 20 * time.Millisecond

// Poll calls done until it returns true or an error, or ctx ends.
func Poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Eventually waits until check returns nil, and fails the test with its last
// error when it has not within the limit.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var last error
	err := Poll(ctx, func() (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(fmt.Errorf("%s, not within %v: %w", what, limit, last))
	}
}

// Pause waits for some time, and reports whether that has passed: it returns early when done
// is closed.
func Pause(done <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
