package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/raftyard/raftyard/internal/vfs"
)

func TestSharedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	if _, err := vfs.SharedLock(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SharedLock where there is none = %v, want ErrNotExist", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SharedLock has made a file: %v", err)
	}
	held, err := vfs.OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = vfs.SharedLock(path); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("SharedLock of one that is held = %v, want ErrLocked", err)
	}
	if err = held.Close(); err != nil {
		t.Fatal(err)
	}
	shared, err := vfs.SharedLock(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := vfs.SharedLock(path)
	if err != nil {
		t.Fatalf("a second SharedLock: %v", err)
	}
	if _, err = (vfs.OS{}).Lock(path); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("Lock while it is shared = %v, want ErrLocked", err)
	}
	if err = errors.Join(shared.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if held, err = (vfs.OS{}).Lock(path); err != nil {
		t.Fatal(err)
	}
	if err = held.Close(); err != nil {
		t.Fatal(err)
	}
}
