package admin

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// A room bounds the bytes that requests hold in memory at once.
type room struct {
	most    int64
	free    *semaphore.Weighted
	taken   prometheus.Gauge
	held    atomic.Int64
	refused atomic.Uint64
}

func newRoom(bytes int64, taken prometheus.Gauge) *room {
	return &room{most: bytes, free: semaphore.NewWeighted(bytes), taken: taken}
}

// limited is how much is taken of the room.
func (r *room) limited() node.Limited {
	return node.Limited{Used: r.held.Load(), Most: r.most, Refused: r.refused.Load()}
}

// take reports whether there is room for n bytes, which are taken then.
func (r *room) take(n int64) bool {
	if !r.free.TryAcquire(n) {
		r.refused.Add(1)
		return false
	}
	r.held.Add(n)
	r.taken.Add(float64(n))
	return true
}

func (r *room) give(n int64) {
	r.free.Release(n)
	r.held.Add(-n)
	r.taken.Sub(float64(n))
}

// mostAnswer is what an answer takes whose size is not known before: as much as a result
// may have.
const mostAnswer = kv.MaxResultBytes

// reserve takes room for an answer of n bytes, until the request ends: who reads slowly,
// or not at all, must not have others fill the memory with theirs.
func (c *call) reserve(n int64) error {
	answers := c.handler.answers
	if !answers.take(n) {
		return newProblem(client.CodeOverloaded, "too many answers are in memory at once")
	}
	c.reserved = n
	c.cleanup = append(c.cleanup, func() { answers.give(c.reserved) })
	return nil
}

// settle gives back what an answer of n bytes does not take of what is reserved for it.
func (c *call) settle(n int64) {
	if c.reserved > n {
		c.handler.answers.give(c.reserved - n)
		c.reserved = n
	}
}

type crowdedKey struct{}

// Crowded marks the context of a connection that is one too many. Over it only probes and
// metrics are served; everything else is answered 429. Whoever serves the handler closes
// it after that.
func Crowded(ctx context.Context) context.Context {
	return context.WithValue(ctx, crowdedKey{}, true)
}

// IsCrowded reports whether a context is one that [Crowded] has returned, or comes from one.
func IsCrowded(ctx context.Context) bool {
	crowded, _ := ctx.Value(crowdedKey{}).(bool)
	return crowded
}
