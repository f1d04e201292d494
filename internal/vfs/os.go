package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// OS is the file system of the operating system.
type OS struct{}

var _ FS = OS{}

const (
	dirMode  = 0o750
	fileMode = 0o600
)

// MkdirAll implements [FS].
func (o OS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	var missing []string // the lowest first
	have := dir
	for {
		there, err := o.Exists(have)
		if err != nil {
			return err
		}
		if there {
			break
		}
		missing = append(missing, have)
		have = filepath.Dir(have)
	}
	// Each name is made durable before anything comes below it. So of those that
	// are there only the lowest may be one that an interrupted call has left.
	if err := o.SyncDir(filepath.Dir(have)); err != nil && !notOurs(err) {
		return err
	}
	for _, name := range slices.Backward(missing) {
		if err := os.Mkdir(name, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := o.SyncDir(filepath.Dir(name)); err != nil {
			return err
		}
	}
	// What was there may be something else.
	return os.MkdirAll(dir, dirMode)
}

// notOurs reports whether an error of SyncDir says that the directory is not one in
// which we can have made something: we may not read it, or what it is on is read-only
// or knows no sync.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS)
}

// Create implements [FS].
func (OS) Create(path string) (File, error) {
	return open(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR)
}

// CreateNew implements [FS].
func (OS) CreateNew(path string) (File, error) {
	return open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
}

// Open implements [FS].
func (OS) Open(path string) (File, error) { return open(path, os.O_RDONLY) }

// OpenWrite implements [FS].
func (OS) OpenWrite(path string) (File, error) { return open(path, os.O_RDWR) }

func open(path string, flags int) (File, error) {
	f, err := os.OpenFile(path, flags, fileMode)
	if err != nil {
		return nil, err // not f: it would be a File that is not nil
	}
	return f, nil
}

// ReadFile implements [FS].
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// ReadDir implements [FS].
func (OS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Exists implements [FS]. A symbolic link counts, wherever it leads.
func (OS) Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Rename implements [FS].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [FS].
func (OS) Remove(path string) error { return os.Remove(path) }

// RemoveAll implements [FS].
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir implements [FS].
func (OS) SyncDir(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

// Lock implements [FS]. The file holds the id of the last process that had the
// lock; the kernel lets go of it when the process ends, however it ends.
func (OS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	if err = lockFile(f); err != nil {
		locked := error(&LockedError{Holder: holder(f), Err: err})
		if cerr := f.Close(); cerr != nil {
			locked = errors.Join(locked, cerr)
		}
		return nil, locked
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
