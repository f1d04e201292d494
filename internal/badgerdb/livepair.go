package badgerdb

import (
	"bytes"
	"errors"
	"io"

	"github.com/dgraph-io/badger/v4/y"
)

// A livePair is a pair that counts, and where it is.
type livePair struct {
	at         place
	key, value []byte
}

// valueIn returns the value of a pair whose entry should be this, or nil if it is something else.
func (p livePair) valueIn(entry []byte) []byte {
	e, ok := parseEntry(entry)
	if !ok || e.size != int(p.at.size) || !bytes.Equal(y.ParseKey(e.key), p.key) {
		return nil
	}
	return e.value
}

// A pairReader reads pairs of one file of values, in the order in which they are there. It has no
// more than a piece of the file in memory.
type pairReader struct {
	file  io.ReaderAt
	piece []byte
	from  int64 // where the piece begins
}

// readPiece is how much of a file is read at once, if the next pair is not longer.
const readPiece = 64 << 10

// value returns the value of a pair, which may be used until the next call, or nil if there is
// something else in its place, or nothing. An error says why that is not known.
func (r *pairReader) value(p livePair) ([]byte, error) {
	if !r.has(p) {
		if err := r.read(p); err != nil {
			return nil, err
		}
	}
	if !r.has(p) {
		return nil, nil // the file is shorter than it was
	}
	at := int64(p.at.offset) - r.from
	return p.valueIn(r.piece[at : at+int64(p.at.size)]), nil
}

// has reports whether a pair is in the piece.
func (r *pairReader) has(p livePair) bool {
	from := int64(p.at.offset)
	return r.from <= from && from+int64(p.at.size) <= r.from+int64(len(r.piece))
}

// read reads the piece that begins with a pair, or the pair alone if what is behind it cannot be
// read. An error is of the pair.
func (r *pairReader) read(p livePair) error {
	size := int(p.at.size)
	err := r.fill(int64(p.at.offset), max(size, readPiece))
	if err != nil && !r.has(p) {
		err = r.fill(int64(p.at.offset), size)
	}
	if r.has(p) {
		return nil
	}
	return err
}

func (r *pairReader) fill(from int64, size int) error {
	if cap(r.piece) < size {
		r.piece = make([]byte, size)
	}
	n, err := r.file.ReadAt(r.piece[:size], from)
	r.from, r.piece = from, r.piece[:n]
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
