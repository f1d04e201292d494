package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/raftyard/raftyard/internal/vfs"
)

// lostTables finds the tables of compactions that could not be written. Badger passes over
// that: it drops what the compaction was made of, and the data is gone.
//
// Tables are numbered one after the other, by flushes and compactions, and each that is
// written is among the tables of the database at some time: when a compaction begins to
// write a table, all it is made of is there, and when it is done, all it has made is. A
// number that was never seen, though later ones were and nothing is under way, is a table
// that was lost. There is nothing to be done about it then but to say so, for ever: the
// database is damaged.
type lostTables struct {
	tables func() []uint64 // ids of those that there are
	path   string          // of the file that says so for ever
	log    *slog.Logger
	failed func(error)

	mu       sync.Mutex
	patience time.Duration
	seen     map[uint64]bool // those above base
	base     uint64          // all up to here have been seen, or do not matter
	highest  uint64
	active   map[int]bool // compactors that write
	since    time.Time    // when a number was found to be missing
	missing  uint64       // that number
}

// lostPatience is how long a number must be missing: a flush that has just begun may not be
// known yet.
const lostPatience = 10 * time.Second

// lostName is the file that marks a database that has lost a table.
const lostName = "DAMAGED"

// start begins with the tables of a database that has just been opened.
func (l *lostTables) start(tables func() []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tables, l.patience = tables, lostPatience
	l.seen, l.active = make(map[uint64]bool), make(map[int]bool)
	for _, id := range tables() {
		l.base = max(l.base, id)
	}
	l.highest = l.base
}

// writing hears that a compactor is about to write a table.
func (l *lostTables) writing(compactor int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables == nil {
		return
	}
	l.active[compactor] = true
	l.noteLocked()
}

// wrote hears that a compactor has written all its tables, or has failed.
func (l *lostTables) wrote(compactor int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables == nil {
		return
	}
	l.noteLocked()
	delete(l.active, compactor)
}

// noteLocked remembers the tables that there are.
func (l *lostTables) noteLocked() {
	for _, id := range l.tables() {
		if id > l.base {
			l.seen[id] = true
			l.highest = max(l.highest, id)
		}
	}
	for l.seen[l.base+1] {
		delete(l.seen, l.base+1)
		l.base++
	}
}

// check looks for a table that was lost. Flushing says whether a memtable is still to
// become one.
func (l *lostTables) check(now time.Time, flushing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables == nil || l.base == l.highest {
		l.missing = 0
		return
	}
	l.noteLocked()
	if l.base == l.highest || flushing || len(l.active) > 0 || l.missing != l.base+1 {
		l.missing, l.since = l.base+1, now
		return
	}
	if now.Sub(l.since) < l.patience {
		return
	}
	text := fmt.Sprintf("table %d could not be written in a compaction, and what was in it is lost",
		l.missing)
	l.log.Error("badger has lost data", slog.String("text", text))
	if err := markLost(l.path, text); err != nil {
		l.log.Error("the database could not be marked as damaged", slog.Any("error", err))
	}
	l.base = l.missing // it is said
	l.failed(errors.New(text))
}

// markLost makes a database refuse to be opened for ever.
func markLost(path, text string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Sync(), f.Close(), vfs.OS{}.SyncDir(filepath.Dir(path)))
}

// checkLost refuses a database that has been marked.
func checkLost(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, lostName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s: %s", ErrDamaged, lostName, strings.TrimSpace(string(b)))
}

// tableIDs returns the tables of the database.
func (db *DB) tableIDs() []uint64 {
	var ids []uint64
	for _, t := range db.Tables() {
		ids = append(ids, t.ID)
	}
	slices.Sort(ids)
	return ids
}
