// Package wire holds the few primitives that raftyard's own formats are made
// of: unsigned varints, length-prefixed byte strings and fixed 16-byte ids.
//
// Writing appends to a byte slice and cannot fail. Reading goes through a
// [Reader], which remembers the first error, never panics, never reads past
// its input and never allocates more than the input could hold, so it can be
// pointed at bytes from a network or a disk.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of a [Reader]: the bytes are not what
// the format says.
var ErrMalformed = errors.New("malformed")

// AppendUvarint appends v in the base-128 form of encoding/binary.
func AppendUvarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendBytes appends p with its length in front.
func AppendBytes(b, p []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(p))), p...)
}

// AppendString appends s with its length in front.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendID appends the 16 bytes of id.
func AppendID(b []byte, id [16]byte) []byte { return append(b, id[:]...) }

// AppendBool appends one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// SizeUvarint returns how many bytes AppendUvarint appends for v.
func SizeUvarint(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

// SizeBytes returns how many bytes AppendBytes appends for n bytes.
func SizeBytes(n int) int { return SizeUvarint(uint64(n)) + n }

// A Reader takes values from the front of a byte slice. After the first error
// every further call returns a zero value; check [Reader.Err] or
// [Reader.Close] once at the end.
type Reader struct {
	rest []byte
	size int // length of the whole input, for positions in errors
	err  error
}

// NewReader returns a Reader of b. It does not copy b.
func NewReader(b []byte) *Reader { return &Reader{rest: b, size: len(b)} }

// Err returns the first error, or nil.
func (r *Reader) Err() error { return r.err }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.rest) }

// Close returns the first error, or an error if bytes are left over.
func (r *Reader) Close() error {
	if r.err == nil && len(r.rest) != 0 {
		r.fail("%d bytes left over", len(r.rest))
	}
	return r.err
}

// Fail records an error found by the caller, unless there is one already.
func (r *Reader) Fail(format string, args ...any) { r.fail(format, args...) }

func (r *Reader) fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	at := r.size - len(r.rest)
	what := fmt.Sprintf(format, args...)
	r.err = fmt.Errorf("%w at byte %d of %d: %s", ErrMalformed, at, r.size, what)
	r.rest = nil
}

// Uvarint reads an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("no varint")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		r.fail("no byte")
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

// Bool reads one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	switch v := r.Byte(); v {
	case 0:
		return false
	case 1:
		return true
	default:
		r.fail("%d is not a boolean", v)
		return false
	}
}

// Raw reads n bytes. The result is a part of the input, not a copy.
func (r *Reader) Raw(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("%d bytes wanted, %d left", n, len(r.rest))
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

// Bytes reads a length-prefixed byte string. The result is a part of the input,
// not a copy.
func (r *Reader) Bytes() []byte { return r.Raw(r.Uvarint()) }

// String reads a length-prefixed string.
func (r *Reader) String() string { return string(r.Bytes()) }

// ID reads 16 bytes.
func (r *Reader) ID() [16]byte {
	var id [16]byte
	copy(id[:], r.Raw(16))
	return id
}

// Count reads the number of elements of a list of which each takes at least
// min bytes. A number that the rest of the input cannot hold is an error, so
// the caller may allocate for it.
func (r *Reader) Count(minSize int) int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)/max(minSize, 1)) {
		r.fail("%d elements of at least %d bytes in %d bytes", n, minSize, len(r.rest))
		return 0
	}
	return int(n)
}
