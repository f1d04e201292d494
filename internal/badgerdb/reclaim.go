package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// reclaimer returns disk space when the database has become quiet. Badger alone
// does not: what has been deleted or overwritten takes its room until the table
// that says so meets the one that holds it, and tables are merged only when
// enough others have been written.
//
// It judges by keys: a key in memory or in a table above the last level hides at
// most one pair of the last level. If what may be hidden that way is a good part
// of the database, it pushes the memtable to disk and merges all levels into the
// last. That is the work that the next writes would have caused, done earlier.
//
// It has one goroutine. start launches it and stop waits for it.
type reclaimer struct {
	db   *DB
	fill func(size int) error
	log  *slog.Logger
	told reclaims

	seen   uint64 // the newest commit at the last look
	judged uint64 // the newest commit when last judged
	quiet  int    // looks in a row with few commits

	work  sync.Mutex // held for the whole of a reclaiming
	merge struct {   // the one that is going on
		began time.Time
		from  uint64    // the newest commit when it began
		step  time.Time // when its last step began
	}

	once sync.Once
	quit chan struct{}
	done chan struct{}
}

const (
	lookInterval = 2 * time.Second

	// quietCommits, so many a look, still count as quiet: an idle node notes
	// something now and then.
	quietCommits = 20

	// quietLooks is how many quiet looks make the database quiet: two minutes, so
	// that whoever tidies up after a load has deleted what it wants to delete.
	quietLooks = 60

	// reclaimPart is the part of the database that must be gained, at most, to be
	// worth the writing of the rest.
	reclaimPart = 4

	// maxPause bounds the pause between two steps of a merge, which is as long as
	// the step before.
	maxPause = time.Second

	// fillSize is the length of the values that push a memtable to disk, and
	// fillInterval the pause between two: about 12 MB/s, and a commit that comes
	// meanwhile waits for one of them.
	fillSize     = 256 << 10
	fillInterval = 20 * time.Millisecond

	// flushPatience is how long a memtable may take to become a table.
	flushPatience = 30 * time.Second
)

func newReclaimer(o Options) *reclaimer {
	r := &reclaimer{
		fill: o.Fill, log: o.Logger,
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	if r.fill == nil {
		r.fill = r.scratch
	}
	return r
}

func (r *reclaimer) start(db *DB) {
	r.db = db
	go r.run()
}

// stop may wait for one step of a merge, which is one compaction.
func (r *reclaimer) stop() {
	r.once.Do(func() { close(r.quit) })
	<-r.done
}

func (r *reclaimer) run() {
	defer close(r.done)
	clock := time.NewTicker(lookInterval)
	defer clock.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-clock.C:
			r.look()
		}
	}
}

// look counts how long the database has been quiet, and judges it once for each
// time that it has become so.
func (r *reclaimer) look() {
	now := r.db.durable.Load()
	moved := now - r.seen
	r.seen = now
	if r.quiet++; moved > quietCommits {
		r.quiet = 0
	}
	if r.quiet == 0 || r.quiet >= quietLooks {
		r.db.collector.quiet.Store(r.quiet != 0)
	}
	if r.quiet < quietLooks || now == r.judged {
		return
	}
	r.quiet = 0
	switch err := r.judge(); {
	case errors.Is(err, errInterrupted):
		return // again when it is quiet again
	case err != nil:
		r.log.Warn("disk space was not reclaimed", slog.Any("error", err))
		return
	}
	r.seen = r.db.durable.Load()
	r.judged = r.seen
}

// Reclaim does at once what else is done when the database has been quiet for two
// minutes: if much of it may be deleted or overwritten, it returns that disk space
// by merging all tables. It gives up when many commits come meanwhile.
func (db *DB) Reclaim() error { return db.reclaimer.judge() }

// judge reclaims if that is worth it.
func (r *reclaimer) judge() error {
	r.work.Lock()
	defer r.work.Unlock()
	if err := errors.Join(r.db.broken.err(), r.db.settle()); err != nil {
		return err
	}
	e, err := r.estimate()
	if err == nil && !e.worth(r.db.Opts().MemTableSize) {
		return nil
	}
	began, gained := time.Now(), int64(0)
	if err == nil {
		gained, err = r.reclaim(e, began)
	}
	r.told.note(began, gained, err)
	return err
}

// estimate is what may be gained.
type estimate struct {
	total  int64 // bytes of all tables
	upper  int64 // bytes that keys in the tables above the last level may hide
	memory int64 // bytes that keys in the memtable may hide
}

func (e estimate) gain() int64 { return min(e.total, e.upper+e.memory) }

func (e estimate) worth(memTable int64) bool {
	return e.gain() >= 2*memTable && e.gain() >= e.total/reclaimPart
}

func (r *reclaimer) estimate() (estimate, error) {
	var e estimate
	var all, last, upperKeys, lastBytes int64
	o := r.db.Opts()
	for _, level := range r.db.Levels() {
		e.total += level.Size
	}
	for _, t := range r.db.Tables() {
		all += int64(t.KeyCount)
		if t.Level == o.MaxLevels-1 {
			last += int64(t.KeyCount)
			lastBytes += int64(t.OnDiskSize)
		} else {
			upperKeys += int64(t.KeyCount)
		}
	}
	// The larger average: many deletions beside few large values must not hide
	// them.
	pair := max(e.total/max(all, 1), lastBytes/max(last, 1))
	e.upper = upperKeys * pair
	keys, err := walKeys(filepath.Join(r.db.wal.dir, walName(r.db.wal.active())))
	e.memory = int64(keys) * pair
	return e, err
}

// reclaim pushes the memtable to disk, if it hides much, and merges the levels.
// It stops when commits come, as far as it can. It returns by how many bytes the tables
// are smaller then.
func (r *reclaimer) reclaim(e estimate, began time.Time) (gained int64, err error) {
	free, err := freeSpace(r.db.wal.dir)
	if err != nil {
		return 0, err
	}
	if need := e.total + r.db.Reserve(); free < need {
		return 0, fmt.Errorf("%w: %d MiB are free, merging needs %d MiB",
			ErrNoSpace, free>>20, need>>20)
	}
	if e.memory >= r.db.Opts().MemTableSize {
		if err = r.flush(); err != nil {
			return 0, err
		}
	}
	if !r.release() {
		return 0, errors.New("a snapshot holds what is older")
	}
	r.begin()
	if err = r.checkBeforeMerge(); err != nil {
		return 0, err
	}
	r.begin()
	if err = r.mergeLevels(); err != nil {
		return 0, err
	}
	after, err := r.estimate()
	if err != nil {
		return 0, err
	}
	r.log.Info("reclaimed disk space",
		slog.Int64("bytes_before", e.total), slog.Int64("bytes_after", after.total),
		slog.Duration("took", time.Since(began)))
	return e.total - after.total, nil
}

// errInterrupted ends what is going on when commits come or the database is
// closed.
var errInterrupted = errors.New("interrupted")

// flush fills the memtable until Badger begins another one, and waits until it
// has become a table.
func (r *reclaimer) flush() error {
	id := r.db.wal.active()
	clock := time.NewTicker(fillInterval)
	defer clock.Stop()
	size := int(min(fillSize, r.db.maxValue/2))
	for own := r.db.durable.Load(); r.db.wal.active() == id; own++ {
		if r.db.durable.Load() > own+quietCommits {
			return errInterrupted
		}
		if err := errors.Join(r.fill(size), r.db.settle()); err != nil {
			return err
		}
		if err := r.wait(clock.C); err != nil {
			return err
		}
	}
	if err := errors.Join(r.fill(0), r.db.settle()); err != nil {
		return err
	}
	old := filepath.Join(r.db.wal.dir, walName(id))
	for began := time.Now(); time.Since(began) < flushPatience; {
		if _, err := os.Stat(old); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.wait(clock.C); err != nil {
			return err
		}
	}
	return errors.New("the memtable has not become a table")
}

func (r *reclaimer) wait(clock <-chan time.Time) error {
	select {
	case <-r.quit:
		return errInterrupted
	case <-clock:
		return nil
	}
}

// mergeLevels brings all tables to the last level. It ends without Badger when a compaction
// has failed.
func (r *reclaimer) mergeLevels() error { return r.db.broken.do(r.flatten) }

// flatten is mergeLevels as far as Badger does it. Badger knows no way to end
// that early; but it says what it does, and step takes the opportunity. While
// writes come it would not end at all, because it goes on as long as there is a
// table in level 0, and the usual compactions rest meanwhile.
func (r *reclaimer) flatten() (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case errInterrupted:
			err = errInterrupted
		default:
			err = fmt.Errorf("merge: badger: %v", p)
		}
	}()
	if err := r.db.Flatten(1); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return nil
}

// step is called before each step of a merge, by its goroutine. It panics with errInterrupted
// to end the merge.
func (r *reclaimer) step() {
	if err := r.pause(); err != nil {
		panic(err)
	}
}

// begin says that steps begin from here.
func (r *reclaimer) begin() {
	now := time.Now()
	r.merge.began, r.merge.step = now, now
	r.merge.from = r.db.durable.Load()
}

// pause leaves the disk to others as long as the step before took, and returns errInterrupted
// when commits come.
func (r *reclaimer) pause() error {
	pause := time.NewTimer(min(time.Since(r.merge.step), maxPause))
	defer pause.Stop()
	if err := r.wait(pause.C); err != nil {
		return err
	}
	looks := uint64(time.Since(r.merge.began)/lookInterval) + 1
	if r.db.durable.Load() > r.merge.from+looks*quietCommits {
		return errInterrupted
	}
	r.merge.step = time.Now()
	return nil
}

// release lets compaction drop everything that is hidden. It reports false while
// an open snapshot needs older versions: merging would keep those, and deletions
// that a merge has brought to the last level are not looked at again.
func (r *reclaimer) release() bool {
	r.db.commitMu.Lock()
	defer r.db.commitMu.Unlock()
	newest := r.db.committed.Load()
	if newest == 0 {
		return false
	}
	discard := newest - 1 // as Commit does, and for the same reason
	if r.db.readers.oldest(discard) != discard {
		return false
	}
	r.db.SetDiscardTs(discard)
	return true
}

// scratch commits a value of so many bytes, or deletes it.
func (r *reclaimer) scratch(size int) error {
	return r.db.Commit(func(txn *Txn) error {
		if size == 0 {
			return txn.Delete([]byte(scratchKey))
		}
		return txn.Set([]byte(scratchKey), make([]byte, size))
	})
}

// walKeys counts the keys in a write-ahead log that is being written to.
func walKeys(path string) (keys int, err error) {
	b, err := readSparse(path)
	if err != nil {
		return 0, err
	}
	for _, e := range entries(b) {
		if !e.end {
			keys++
		}
	}
	return keys, nil
}
