// Package vfstest looks at files for tests.
package vfstest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Tree tells all there is below a directory, in the order of the names: name, mode, size and
// time of each file, and a hash of what is in it. Two that are equal say that nobody has
// written anything in between.
func Tree(t testing.TB, dir string) []string {
	t.Helper()
	all, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// List is Tree for a directory in which others may be at work: it fails when they remove
// something meanwhile.
func List(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v %d %v", path, info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() {
			sum, err := sumOf(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sum)
		}
		all = append(all, line)
		return nil
	})
	return all, err
}

func sumOf(path string) (sum []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
