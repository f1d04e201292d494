package badgerdb

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/internal/vfs"
)

// reserveName is the file that holds blocks for what is under way when the disk is full.
// There is nothing in it, and it may be deleted at any time.
const reserveName = "RESERVE"

// allocRetry is how long it takes after a failure until space is asked for again. What is
// free need not be for us: a quota may be used up.
const allocRetry = time.Second

// reserve is a file that takes space until it is needed. It belongs to who looks at the
// space, see room.look, but for give.
type reserve struct {
	path     string
	size     int64
	allocate func(path string, size int64) error
	there    bool
	failing  bool // which is said once
	short    bool // for want of space, or of a quota's
	failed   time.Time
	given    atomic.Bool // it is gone, which its owner has not heard of yet
}

// make allocates the reserve and reports whether it is there, or there is no such thing. A
// database does without one on file systems that cannot allocate ahead.
func (r *reserve) make(now time.Time, log *slog.Logger) bool {
	if r.there {
		return true
	}
	if !r.failed.IsZero() && now.Sub(r.failed) < allocRetry {
		return false
	}
	err := r.allocate(r.path, r.size)
	if errors.Is(err, fs.ErrExist) {
		// It was believed to be gone: who gives it says so a moment later, and may have meant
		// the one before. It counts again as soon as it is made again.
		if err = os.Remove(r.path); err == nil {
			err = r.allocate(r.path, r.size)
		}
	}
	r.failed = time.Time{}
	r.short = vfs.IsNoSpace(err)
	switch {
	case err == nil:
		if r.failing {
			log.Info("space is kept in reserve again", slog.String("file", r.path))
		}
		r.there, r.failing = true, false
		return true
	case errors.Is(err, errors.ErrUnsupported):
		if !r.failing {
			log.Warn("the file system cannot allocate space ahead: a disk that fills up at once "+
				"may end the process", slog.String("file", r.path))
		}
		r.failing = true
		return true
	default:
		if !r.failing {
			log.Warn("no space is kept in reserve",
				slog.String("file", r.path), slog.Any("error", err))
		}
		r.failing, r.failed = true, now
		return false
	}
}

// give gives the blocks back to the file system for who needs them this moment, and reports
// whether there was a reserve. Any goroutine may call it, at any time.
func (r *reserve) give() bool {
	if os.Remove(r.path) != nil {
		return false // it is not there, or what is wrong with it its owner finds
	}
	r.given.Store(true)
	return true
}

// settle hears of what was given.
func (r *reserve) settle(log *slog.Logger) {
	if r.given.Swap(false) && r.there {
		r.there = false
		log.Info("a table has got the space that was kept in reserve",
			slog.String("file", r.path), slog.Int64("bytes", r.size))
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
