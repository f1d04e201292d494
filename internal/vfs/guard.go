package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// Guard returns a file system that is the given one, and tells failed of every write and
// sync that has failed for another reason than that something is or is not there, may not
// be touched, or has no space. After such an error nobody knows what the disk holds, and to
// try again proves nothing: the owner of the files stops. Failed may be called from several
// goroutines, and more than once.
func Guard(files FS, failed func(error)) FS { return guard{FS: files, failed: failed} }

type guard struct {
	FS

	failed func(error)
}

// note tells of an error if it means that the disk has failed.
func (g guard) note(err error) error {
	if err != nil && !harmless(err) {
		g.failed(err)
	}
	return err
}

// IsNoSpace reports whether an error says that the disk, or what a quota allows of it, is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// HidesContent reports whether an error says that this process cannot look at a file now,
// and nothing of what is in it.
func HidesContent(err error) bool {
	for _, known := range []error{
		fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// harmless reports whether an error says something about what was asked for and not about
// the disk.
func harmless(err error) bool {
	for _, known := range []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrClosed, fs.ErrInvalid,
		errors.ErrUnsupported, syscall.ENOTEMPTY, syscall.ENOTDIR, syscall.EISDIR,
		syscall.EMFILE, syscall.ENFILE, syscall.ENAMETOOLONG,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return IsNoSpace(err)
}

func (g guard) file(f File, err error) (File, error) {
	if err != nil {
		return nil, g.note(err)
	}
	return guardedFile{File: f, guard: g}, nil
}

// MkdirAll implements [FS].
func (g guard) MkdirAll(dir string) error { return g.note(g.FS.MkdirAll(dir)) }

// Create implements [FS].
func (g guard) Create(path string) (File, error) { return g.file(g.FS.Create(path)) }

// CreateNew implements [FS].
func (g guard) CreateNew(path string) (File, error) { return g.file(g.FS.CreateNew(path)) }

// OpenWrite implements [FS].
func (g guard) OpenWrite(path string) (File, error) { return g.file(g.FS.OpenWrite(path)) }

// Rename implements [FS].
func (g guard) Rename(from, to string) error { return g.note(g.FS.Rename(from, to)) }

// Remove implements [FS].
func (g guard) Remove(path string) error { return g.note(g.FS.Remove(path)) }

// RemoveAll implements [FS].
func (g guard) RemoveAll(path string) error { return g.note(g.FS.RemoveAll(path)) }

// SyncDir implements [FS].
func (g guard) SyncDir(dir string) error { return g.note(g.FS.SyncDir(dir)) }

// A guardedFile is open for writing.
type guardedFile struct {
	File

	guard guard
}

// Write implements [File].
func (f guardedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.guard.note(err)
}

// WriteAt implements [File].
func (f guardedFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	return n, f.guard.note(err)
}

// Sync implements [File].
func (f guardedFile) Sync() error { return f.guard.note(f.File.Sync()) }

// Close implements [File].
func (f guardedFile) Close() error { return f.guard.note(f.File.Close()) }
