package node

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCloseEndsWhatIsUnderWay closes a node while somebody waits for what cannot come soon:
// a learner on a node that is down.
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1)
	c.close(3)
	n := c.nodes[1]
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := n.AddLearner(ctx, 1, 3)
		ended <- err
	}()
	c.eventually("it is decided", func() bool {
		rec, _ := n.registry.Group(1)
		return wants(&rec, 3)
	})
	c.close(1)
	c.eventually("the request has ended", func() bool { return len(ended) > 0 })
	if err := <-ended; !errors.Is(err, ErrNotReached) {
		t.Errorf("AddLearner on a node that closes = %v, want ErrNotReached", err)
	}
	if _, err := n.AddLearner(ctx, 1, 3); err == nil || ctx.Err() != nil {
		t.Errorf("AddLearner on a node that is closed = %v", err)
	}
}

func TestUnderWay(t *testing.T) {
	var u underWay
	var ctx [3]context.Context
	var over [3]func()
	for i := range ctx {
		var end context.CancelCauseFunc
		ctx[i], end = context.WithCancelCause(t.Context())
		if i == 2 {
			u.close() // before the last one comes
		}
		over[i] = u.begin(end)
		if i == 0 {
			over[i]()
		}
	}
	if err := context.Cause(ctx[0]); err != nil {
		t.Errorf("one that was over is ended with %v", err)
	}
	for i := 1; i < 3; i++ {
		if err := context.Cause(ctx[i]); !errors.Is(err, ErrClosed) {
			t.Errorf("request %d is ended with %v, want ErrClosed", i, err)
		}
		over[i]()
	}
	u.close()
	if len(u.ends) != 0 {
		t.Errorf("%d requests are remembered", len(u.ends))
	}
}
