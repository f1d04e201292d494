package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// walWatch follows which write-ahead log Badger writes to, and does two things that Badger does
// not do, or not well. What is in those logs counts for nothing after a crash, see [journal].
//
// It gives the log its blocks before there is a log. Badger makes its logs as files with
// a length and no blocks, and writes to them through a mapping: when the disk is full
// that is a signal which ends the process. So the next log's file is there beforehand,
// with no length and all the blocks. Badger takes an empty file for a new one, and to
// make a file longer leaves it its blocks.
//
// And it tells the kernel to expect random access to the mapping. Badger writes
// its logs through a mapping that is faulted in by read-ahead; on current kernels
// that builds large folios, of which each is written whole when the kernel writes. With
// random access announced, a fault brings in one page. That is
// advice only, so what goes wrong with it is logged and harms nothing.
type walWatch struct {
	dir  string        // without symbolic links
	next atomic.Uint64 // the id that the log after the active one will have
	size int64         // of the blocks that a log is given; zero: the file system cannot
	log  *slog.Logger
	room *room
}

// walSize is more than Badger writes into one log: it begins the next one when there is
// as much in it as in a memtable, and a transaction takes at most 15 % of that.
func walSize(memTable int64) int64 { return memTable*115/100 + 1<<20 }

func newWALWatch(dir string, o Options, r *room) *walWatch {
	return &walWatch{dir: dir, size: walSize(o.MemTableSize), log: o.Logger, room: r}
}

// active returns the number of the log that is written to.
func (w *walWatch) active() uint64 { return w.next.Load() - 1 }

// start finds the active log.
func (w *walWatch) start() error {
	names, err := filepath.Glob(filepath.Join(escapeGlob(w.dir), "*.mem"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: no write-ahead log after opening", ErrDamaged)
	}
	var id uint64 // of the newest log, which need not have the greatest name: see walName
	for _, name := range names {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".mem"), 10, 32)
		if err != nil {
			return err
		}
		id = max(id, n)
	}
	w.next.Store(id)
	if err := w.allocateActive(filepath.Join(w.dir, walName(id))); err != nil {
		return err
	}
	if err := w.afterCommit(); err != nil {
		return err
	}
	if w.active() != id {
		return fmt.Errorf("%w: %s was not begun by opening", ErrDamaged, walName(id))
	}
	return nil
}

// allocateActive gives blocks to the log that Badger has just made.
func (w *walWatch) allocateActive(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = allocate(f, w.size)
	if errors.Is(err, errors.ErrUnsupported) {
		w.size = 0
		return nil
	}
	return err
}

// remove removes the log that was prepared and not begun.
func (w *walWatch) remove() error {
	path := filepath.Join(w.dir, walName(w.next.Load()))
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		return nil //nolint:nilerr // it is not there
	}
	return os.Remove(path)
}

// afterCommit takes up the logs that Badger has begun since the commit before. Only its file
// tells for certain that a log has begun: one stat, about 2 microseconds.
func (w *walWatch) afterCommit() error {
	for {
		path := filepath.Join(w.dir, walName(w.next.Load()))
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Size() == 0:
			return nil // prepared, and not begun
		}
		w.begun(path)
	}
}

// begun takes up a log that Badger has begun.
func (w *walWatch) begun(path string) {
	w.next.Add(1)
	if err := adviseRandom(path); err != nil {
		w.log.Warn("no random access on the write-ahead log; it may be written whole",
			slog.String("file", path), slog.Any("error", err))
	}
	w.prepareNext()
}

// prepareNext has the log that follows the active one get its blocks. If there is no space
// for that, the room sees to it that nothing is written before there is.
func (w *walWatch) prepareNext() {
	id := w.next.Load()
	next := filepath.Join(w.dir, walName(id))
	full := filepath.Join(w.dir, walName(max(id, 2)-2)) // there is no log 0
	var err error
	if w.size > 0 {
		err = allocateNew(next, w.size)
	}
	w.room.rotated(full, next, err == nil)
}

// walName is Badger's name of a log. From 100000 on it is longer, so names are not in the order
// of logs.
func walName(id uint64) string { return fmt.Sprintf("%05d.mem", id) }

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
