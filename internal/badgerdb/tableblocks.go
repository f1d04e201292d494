package badgerdb

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/raftyard/raftyard/internal/vfs"
)

// tableBlocks gives tables their blocks as soon as there are tables.
//
// Badger makes a table's file, which must not be there before, with a length and no blocks,
// and at once copies into a mapping of it. So there is no moment at which somebody could give
// it blocks first. But to allocate them is quicker than to copy, and who begins a little later
// overtakes: from then on others may take what is free. Where nothing is free any more the
// reserve's blocks become the table's, with nobody asked in between.
//
// It hears of new files by watchDir. It has one goroutine, which start launches and close
// waits for.
type tableBlocks struct {
	dir      string
	log      *slog.Logger
	free     func(dir string) (int64, error)
	allocate func(f *os.File, size int64) error
	spare    func() bool // gives the reserve back, and reports whether there was one

	watch *dirWatch // nil: there is none
	done  chan struct{}
	short bool // a table has got no blocks, which is said once until one gets them
}

const (
	// lengthTries is how often it is looked for the length of a new table, which Badger gives
	// it with the next system call but one, and lengthWait the wait after the first look. Each
	// is twice as long as the one before.
	lengthTries, lengthWait = 10, 20 * time.Microsecond

	// blockTries is how often blocks are asked for when there is no space.
	blockTries = 3
)

// newTableBlocks begins with the reserve of a room.
func newTableBlocks(o Options, r *room) *tableBlocks {
	return &tableBlocks{
		dir: o.Dir, log: o.Logger, free: r.free, allocate: allocate, spare: r.reserve.give,
		done: make(chan struct{}),
	}
}

// start begins to watch. Without it a table gets its blocks as it is written, which is
// said and no error.
func (b *tableBlocks) start() {
	watch, err := watchDir(b.dir)
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			b.off(err)
		}
		close(b.done)
		return
	}
	b.watch = watch
	go b.run()
}

// close ends the watch. No table is being written any more.
func (b *tableBlocks) close() error {
	var err error
	if b.watch != nil {
		err = b.watch.Close()
	}
	<-b.done
	return err
}

func (b *tableBlocks) run() {
	defer close(b.done)
	for {
		names, err := b.watch.next()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				b.off(err)
			}
			return
		}
		for _, name := range names {
			if filepath.Ext(name) != ".sst" {
				continue
			}
			if err := b.give(filepath.Join(b.dir, name)); err != nil {
				if errors.Is(err, errors.ErrUnsupported) {
					b.off(err)
					return
				}
				b.note(name, err)
			}
		}
	}
}

// give gives a new table its blocks. One that is gone again needs none.
func (b *tableBlocks) give(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := awaitLength(f)
	if err != nil || size == 0 {
		return err // it has been emptied, to be removed
	}
	// An attempt that fails takes what there is and gives it back: Badger, which has begun to
	// write, would find nothing meanwhile. So the reserve is given before that.
	if free, ferr := b.free(b.dir); ferr == nil && free < size {
		b.spare()
	}
	for range blockTries {
		err = b.allocate(f, size)
		if err == nil {
			b.short = false
			return nil
		}
		if !vfs.IsNoSpace(err) || !b.spare() {
			return err
		}
	}
	return err
}

// awaitLength returns how long a new file has become, or zero if it does not become longer.
func awaitLength(f *os.File) (int64, error) {
	wait := lengthWait
	for range lengthTries {
		info, err := f.Stat()
		if err != nil || info.Size() > 0 {
			return info.Size(), err
		}
		time.Sleep(wait)
		wait *= 2
	}
	return 0, nil
}

// note says that a table has got no blocks, or that it is unknown whether it has.
func (b *tableBlocks) note(name string, err error) {
	if b.short {
		return
	}
	b.short = true
	b.log.Warn("a table is written without space that is kept for it",
		slog.String("dir", b.dir), slog.String("file", name), slog.Any("error", err))
}

// off says that tables get no blocks any more before they are written.
func (b *tableBlocks) off(err error) {
	b.log.Warn("tables are written without space that is kept for them: a disk that fills up at "+
		"once may end the process", slog.String("dir", b.dir), slog.Any("error", err))
}
