package badgerdb

import (
	"sync"
	"time"
)

// slowCommit is how long a commit takes on a disk that is slow, and slowFor for how long it
// counts as slow after one.
const slowCommit, slowFor = 500 * time.Millisecond, 10 * time.Second

// pace knows whether commits are slow.
type pace struct {
	mu    sync.Mutex
	began time.Time // of the commit that is going on
	slow  time.Time // when the last slow one ended
}

func (p *pace) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = now
}

func (p *pace) end(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.began) >= slowCommit {
		p.slow = now
	}
	p.began = time.Time{}
}

func (p *pace) isSlow(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.began.IsZero() && now.Sub(p.began) >= slowCommit || now.Sub(p.slow) < slowFor
}
