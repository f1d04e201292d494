package node

import (
	"context"
	"sync"
)

// Requests of callers end when their context does. When the node closes they end as well,
// however long their context would go on: whatever they wait for will not come any more.

// underWay are the requests of callers that have not ended. The zero value is ready.
type underWay struct {
	mu     sync.Mutex
	closed bool
	last   uint64
	ends   map[uint64]context.CancelCauseFunc
}

// begin adds a request that end ends, or ends it at once if the node is closed. The
// request must call the function returned when it is over.
func (u *underWay) begin(end context.CancelCauseFunc) (over func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		end(ErrClosed)
		return func() {}
	}
	if u.ends == nil {
		u.ends = make(map[uint64]context.CancelCauseFunc)
	}
	u.last++
	id := u.last
	u.ends[id] = end
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.ends, id)
	}
}

// close ends all requests, and those that come. It does not wait for them.
func (u *underWay) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, end := range u.ends { // each ends on its own, so the order does not matter
		end(ErrClosed)
	}
	u.ends = nil
}
