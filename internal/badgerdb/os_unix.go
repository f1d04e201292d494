//go:build linux || darwin

package badgerdb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// freeSpace returns how many bytes an ordinary user may still write to the file
// system of dir.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	//nolint:unconvert // the types differ between systems
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// lockDir takes the lock that Badger takes, for the time before Badger takes it.
func lockDir(dir string) (unlock func() error, err error) { return flock(dir, unix.LOCK_EX) }

// shareDir keeps others from taking the lock, without taking it from who reads.
func shareDir(dir string) (unlock func() error, err error) { return flock(dir, unix.LOCK_SH) }

func flock(dir string, how int) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrLocked, dir, err), f.Close())
	}
	return f.Close, nil // closing releases it
}

// checkDescriptors raises the limit of open files as far as it may be raised,
// and demands a distance from it: when Badger cannot create a table in a
// compaction for want of a descriptor, it drops the compaction's input.
func checkDescriptors(tables int, log *slog.Logger) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if lim.Cur < lim.Max {
		raised := unix.Rlimit{Cur: lim.Max, Max: lim.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err == nil {
			lim = raised
		}
	}
	need := uint64(3*tables + 128)
	if lim.Cur < need {
		return fmt.Errorf("the limit of open files is %d, the database needs %d:"+
			" raise it (ulimit -n)", lim.Cur, need)
	}
	if want := 10*uint64(tables) + 1024; lim.Cur < want {
		log.Warn("the limit of open files is low",
			slog.Uint64("limit", lim.Cur), slog.Uint64("want", want))
	}
	return nil
}
