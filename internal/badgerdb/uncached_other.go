//go:build !linux

package badgerdb

import (
	"errors"
	"io"
	"os"
)

// openUncached opens a file; reads go through the cache here.
func openUncached(path string) (*uncached, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &uncached{File: f, piece: make([]byte, scrubPiece)}, nil
}

// read returns what is at an offset, until the next read. It is shorter than [scrubPiece]
// at the end of the file only.
func (u *uncached) read(offset int64) ([]byte, error) {
	n, err := u.ReadAt(u.piece, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return u.piece[:n], err
}
