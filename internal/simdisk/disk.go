// Package simdisk is one simulated disk of one node: files and databases, with a
// shadow of what is durable. A crash takes, by the dice, what has not been synced;
// syncs can be slow or fail; and a disk can lie, lose and rot.
//
//	d := simdisk.New(dice)
//	on := storage.Backing{Files: d.Files(), OpenDB: d.OpenDB, UUID: uuid}
//	store, err := storage.OpenOn(options, on)
//	d.Crash()
//	store, err = storage.OpenOn(options, on) // with what was durable, perhaps more
//
// # What it promises
//
// Everything is decided by the dice and the order of the calls: the same of both,
// the same disk. What was synced survives [Disk.Crash]. What was not may:
//
//   - a commit of a database, as a whole, and only if all before it have;
//   - the writes to a file, the first of them, the last of these perhaps cut short;
//   - the names in a directory, each by itself. A renaming is one.
//
// # Waiting
//
// Nothing waits while a lock is held. Syncs wait in BeforeSync, and a commit that
// finds another one going on waits in Until.
package simdisk

import (
	"errors"
	"fmt"
	"sync"

	"github.com/raftyard/raftyard/internal/vfs"
)

var (
	// ErrCrashed is the answer of all that was opened before the disk crashed.
	ErrCrashed = errors.New("simdisk: the disk has crashed since this was opened")

	// ErrClosed is the answer of what was closed.
	ErrClosed = errors.New("simdisk: closed")
)

// Disk is a simulated disk. The hooks are set before it is used.
type Disk struct {
	// BeforeSync, if it is not nil, is called by every sync and commit, after the new
	// data is written and before it is durable. It may take its time. If it returns
	// an error the sync fails with it. What of a commit or of a file was to be synced
	// is durable or not then, by the dice, and no later sync changes that: the
	// system has thrown it away. Names can be synced again.
	BeforeSync func(what string) error

	// Until, if it is not nil, waits until ready returns true. Commits that come
	// while the same database is being committed to wait there. If it is nil, they
	// wait for a lock.
	Until func(ready func() bool)

	dice func() uint64

	mu    sync.Mutex
	root  *node
	start int // counts the crashes; what was opened in an earlier start is dead
	locks map[string]bool
	order uint64 // of the newest commit of any database
	stats Stats
}

// Stats are counters since the disk was made.
type Stats struct {
	Syncs     int // syncs and commits that succeeded
	Failed    int // syncs and commits that failed
	Crashes   int // power failures and kills
	Commits   int // of these, commits to databases
	Lost      int // commits that a crash or a lying disk has taken
	Kept      int // commits that a crash has kept though they were not durable
	Writes    int // writes to files that were lost
	Torn      int // writes to files that were cut short
	Names     int // changes of names that were lost
	Corrupted int // files and records damaged, or lost alone
}

// New returns an empty disk. Dice is called under the disk's lock.
func New(dice func() uint64) *Disk {
	return &Disk{dice: dice, root: newDir(), locks: make(map[string]bool)}
}

// Files returns the files of the disk. They stay usable after a crash; only open
// files do not.
func (d *Disk) Files() vfs.FS { return files{d} }

// Stats returns the counters.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Fresh reports whether the database in a directory shows commits that a crash may take:
// never, unless syncs are skipped. Where there is no database it is false.
func (d *Disk) Fresh(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("stat", dir)
	return err == nil && n.base != nil && n.base.fresh > 0
}

// Crash is a power failure. All that is open is dead.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashLocked()
}

// Kill is the end of the process, not of the machine: all that is open is dead,
// and what was written stays, as little durable as it was.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopLocked()
}

// LoseTail is a power failure after which the newest commits are gone too, over
// all databases, though they were durable: a disk that lied. It returns how many
// of n they were; a database remembers the last 64 of its own.
func (d *Disk) LoseTail(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashLocked()
	for lost := range n {
		var newest *database
		d.walk(func(b *database) {
			if len(b.history) > 0 && (newest == nil || b.order() > newest.order()) {
				newest = b
			}
		})
		if newest == nil {
			return lost
		}
		newest.undo()
		d.stats.Lost++
	}
	return n
}

// Wipe is a new disk in the place of the old one.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopLocked()
	d.root = newDir()
}

func (d *Disk) stopLocked() {
	d.start++
	d.stats.Crashes++
	clear(d.locks)
	d.walk(func(b *database) { b.opened = false })
}

func (d *Disk) crashLocked() {
	d.stopLocked()
	d.root.crash(d)
}

// walk calls fn with every database, in the order of their paths.
func (d *Disk) walk(fn func(*database)) { d.root.walk(fn) }

// below rolls the dice for a number in [0, n).
func (d *Disk) below(n int) int { return int(d.dice() % uint64(n)) }

// coin rolls the dice for one case in two.
func (d *Disk) coin() bool { return d.below(2) == 0 }

// sync lets a sync take its time, without the lock. When it returns without an
// error the caller, with the lock again, makes durable what it has noted before.
func (d *Disk) sync(start int, what, path string) (err error) {
	hook, done := d.BeforeSync, false
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		switch {
		case !done: // the hook has not returned, and neither will this
		case d.start != start:
			err = ErrCrashed
		case err != nil:
			d.stats.Failed++
		default:
			d.stats.Syncs++
		}
	}()
	if hook != nil {
		if err = hook(what + " " + path); err != nil {
			err = fmt.Errorf("simdisk: %s %s: %w", what, path, err)
		}
	}
	done = true
	return err
}
