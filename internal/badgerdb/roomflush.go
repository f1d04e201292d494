package badgerdb

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// A flushing is a memtable that is to become a table; then its log is deleted.
type flushing struct {
	log   string // its path
	began time.Time
}

// rotated hears that a memtable is full, which is to become a table, and of the log that
// the next one shall have.
func (r *room) rotated(full, next string, prepared bool) {
	if full != "" {
		r.mu.Lock()
		r.flushes = append(r.flushes, flushing{log: full, began: time.Now()})
		r.mu.Unlock()
	}
	if prepared {
		return
	}
	// The hold begins here, not with the next look: whoever looks gives the log its blocks, and
	// removes it if it gets none. Badger must not have begun it meanwhile.
	r.lacks(next)
}

// isFlushing reports whether a memtable is to become a table.
func (r *room) isFlushing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.flushes) > 0
}

// noteFlushes forgets the flushes that are over, and remembers how long they took.
func (r *room) noteFlushes(now time.Time) {
	left := r.flushes[:0]
	for _, f := range r.flushes {
		if _, err := os.Stat(f.log); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, f)
			continue
		}
		r.slowest = max(now.Sub(f.began), r.slowest*7/8)
	}
	r.flushes = left
}

// ahead is for how long space must last.
func (r *room) ahead(now time.Time) time.Duration {
	slowest := r.slowest
	for _, f := range r.flushes {
		slowest = max(slowest, now.Sub(f.began))
	}
	return min(max(2*slowest, lookAhead), maxLookAhead)
}
