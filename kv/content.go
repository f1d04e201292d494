package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/raftyard/raftyard/internal/wire"
)

const sumSize = 32

// A sum is a number modulo 2^256, least significant word first. Adding one
// SHA-256 for each item gives a hash of a set that does not depend on order, and
// from which an item can be taken out again.
type sum [4]uint64

func (s sum) add(t sum) sum {
	var c uint64
	for i := range s {
		s[i], c = bits.Add64(s[i], t[i], c)
	}
	return s
}

func (s sum) sub(t sum) sum {
	var b uint64
	for i := range s {
		s[i], b = bits.Sub64(s[i], t[i], b)
	}
	return s
}

func (s sum) append(b []byte) []byte {
	for _, w := range s {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func sumOf(b []byte) (s sum) {
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return s
}

// content is what a machine knows of all its items together. It is a function of
// the set of items alone.
type content struct {
	count uint64
	bytes uint64 // of keys and values
	items sum
}

// leaf hashes one item.
func leaf(key []byte, it item) sum {
	h := sha256.New()
	var head [3*8 + 1]byte
	head[0] = 1 // version of the hash
	binary.LittleEndian.PutUint64(head[1:], it.create)
	binary.LittleEndian.PutUint64(head[9:], it.mod)
	binary.LittleEndian.PutUint64(head[17:], uint64(len(key)))
	h.Write(head[:])
	h.Write(key)
	h.Write(it.value)
	var digest [sumSize]byte
	return sumOf(h.Sum(digest[:0]))
}

func (c content) with(key []byte, it item) content {
	return content{
		count: c.count + 1,
		bytes: c.bytes + uint64(len(key)+len(it.value)),
		items: c.items.add(leaf(key, it)),
	}
}

func (c content) without(key []byte, it item) content {
	return content{
		count: c.count - 1,
		bytes: c.bytes - uint64(len(key)+len(it.value)),
		items: c.items.sub(leaf(key, it)),
	}
}

// hash returns the content hash of a state at a revision.
func (c content) hash(revision uint64) []byte {
	b := append([]byte{1}, "raftyard kv state"...)
	b = binary.LittleEndian.AppendUint64(b, revision)
	b = binary.LittleEndian.AppendUint64(b, c.count)
	b = binary.LittleEndian.AppendUint64(b, c.bytes)
	digest := sha256.Sum256(c.items.append(b))
	return digest[:]
}

func appendContent(b []byte, c content) []byte {
	b = wire.AppendUvarint(b, c.count)
	b = wire.AppendUvarint(b, c.bytes)
	return c.items.append(b)
}

func readContent(r *wire.Reader) content {
	c := content{count: r.Uvarint(), bytes: r.Uvarint()}
	if b := r.Raw(sumSize); b != nil {
		c.items = sumOf(b)
	}
	return c
}
