package badgerdb

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/internal/space"
)

// room keeps the database from writing where there is no space.
//
// Badger writes its files through memory maps. A page for which the file system has no
// block is a signal that ends the process, so Badger must not be let to one:
//
//   - Write-ahead logs have their blocks before anything is written into them, see
//     walWatch. A commit can therefore not fault.
//   - Tables are written by a flush, which follows when a memtable is full, and by
//     compactions. A table can be given its blocks only as it is begun, see tableBlocks. So
//     no commit begins, and no table of a compaction, unless there is space for all that may
//     follow from what is there; they wait for it. That is the hold.
//   - What is under way in the hold has the reserve: a file of blocks that is given back
//     when there is no space for another table. Not before: others would take it, too.
//
// How soon the hold begins follows the speed at which space goes, so that a program that
// fills the disk is not faster than a flush.
//
// It has one goroutine, which start launches and leave waits for. That one asks for blocks,
// and holds no lock then: it may take as long as the disk does. Others only look whether the
// hold begins.
type room struct {
	dir     string
	log     *slog.Logger
	free    func(dir string) (int64, error)
	need    int64 // less free than this is the hold
	wal     int64 // bytes of blocks of a write-ahead log
	table   int64 // more than a memtable becomes as a table
	reserve reserve
	failed  time.Time                          // when the next log got no blocks; who looks has it
	after   func(now time.Time, flushing bool) // called after each look of the goroutine
	flushed func()                             // called after each look, for what waits for a flush

	held     atomic.Bool
	building atomic.Int64 // when a compaction has last begun a table, counted from opened
	opened   time.Time    // what is measured is measured from a moment: clocks are set back

	mu      sync.Mutex
	began   time.Time // of the hold
	flushes []flushing
	slowest time.Duration // of the latest flushes
	lacking []string      // logs that have no blocks yet, for want of space
	seen    space.Look    // the latest
	speed   space.Speed
	wake    sync.Cond // the hold is over, or over is set
	over    bool      // waiting is over

	once sync.Once
	kick chan struct{} // the hold has begun: look at once; holds one
	quit chan struct{}
	done chan struct{}
}

const (
	// lookAhead and maxLookAhead bound for how long space must last at the speed at which it
	// goes: twice as long as the latest flushes have taken, from the moment at which they
	// could still be held up.
	lookAhead, maxLookAhead = time.Second, 5 * time.Second

	// Looks are this far apart: when there is plenty, when there is not or a table is being
	// written, and when both are so; and until the reserve is given back for a table, which
	// is about to be.
	farLook, nearLook, closeLook, lastLook = 100 * time.Millisecond, 20 * time.Millisecond,
		2 * time.Millisecond, 250 * time.Microsecond

	// lastSpace is what counts as nothing. Who is taking the last space is let come to that: it
	// would take the reserve, too, before it is told that there is no more.
	lastSpace = 64 << 10

	// slack is for what is small: the MANIFEST, directories.
	slack = 8 << 20

	// buildTime is how long the space of a compaction's table counts as not taken yet.
	buildTime = 2 * time.Second

	// rateWindow is the shortest time over which a speed is told, and forgetRate how much of
	// it is forgotten in a second.
	rateWindow, forgetRate = 250 * time.Millisecond, 2
)

// tableBound is more than a memtable becomes as a table.
func tableBound(memTable int64) int64 { return memTable * 3 / 2 }

// holdSpace is how many bytes must be free for the database to be written: those of the
// memtables that may be waiting to become tables, and of the tables that compactions
// are writing.
func holdSpace(memTable int64) int64 {
	return (numMemtables+1)*tableBound(memTable) + 2*memTable + slack
}

// reserveSpace is the size of the reserve: one flush, and some tables of compactions.
func reserveSpace(memTable int64) int64 { return 3 * memTable }

func newRoom(o Options) *room {
	r := &room{
		log: o.Logger, free: freeSpace, need: holdSpace(o.MemTableSize),
		wal: walSize(o.MemTableSize), table: tableBound(o.MemTableSize),
		reserve: reserve{
			path: filepath.Join(o.Dir, reserveName), size: reserveSpace(o.MemTableSize),
			allocate: allocateNew,
		},
		opened: time.Now(), speed: space.New(rateWindow, forgetRate),
		kick: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	r.wake.L = &r.mu
	r.building.Store(int64(-buildTime))
	return r
}

// start begins to watch the space of a directory.
func (r *room) start(dir string) {
	r.dir = dir
	r.look()
	go r.run()
}

// stopWaiting has commits that wait for space, now or later, end with [ErrNoSpace].
func (r *room) stopWaiting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.wake.Broadcast()
}

func (r *room) run() {
	defer close(r.done)
	clock := time.NewTimer(farLook)
	defer clock.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-r.kick:
		case <-clock.C:
		}
		clock.Reset(r.look())
		r.after(time.Now(), r.isFlushing())
		r.flushed()
	}
}

// admit returns when the database may be written, or an error when waiting is over.
func (r *room) admit() error {
	if !r.held.Load() {
		// One system call, about a microsecond, beside a sync of 200 and more.
		if free, err := r.free(r.dir); err != nil || free >= r.need {
			return nil // if it cannot be known: do not stop working for that
		}
		r.glance()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held.Load() {
		if r.over {
			return fmt.Errorf("%w: %s has %d MiB free, %d MiB are needed to write",
				ErrNoSpace, r.dir, r.seen.Free>>20, r.need>>20)
		}
		r.wake.Wait()
	}
	return nil
}

// build is called before each table of a compaction is written, by a goroutine of Badger's
// that holds nothing which others need.
func (r *room) build() {
	if !r.held.Load() {
		r.glance()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held.Load() && !r.over {
		r.wake.Wait()
	}
	r.building.Store(int64(time.Since(r.opened)))
}

// glance begins the hold if it must, for who is about to write.
func (r *room) glance() {
	l, err := r.see()
	if err != nil {
		return // it cannot be known
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judge(l)
}

// see asks how much is free.
func (r *room) see() (space.Look, error) {
	asked := time.Now()
	free, err := r.free(r.dir)
	return space.Look{Free: free, Asked: asked, Seen: time.Now()}, err
}

// judge takes in how much is free, begins the hold if that is too little, and returns how
// much will be left. The caller has the lock.
func (r *room) judge(l space.Look) (left int64) {
	now := l.Seen
	if !l.Asked.Before(r.seen.Asked) {
		r.seen = l // who had to wait for the lock may come with an older one
	}
	r.speed.Take(l)
	r.noteFlushes(now)
	left = r.seen.Free - r.speed.Loss(r.ahead(now))
	if !r.held.Load() && (left < r.need || len(r.lacking) > 0) {
		r.hold(now)
		r.hurry()
	}
	return left
}

// hurry has the goroutine look at once.
func (r *room) hurry() {
	select {
	case r.kick <- struct{}{}:
	default: // it is about to
	}
}

// look begins or ends the hold, and returns when to look again. It is for one goroutine at
// a time.
func (r *room) look() time.Duration {
	r.reserve.settle(r.log)
	if next := r.nextLog(); next != "" && r.prepare(next) {
		r.prepared(next)
	}
	l, err := r.see()
	if err != nil {
		return farLook // it cannot be known; do not stop working for that
	}
	free, now := l.Free, l.Seen
	r.mu.Lock()
	before := r.seen.Free
	left := r.judge(l)
	busy := len(r.flushes) > 0 || now.Sub(r.opened)-time.Duration(r.building.Load()) < buildTime
	held, ready := r.held.Load(), len(r.lacking) == 0
	r.mu.Unlock()

	switch {
	case held && left >= r.need+r.need/4 && r.restock(free, now) && ready:
		held = r.letGo(now)
	case !held && !r.reserve.there && left >= 2*r.need+r.reserve.size:
		if !r.restock(free, now) && r.reserve.short {
			r.holdAll(now) // what is free is not for us
			held = true
		}
	}
	// Where the next log gets no blocks, what is free is not for us.
	if held && busy && (!ready || free < r.table && (free < lastSpace || free >= before)) {
		r.reserve.release(r.log)
	}
	switch {
	case held && busy && r.reserve.there && free < 8*r.table:
		return lastLook
	case busy && left < 16*r.need:
		return closeLook
	case busy || left < 4*r.need:
		return nearLook
	default:
		return farLook
	}
}

func (r *room) hold(now time.Time) {
	r.held.Store(true)
	r.began = now
	r.log.Warn("too little disk space: nothing is written until there is more",
		slog.String("dir", r.dir), slog.Int64("free_bytes", r.seen.Free),
		slog.Int64("need_bytes", r.need),
		slog.Int64("shrinks_bytes_per_second", r.speed.PerSecond()))
}

// holdAll is hold for who has not the lock.
func (r *room) holdAll(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held.Load() {
		r.hold(now)
	}
}

// letGo ends the hold, unless another log has no blocks by now, and reports whether it is on.
func (r *room) letGo(now time.Time) (held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lacking) > 0 {
		return true
	}
	r.held.Store(false)
	r.wake.Broadcast()
	r.log.Info("there is disk space again: writing goes on",
		slog.String("dir", r.dir), slog.Int64("free_bytes", r.seen.Free),
		slog.Duration("after", now.Sub(r.began)))
	return false
}

// nextLog returns a log that has no blocks yet, or nothing.
func (r *room) nextLog() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lacking) == 0 {
		return ""
	}
	return r.lacking[0]
}

// prepared notes that a log has its blocks.
func (r *room) prepared(next string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lacking = slices.DeleteFunc(r.lacking, func(path string) bool { return path == next })
}

// lacks hears of a log that gets no blocks: nothing is written until it has them.
func (r *room) lacks(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lacking = append(r.lacking, path)
	if !r.held.Load() {
		r.hold(time.Now())
		r.hurry()
	}
}

// prepare gives the next log its blocks, if there are enough by now.
func (r *room) prepare(next string) bool {
	l, err := r.see()
	now := l.Seen
	switch {
	case err == nil && l.Free < r.need+r.wal:
		return false
	case !r.failed.IsZero() && now.Sub(r.failed) < allocRetry:
		return false
	}
	err = r.reserve.allocate(next, r.wal)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		r.failed = now
		return false
	}
	r.failed = time.Time{}
	return true
}

// restock makes the reserve again, if it is gone and there is space for it.
func (r *room) restock(free int64, now time.Time) bool {
	if r.reserve.there {
		return true
	}
	if free < r.need+r.need/4+r.reserve.size {
		return false
	}
	return r.reserve.make(now, r.log)
}

// leave ends the watch for good and reports whether there is space for all memtables to
// become tables, with that of the reserve. Nobody commits any more.
func (r *room) leave() bool {
	r.once.Do(func() { close(r.quit) })
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserve.release(r.log)
	free, err := r.free(r.dir)
	if err != nil {
		return true // it cannot be known
	}
	r.noteFlushes(time.Now())
	need := int64(len(r.flushes)+1)*r.table + slack
	if free < need {
		r.log.Warn("too little disk space to close the database in an orderly way: it is left "+
			"as a process that is killed leaves it, which loses nothing",
			slog.String("dir", r.dir),
			slog.Int64("free_bytes", free), slog.Int64("need_bytes", need))
	}
	return free >= need
}

// Held reports whether the database is not written to for want of disk space.
func (db *DB) Held() bool { return db.room.held.Load() }

// StopWaiting has commits that wait for disk space, now or later, end with [ErrNoSpace].
// It is for the owner of the database who is about to close it.
func (db *DB) StopWaiting() { db.room.stopWaiting() }
