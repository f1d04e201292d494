package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// dirLock keeps other processes out of a data directory. The kernel lets go of it
// when the process ends, however it ends. The file stays, with the id of the
// last process that held it.
type dirLock struct{ file *os.File }

func lockDirectory(path string) (*dirLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lockFile(f); err != nil {
		holder := "another process"
		if b, rerr := io.ReadAll(io.LimitReader(f, 20)); rerr == nil && len(b) > 0 {
			holder = "process " + strings.TrimSpace(string(b))
		}
		return nil, errors.Join(fmt.Errorf("%w by %s: %w", ErrLocked, holder, err), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &dirLock{f}, nil
}

func (l *dirLock) release() error { return l.file.Close() }
