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

	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/internal/vfs"
)

// walWatch follows which write-ahead log is written to, and does four things that Badger does
// not do, or not well.
//
// It syncs the log after each commit, through a descriptor of its own. Badger would sync its
// value log as well, in which there is nothing, and so flush the disk twice. See badgerSyncs.
//
// It syncs the directory, before the first commit in a new log is acknowledged:
// a file system need not keep a new name otherwise (ext4 and XFS happen to).
//
// It gives the log its blocks before there is a log. Badger makes its logs as files with
// a length and no blocks, and writes to them through a mapping: when the disk is full
// that is a signal which ends the process. So the next log's file is there beforehand,
// with no length and all the blocks. Badger takes an empty file for a new one, and to
// make a file longer leaves it its blocks.
//
// And it tells the kernel to expect random access to the mapping. Badger writes
// its logs through a mapping that is faulted in by read-ahead; on current kernels
// that builds large folios, and each sync then writes whole folios: 10 to 50 times
// the bytes. With random access announced, a fault brings in one page. That is
// advice only, so what goes wrong with it is logged and harms nothing.
type walWatch struct {
	dir  string // without symbolic links
	next uint64 // the id that the log after the active one will have
	size int64  // of the blocks that a log is given; zero: the file system cannot
	log  *slog.Logger
	room *room

	// active is the log that is written to, and sync makes durable what was written to a
	// log. They are nil where Badger does it.
	active *os.File
	sync   func(*os.File) error
}

// walSize is more than Badger writes into one log: it begins the next one when there is
// as much in it as in a memtable, and a transaction takes at most 15 % of that.
func walSize(memTable int64) int64 { return memTable*115/100 + 1<<20 }

func newWALWatch(dir string, o Options, r *room) walWatch {
	w := walWatch{dir: dir, size: walSize(o.MemTableSize), log: o.Logger, room: r}
	if !badgerSyncs {
		w.sync = syncData
	}
	return w
}

// start finds the active log. After an error there is nothing to close.
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
	w.next = id
	if err := w.allocateActive(filepath.Join(w.dir, walName(id))); err != nil {
		return err
	}
	if err := w.afterCommit(); err != nil {
		return errors.Join(err, w.close())
	}
	if w.next == id {
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

// close lets go of the active log.
func (w *walWatch) close() error {
	if w.active == nil {
		return nil
	}
	err := w.active.Close()
	w.active = nil
	return err
}

// remove removes the log that was prepared and not begun.
func (w *walWatch) remove() error {
	path := filepath.Join(w.dir, walName(w.next))
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		return nil //nolint:nilerr // it is not there
	}
	return os.Remove(path)
}

// afterCommit makes durable what a commit has written, and the name of its log. It syncs the
// log that was active before, and one that the commit has begun. Badger begins a log before it
// writes what is to go there, so one of the two has nothing new; but that is Badger's affair,
// and to sync both takes one more flush for each log that is full.
//
// Only its file tells for certain that a log has begun: one stat, about 2 microseconds, beside
// a sync of 70 and more. Who guessed, and wrongly, would sync a log with nothing in it.
func (w *walWatch) afterCommit() error {
	if err := w.syncActive(); err != nil {
		return err
	}
	for {
		path := filepath.Join(w.dir, walName(w.next))
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Size() == 0:
			return nil // prepared, and not begun
		}
		if err := w.begun(path); err != nil {
			return err
		}
	}
}

// begun takes up a log that Badger has begun.
func (w *walWatch) begun(path string) error {
	if err := w.follow(path); err != nil {
		return err
	}
	w.next++
	if err := w.syncActive(); err != nil {
		return err
	}
	if err := (vfs.OS{}).SyncDir(w.dir); err != nil {
		return err
	}
	if err := adviseRandom(path); err != nil {
		w.log.Warn("no random access on the write-ahead log; syncs may write too much",
			slog.String("file", path), slog.Any("error", err))
	}
	w.prepareNext()
	return nil
}

// follow makes a log the active one. The log before it is durable.
func (w *walWatch) follow(path string) error {
	if w.sync == nil {
		return nil
	}
	if err := w.close(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	w.active = f
	return nil
}

// syncActive makes durable what is in the active log. After an error nobody knows what is.
func (w *walWatch) syncActive() error {
	if w.active == nil || mutant.On(mutant.SkipSync) {
		return nil
	}
	return w.sync(w.active)
}

// prepareNext has the log that follows the active one get its blocks. If there is no space
// for that, the room sees to it that nothing is written before there is.
func (w *walWatch) prepareNext() {
	next := filepath.Join(w.dir, walName(w.next))
	full := filepath.Join(w.dir, walName(max(w.next, 2)-2)) // there is no log 0
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
