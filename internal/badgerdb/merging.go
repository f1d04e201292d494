package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
)

// mergeCheck keeps damage from being merged into tables that are sound.
//
// A compaction does not see that a block of its input is damaged. One that cannot be unpacked
// ends the table for it, and what comes after that is in no table any more; one that can be
// has its values written on, with a right checksum. In both cases nobody could tell
// afterwards. So what a compaction is made of is read again, and compared with its checksums,
// after it was merged and before the MANIFEST names the result. It is read as the compaction
// has read it, through the cache of the system: what has rotted on the disk and not in there
// does no harm to it.
//
// There is no way to have Badger give up a compaction at that point. When its input is damaged
// it goes no further, for ever, and the database has failed: all that was acknowledged is in
// the tables as they were, and the next start says which of them is damaged.
//
// Badger calls it from several goroutines.
type mergeCheck struct {
	log    *slog.Logger
	failed func(error)
	halt   func()                // waits for ever
	over   <-chan struct{}       // the database is being closed
	check  func(id uint64) error // says what is wrong with a table
	in     atomic.Pointer[merging]

	mu     sync.Mutex
	looked map[uint64]chan struct{} // tables that are compacted; closed when one is sound
}

// mergePatience is how long passes until it is tried again to read a table that this process
// could not open.
const mergePatience = 100 * time.Millisecond

// start begins to check. What is merged before, Open has just read. When the database is being
// closed nothing more is waited for.
func (c *mergeCheck) start(in *merging, check func(id uint64) error, over <-chan struct{}) {
	c.over, c.check, c.looked = over, check, make(map[uint64]chan struct{})
	c.in.Store(in)
}

// merged is called when a compaction, or a part of one, has been merged. It returns when all
// that it was made of is sound. Which compaction it is Badger does not say: all that is being
// compacted is looked at, each table once.
func (c *mergeCheck) merged() {
	in := c.in.Load()
	if in == nil {
		return
	}
	ids := in.tables()
	c.forget(ids)
	var others []chan struct{}
	for _, id := range ids {
		sound, mine := c.claim(id)
		if !mine {
			others = append(others, sound)
			continue
		}
		// What another compaction had, and has replaced meanwhile, looks damaged.
		if what := c.look(id); what != nil && slices.Contains(in.tables(), id) {
			c.refuse(id, what)
		}
		close(sound)
	}
	for _, sound := range others {
		<-sound
	}
}

// look returns what is wrong with a table. While it cannot be read for a reason that is not
// its own, such as too many open files, that is waited for.
func (c *mergeCheck) look(id uint64) error {
	clock := time.NewTicker(mergePatience)
	defer clock.Stop()
	for {
		what := c.check(id)
		if what == nil || !saysNothing(what) {
			return what
		}
		select {
		case <-c.over:
			return what
		case <-clock.C:
		}
	}
}

// claim returns what is closed when a table is sound, and whether the caller is to find out.
func (c *mergeCheck) claim(id uint64) (sound chan struct{}, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sound, known := c.looked[id]
	if !known {
		sound = make(chan struct{})
		c.looked[id] = sound
	}
	return sound, !known
}

// forget drops all tables but those that are being compacted.
func (c *mergeCheck) forget(but []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.looked {
		if !slices.Contains(but, id) {
			delete(c.looked, id)
		}
	}
}

func (c *mergeCheck) refuse(id uint64, what error) {
	file := table.IDToFilename(id)
	c.log.Error("a table that was to be merged is damaged: the database goes no further",
		slog.String("file", file), slog.String("what", what.Error()))
	c.failed(damaged("table "+file+", which was to be merged,", what))
	c.halt()
}

// merging knows which tables of a database are being compacted. Badger does not tell, so
// that is read where it keeps it, under its lock.
type merging struct {
	db   *badger.DB
	lock *sync.RWMutex
	ids  *map[uint64]struct{}
}

// mergingOf finds where Badger notes what it compacts, or says that this is another Badger.
func mergingOf(db *badger.DB) (*merging, error) {
	levels := reflect.ValueOf(db).Elem().FieldByName("lc")
	if levels.Kind() != reflect.Pointer || levels.Elem().Kind() != reflect.Struct {
		return nil, errors.New("badger does not tell what it compacts: it has no lc")
	}
	status := levels.Elem().FieldByName("cstatus")
	if status.Kind() != reflect.Struct {
		return nil, errors.New("badger does not tell what it compacts: it has no lc.cstatus")
	}
	lock, ids := status.FieldByName("RWMutex"), status.FieldByName("tables")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() ||
		!ids.IsValid() || ids.Type() != reflect.TypeFor[map[uint64]struct{}]() {
		return nil, errors.New("badger does not tell what it compacts: lc.cstatus is another one")
	}
	return &merging{
		db:   db,
		lock: (*sync.RWMutex)(lock.Addr().UnsafePointer()),
		ids:  (*map[uint64]struct{})(ids.Addr().UnsafePointer()),
	}, nil
}

// tables returns the tables in use that are being compacted, in order.
func (m *merging) tables() []uint64 {
	m.lock.RLock()
	compacted := make(map[uint64]bool, len(*m.ids))
	for id := range *m.ids {
		compacted[id] = true
	}
	m.lock.RUnlock()
	var ids []uint64
	for _, t := range m.db.Tables() {
		if compacted[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// check returns what is wrong with a table, as Badger sees it.
func (m *merging) check(id uint64) error {
	o := m.db.Opts()
	return checkMapped(table.NewFilename(id, o.Dir), o.Compression)
}

// checkMapped returns what is wrong with a table, or nil. It reads one block at a time,
// through the cache of the system, and keeps none.
func checkMapped(path string, c options.CompressionType) (what error) {
	if Guard(func() error { what = readMapped(path, c); return nil }) != nil {
		return errors.New("is unreadable: its index or a block is not one, or cannot be read")
	}
	return what
}

func readMapped(path string, c options.CompressionType) (err error) {
	switch info, serr := os.Stat(path); {
	case errors.Is(serr, fs.ErrNotExist):
		return errMissing
	case serr == nil && info.Size() == 0:
		return errors.New("is empty")
	}
	file, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { err = errors.Join(err, z.Munmap(file.Data), file.Fd.Close()) }()
	t, err := table.OpenTable(file, tableOptions(c))
	if err != nil {
		return errTableIndex
	}
	return checkBlocks(t)
}

// checkBlocks reads each block of a table that compares them with their checksums.
func checkBlocks(t *table.Table) (err error) {
	it := t.NewIterator(table.NOCACHE)
	defer func() { err = errors.Join(err, it.Close()) }()
	for _, first := range t.KeySplits(math.MaxInt, nil) {
		if it.Seek([]byte(first)); !it.Valid() {
			return errTableBlock
		}
	}
	return nil
}

// checkBeforeMerge looks at all tables before they are merged into one level, and tells of
// those that are damaged: then nothing is to be merged. It leaves the disk to others as a
// merge does.
func (r *reclaimer) checkBeforeMerge() error {
	o := r.db.Opts()
	for _, t := range r.db.Tables() {
		if err := r.pause(); err != nil {
			return err
		}
		path := table.NewFilename(t.ID, o.Dir)
		what := checkMapped(path, o.Compression)
		if what == nil || !r.db.scrubber.isUsed(t.ID) {
			continue
		}
		if !saysNothing(what) {
			r.db.scrubber.note(t, what)
		}
		return damaged(filepath.Base(path), what)
	}
	return nil
}
