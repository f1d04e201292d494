package kv

import (
	"errors"

	"github.com/raftyard/raftyard/internal/badgerdb"
)

// ErrReadOnly is the error of a transaction on a database that is only looked at.
var ErrReadOnly = errors.New("kv: the database is read only")

// Image is a database on disk that nobody has open, as a [DB] that cannot be written.
// The zero counts are those of nothing that could be.
type Image struct{ *badgerdb.Image }

var _ DB = Image{}

// Commit implements [DB]: it fails with [ErrReadOnly].
func (Image) Commit(func(Writer) error) error { return ErrReadOnly }

// Snapshot implements [DB]. Snapshots are not for more than one goroutine together.
func (i Image) Snapshot() Snapshot { return imageSnapshot{i.Image} }

// MaxTxnBytes implements [DB].
func (Image) MaxTxnBytes() int64 { return 0 }

// MaxTxnCount implements [DB].
func (Image) MaxTxnCount() int64 { return 0 }

// MaxValueBytes implements [DB].
func (Image) MaxValueBytes() int64 { return 0 }

// TableBytes implements [DB].
func (i Image) TableBytes() int64 { return i.Bytes }

// OpenSpace implements [DB].
func (Image) OpenSpace() int64 { return 0 }

// Reserve implements [DB].
func (Image) Reserve() int64 { return 0 }

// imageSnapshot is the same at every time, because nothing is written.
type imageSnapshot struct{ image *badgerdb.Image }

// Get implements [Snapshot].
func (s imageSnapshot) Get(key []byte) ([]byte, error) { return s.image.Get(key) }

// Scan implements [Snapshot].
func (s imageSnapshot) Scan(fn func(key, value []byte, version uint64) error) error {
	return s.image.Scan(nil, fn)
}

// Discard implements [Snapshot].
func (imageSnapshot) Discard() {}
