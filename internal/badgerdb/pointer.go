package badgerdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// metaPointer is the user meta of a pair whose value is in a file of the journal, or one that was;
// the pair says where.
const metaPointer = 1

// pointerSize is the length of a pointer: format, number of the file, offset and size of the entry.
const (
	pointerSize   = 1 + 3*4
	pointerFormat = 1
)

func (p place) append(b []byte) []byte {
	b = append(b, pointerFormat)
	b = binary.BigEndian.AppendUint32(b, p.file)
	b = binary.BigEndian.AppendUint32(b, p.offset)
	return binary.BigEndian.AppendUint32(b, p.size)
}

func readPointer(b []byte) (p place, err error) {
	if len(b) != pointerSize || b[0] != pointerFormat {
		return p, fmt.Errorf("%w: %x does not say where a value is", ErrDamaged, b)
	}
	return place{
		file:   binary.BigEndian.Uint32(b[1:]),
		offset: binary.BigEndian.Uint32(b[5:]),
		size:   binary.BigEndian.Uint32(b[9:]),
	}, nil
}

// A valueReader reads values that are elsewhere. It keeps the memory that it has read into. It is
// for one goroutine.
type valueReader struct {
	files func(id uint32, version uint64) (f io.ReaderAt, name string, err error)
	buf   []byte
}

// read returns the value of a key that a pointer stands for. It may be used until the next
// call. An error that wraps [ErrDamaged] says that it is not there.
func (r *valueReader) read(pointer, key []byte, version uint64) ([]byte, error) {
	at, err := readPointer(pointer)
	if err != nil {
		return nil, err
	}
	file, name, err := r.files(at.file, version)
	if err != nil {
		return nil, err
	}
	if cap(r.buf) < int(at.size) {
		r.buf = make([]byte, at.size)
	}
	b := r.buf[:at.size]
	if _, err = file.ReadAt(b, int64(at.offset)); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("is shorter than it was")
		}
		return nil, damaged(name, err)
	}
	e, ok := parseEntry(b)
	if !ok || e.size != len(b) || !bytes.Equal(e.key, y.KeyWithTs(key, version)) {
		return nil, damaged(name,
			fmt.Errorf("has something else in place of a value at %d", at.offset))
	}
	return e.value, nil
}

// Value calls fn with the value of an item of the snapshot, which may be used until fn returns.
// It is for one goroutine at a time. An error that wraps [ErrDamaged] is of this value only.
func (s *Snapshot) Value(item *badger.Item, fn func([]byte) error) error {
	if item.UserMeta()&metaPointer == 0 {
		return item.Value(fn)
	}
	var value []byte
	err := item.Value(func(pointer []byte) (err error) {
		value, err = s.elsewhere.read(pointer, item.Key(), item.Version())
		if errors.Is(err, ErrDamaged) {
			at, _ := readPointer(pointer)
			s.values.complain(at.file, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	return fn(value)
}
