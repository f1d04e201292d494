package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// SharedLock keeps others from taking the lock of a name, see [FS.Lock], until it is closed.
// Others may share it. It makes and changes no file: where there is none the error is
// [fs.ErrNotExist], and nobody has ever taken the lock. While somebody has it the error is
// [ErrLocked].
func SharedLock(path string) (io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "lock", Path: path, Err: syscall.EISDIR}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err = shareFile(f); err != nil {
		return nil, errors.Join(&LockedError{Holder: holder(f), Err: err}, f.Close())
	}
	return f, nil
}

// holder returns who wrote into a lock's file.
func holder(f io.Reader) string {
	b, err := io.ReadAll(io.LimitReader(f, 20))
	if err != nil || len(b) == 0 {
		return "another process"
	}
	return "process " + strings.TrimSpace(string(b))
}
