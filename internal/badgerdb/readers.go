package badgerdb

import (
	"sync"
	"sync/atomic"
)

// readers counts the open snapshots by timestamp. Compaction may drop a version
// only when no snapshot can see it, and Badger does not keep that count in
// managed mode.
type readers struct {
	mu   sync.Mutex
	open map[uint64]int // timestamp -> snapshots, only positive counts
}

// enter registers a reader at the newest commit that is durable and that Badger has, and returns
// its timestamp. The timestamp is read under the lock, so that oldest cannot pass it in between.
func (r *readers) enter(durable, committed *atomic.Uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[uint64]int)
	}
	ts := min(durable.Load(), committed.Load())
	r.open[ts]++
	return ts
}

func (r *readers) leave(ts uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[ts]--; r.open[ts] <= 0 {
		delete(r.open, ts)
	}
}

// oldest returns the timestamp of the oldest open snapshot, at most limit.
func (r *readers) oldest(limit uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ts := range r.open {
		limit = min(limit, ts)
	}
	return limit
}
