package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/internal/vfs"
)

// That OS does what FS says is tested where a simulated disk is compared with it.

func TestLockNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	held, err := vfs.OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = vfs.OS{}.Lock(path)
	who := fmt.Sprint("process ", os.Getpid())
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), who) {
		t.Errorf("second Lock = %v, want ErrLocked by %s", err, who)
	}
	if err = held.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err = (vfs.OS{}).Lock(path); err != nil {
		t.Fatal(err)
	}
	if err = held.Close(); err != nil {
		t.Error(err)
	}
}

func TestMkdirAll(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"a/b/c", "a/b/c", "a/b/d/e", ".", "a/"} {
		if err := (vfs.OS{}).MkdirAll(dir); err != nil {
			t.Errorf("MkdirAll(%s) = %v", dir, err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("Stat(%s) = %v, %v, want a directory", dir, info, err)
		}
	}
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"file", "file/under"} {
		if err := (vfs.OS{}).MkdirAll(dir); err == nil {
			t.Errorf("MkdirAll(%s) made a directory of a file", dir)
		}
	}
	if _, err := (vfs.OS{}).Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open = %v, want ErrNotExist", err)
	}
}
