package badgerdb

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
)

// reserveName is the file that holds blocks for what is under way when the disk is full.
// There is nothing in it, and it may be deleted at any time.
const reserveName = "RESERVE"

// reserve is a file that takes space until it is needed.
type reserve struct {
	path  string
	size  int64
	there bool
	said  bool // that the file system knows no such thing
}

// make allocates the reserve and reports whether it need not be tried again soon. A
// database does without one on file systems that cannot allocate ahead.
func (r *reserve) make(log *slog.Logger) bool {
	err := allocateNew(r.path, r.size)
	switch {
	case err == nil:
		r.there = true
		return true
	case errors.Is(err, errors.ErrUnsupported):
		if !r.said {
			log.Warn("the file system cannot allocate space ahead: a disk that fills up at once "+
				"may end the process", slog.String("file", r.path))
			r.said = true
		}
		return true
	default:
		log.Warn("no space is kept in reserve",
			slog.String("file", r.path), slog.Any("error", err))
		return false
	}
}

// release gives the blocks back to the file system.
func (r *reserve) release(log *slog.Logger) {
	if !r.there {
		return
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the reserve was not released",
			slog.String("file", r.path), slog.Any("error", err))
		return
	}
	r.there = false
	log.Info("released the space that was kept in reserve",
		slog.String("file", r.path), slog.Int64("bytes", r.size))
}

// allocateNew makes a file of no length that has so many bytes of blocks. What it leaves
// when it fails is nothing.
func allocateNew(path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = allocate(f, size); err == nil {
		return f.Close()
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}
