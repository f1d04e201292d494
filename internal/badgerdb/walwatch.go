package badgerdb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// walWatch follows which write-ahead log is written to, and does two things for a
// new one that Badger does not do.
//
// It syncs the directory, before the first commit in that log is acknowledged:
// a file system need not keep a new name otherwise (ext4 and XFS happen to).
//
// And it tells the kernel to expect random access to the mapping. Badger writes
// its logs through a mapping that is faulted in by read-ahead; on current kernels
// that builds large folios, and each sync then writes whole folios: 10 to 50 times
// the bytes. With random access announced, a fault brings in one page. That is
// advice only, so what goes wrong with it is logged and harms nothing.
type walWatch struct {
	dir  string
	next uint64 // the id that the log after the active one will have
	log  *slog.Logger
}

// start finds the active log. dir must be a path without symbolic links.
func (w *walWatch) start(dir string, log *slog.Logger) error {
	w.dir, w.log = dir, log
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.mem"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: no write-ahead log after opening", ErrDamaged)
	}
	last := strings.TrimSuffix(filepath.Base(slices.Max(names)), ".mem")
	id, err := strconv.ParseUint(last, 10, 32)
	if err != nil {
		return err
	}
	w.next = id
	return w.afterCommit()
}

// afterCommit looks whether the commit has begun a new log: one failing stat,
// about 2 microseconds, beside a sync of 200 and more.
func (w *walWatch) afterCommit() error {
	for {
		path := filepath.Join(w.dir, walName(w.next))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		w.next++
		if err := syncDir(w.dir); err != nil {
			return err
		}
		if err := adviseRandom(path); err != nil {
			w.log.Warn("no random access on the write-ahead log; syncs may write too much",
				slog.String("file", path), slog.Any("error", err))
		}
	}
}

func syncDir(path string) (err error) {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

func walName(id uint64) string { return fmt.Sprintf("%05d.mem", id) }

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
