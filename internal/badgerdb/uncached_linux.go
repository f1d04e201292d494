package badgerdb

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openUncached opens a file to be read past the cache, or as others if that cannot be.
func openUncached(path string) (*uncached, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	past := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	// Memory that begins with a page, as such reads want it.
	piece, err := unix.Mmap(-1, 0, scrubPiece, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), f.Close())
	}
	return &uncached{File: f, past: past, piece: piece}, nil
}

// Close closes the file. What was read must not be used any more.
func (u *uncached) Close() error {
	return errors.Join(os.NewSyscallError("munmap", unix.Munmap(u.piece)), u.File.Close())
}

// read returns what is at an offset that is a multiple of [scrubPiece], until the next read.
// It is shorter than that at the end of the file only. One call of the system does it: a
// second one would not begin where reads past the cache may. What cannot be read past the cache
// is read as others do before it is an error: the file system may not know how.
func (u *uncached) read(offset int64) ([]byte, error) {
	for {
		n, err := unix.Pread(int(u.Fd()), u.piece, offset)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil && u.past:
			if !errors.Is(err, unix.EINVAL) {
				u.direct = &os.PathError{Op: "read", Path: u.Name(), Err: err}
			}
			if err = u.throughCache(); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: u.Name(), Err: err}
		default:
			return u.piece[:n], nil
		}
	}
}

func (u *uncached) throughCache() error {
	f, err := os.Open(u.Name())
	if err != nil {
		return err
	}
	old := u.File
	u.File, u.past = f, false
	return old.Close()
}
