// Package vfs is the file system that a node keeps its own files in: the few
// operations that it needs, so that a simulated disk can take the place of the
// real one, [OS].
//
// # What is durable
//
// The content of a file is durable after [File].Sync, its name after
// [FS].SyncDir of the directory; until then a power failure may take either, or a
// part of the content. [FS].MkdirAll alone makes the names of the directories that
// it made durable by itself, as nobody could tell which those were.
//
// Errors are those of package os: a [fs.PathError] or [os.LinkError], which
// errors.Is compares with [fs.ErrNotExist] and [fs.ErrExist].
package vfs

import (
	"errors"
	"fmt"
	"io"
)

// ErrLocked means that another process, or another owner in this one, has the lock.
var ErrLocked = errors.New("file is locked")

// A LockedError is an [ErrLocked] that knows who has the lock.
type LockedError struct {
	Holder string // such as "process 387"
	Err    error  // what the system says
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%v by %s: %v", ErrLocked, e.Holder, e.Err)
}

// Unwrap returns ErrLocked and what the system says.
func (e *LockedError) Unwrap() []error { return []error{ErrLocked, e.Err} }

// FS is a file system. Its methods may be called from several goroutines.
//
//nolint:interfacebloat // it is what a node does with files, in one place
type FS interface {
	// MkdirAll makes a directory and those above it that are missing, and makes
	// their names durable. One that is there is fine.
	MkdirAll(dir string) error

	// Create opens a file for writing and reading. It is empty: what it held is gone.
	Create(path string) (File, error)

	// CreateNew opens a new file for writing and reading. If there is something at
	// path the error is [fs.ErrExist].
	CreateNew(path string) (File, error)

	// Open opens a file for reading.
	Open(path string) (File, error)

	// OpenWrite opens a file that is there for writing and reading, from its start.
	OpenWrite(path string) (File, error)

	// ReadFile returns the content of a file.
	ReadFile(path string) ([]byte, error)

	// ReadDir returns the names in a directory, in order.
	ReadDir(dir string) ([]string, error)

	// Exists reports whether there is anything at path.
	Exists(path string) (bool, error)

	// Rename gives a file or a directory another path. A file that has that path
	// is replaced; at any moment, and after a power failure, there is the old one or
	// the new one.
	Rename(from, to string) error

	// Remove removes a file or an empty directory.
	Remove(path string) error

	// RemoveAll removes path and everything in it. To find nothing is no error.
	RemoveAll(path string) error

	// SyncDir makes the names in a directory durable, as they are.
	SyncDir(dir string) error

	// Lock takes the lock of this name until it is closed, or the process ends in
	// whichever way. It makes a file that stays. While somebody else has the lock the
	// error is [ErrLocked].
	Lock(path string) (io.Closer, error)
}

// File is an open file. Reading and writing share one position; ReadAt and WriteAt
// do not move it.
//
//nolint:interfacebloat // what an os.File does, and less
type File interface {
	io.Reader
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Sync makes the content durable. After an error nobody knows what is.
	Sync() error
}
