package transport

import (
	"math/rand/v2"
	"time"
)

// backoff gives the pauses between attempts: doubling from least to most, each
// shortened by a random part of up to a half, so that nodes that have lost the
// same peer do not come back in step.
type backoff struct {
	least, most time.Duration
	next        time.Duration
	random      func() float64 // in [0, 1)
}

func newBackoff(least, most time.Duration) backoff {
	return backoff{least: least, most: most, random: rand.Float64}
}

func (b *backoff) pause() time.Duration {
	if b.next == 0 {
		b.next = b.least
	}
	d := b.next
	b.next = min(2*b.next, b.most)
	return d - time.Duration(b.random()*float64(d)/2)
}

func (b *backoff) reset() { b.next = 0 }
