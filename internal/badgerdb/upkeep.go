package badgerdb

import (
	"errors"
	"sync"
	"time"
)

// Upkeep is what a database has done about its own files since it was opened.
type Upkeep struct {
	TableBytes int64 // of all tables, now
	OpenSpace  int64 // see [DB.OpenSpace]

	// ValueBytes are the files that are kept for large values of the [Log] profile, now, and
	// LiveValueBytes what counts in them. RewrittenBytes are values that were written anew so
	// that their file could go.
	ValueBytes, LiveValueBytes int64
	RewrittenBytes             uint64

	// Reclaims is how often all tables were merged to return disk space, ReclaimsEnded how
	// often that was given up because there were commits, and ReclaimsFailed how often it
	// could not be done. ReclaimedBytes is what tables have become smaller by. Reclaimed is
	// when the last merge was done, zero if there was none, and ReclaimTook its time.
	Reclaims, ReclaimsEnded, ReclaimsFailed uint64
	ReclaimedBytes                          uint64
	Reclaimed                               time.Time
	ReclaimTook                             time.Duration

	// Scrubs is how often all tables were read and compared with their checksums,
	// ScrubsFailed how often that could not be done to the end, and ScrubbedBytes how much
	// was read. Scrubbed is when the last one was done, zero if there was none.
	Scrubs, ScrubsFailed uint64
	ScrubbedBytes        uint64
	Scrubbed             time.Time

	// Memory is what the database has in memory now.
	Memory Memory

	// Damaged are the tables and files of values in use of which that has found that they are
	// damaged.
	Damaged []Finding
}

// Upkeep tells what the database has done about its files.
func (db *DB) Upkeep() Upkeep {
	tables := db.tableBytes()
	u := Upkeep{TableBytes: tables, OpenSpace: db.openSpace(tables), Memory: db.Memory()}
	u.ValueBytes, u.LiveValueBytes = db.values.bytes()
	u.RewrittenBytes = db.collector.rewritten.Load()
	db.reclaimer.told.tell(&u)
	db.scrubber.tell(&u)
	return u
}

func (db *DB) tableBytes() (n int64) {
	for _, level := range db.Levels() {
		n += level.Size
	}
	return n
}

// reclaims counts how reclaiming has ended.
type reclaims struct {
	mu                  sync.Mutex
	done, ended, failed uint64
	bytes               uint64
	last                time.Time
	took                time.Duration
}

// note takes in how one has ended that was worth it, and by how much it has made the tables
// smaller.
func (c *reclaims) note(began time.Time, gained int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, errInterrupted):
		c.ended++
	case err != nil:
		c.failed++
	default:
		c.done++
		c.bytes += uint64(max(gained, 0))
		c.last, c.took = time.Now(), time.Since(began)
	}
}

func (c *reclaims) tell(u *Upkeep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.Reclaims, u.ReclaimsEnded, u.ReclaimsFailed = c.done, c.ended, c.failed
	u.ReclaimedBytes, u.Reclaimed, u.ReclaimTook = c.bytes, c.last, c.took
}
