package vfstest

import (
	"errors"
	"os"
	"testing"
)

// Flip changes one bit of a file in its place, as a disk does: of the byte at the offset that at
// returns for the file's size.
func Flip(t testing.TB, path string, at func(size int64) int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(errors.Join(err, f.Close()))
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at(info.Size()))
	b[0] ^= 4
	_, werr := f.WriteAt(b, at(info.Size()))
	if err = errors.Join(err, werr, f.Close()); err != nil {
		t.Fatal(err)
	}
}
