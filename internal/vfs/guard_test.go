package vfs

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// ailing is a disk on which everything that writes fails with one error.
type ailing struct {
	FS

	err error
}

func (a ailing) SyncDir(string) error        { return a.err }
func (a ailing) Rename(string, string) error { return a.err }
func (a ailing) Create(path string) (File, error) {
	f, err := a.FS.Create(path)
	return ailingFile{File: f, err: a.err}, err
}

type ailingFile struct {
	File

	err error
}

func (f ailingFile) Write([]byte) (int, error)          { return 0, f.err }
func (f ailingFile) WriteAt([]byte, int64) (int, error) { return 0, f.err }
func (f ailingFile) Sync() error                        { return f.err }

func TestGuardTellsOfAFailedDisk(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int // calls of failed
	}{
		{syscall.EIO, 5},
		{syscall.EROFS, 5},
		{&fs.PathError{Op: "sync", Path: "x", Err: syscall.EIO}, 5},
		{syscall.ENOSPC, 0},
		{syscall.EDQUOT, 0},
		{fs.ErrNotExist, 0},
		{nil, 0},
	} {
		calls := 0
		g := Guard(ailing{FS: OS{}, err: tt.err}, func(error) { calls++ })
		f, err := g.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		_, errWrite := f.Write([]byte("x"))
		_, errWriteAt := f.WriteAt([]byte("x"), 0)
		for i, got := range []error{
			errWrite, errWriteAt, f.Sync(), g.SyncDir("d"), g.Rename("a", "b"),
		} {
			if got != tt.err { //nolint:errorlint // just this one is passed on
				t.Errorf("%v: operation %d returns %v", tt.err, i, got)
			}
		}
		if calls != tt.want {
			t.Errorf("%v: failed was called %d times, want %d", tt.err, calls, tt.want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
