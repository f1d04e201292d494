package badgerdb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"

	"github.com/dgraph-io/badger/v4"
)

// Txn collects what a commit writes. It is valid until the function that was given it returns.
type Txn struct {
	db      *DB
	version uint64
	mark    uint64 // of the journal's file
	at      place  // of the first byte of the buffer, in the journal

	buf    []byte // the journal's page so far, and behind it the transaction as it is written
	pairs  []txnPair
	bytes  int64 // as MaxTxnBytes counts them
	memory int64 // what it takes in a memtable, or in the journal
	keeps  bool  // some value of it stays in the journal
	whole  bool  // none does, though it could
}

// txnPair says where a key and its value are in the buffer.
type txnPair struct {
	entry      int // where the whole begins
	key, value int // where they begin
	size       int // of the value
	deletes    bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	// finKey is the key of the entry that ends a transaction in a log. In the journal the mark
	// of the file follows; to Badger the key is all the same.
	finKey = "!badger!txn"

	// badgerPrefix begins keys that Badger keeps for itself.
	badgerPrefix = "!badger!"

	// maxTxnKey is the longest key that Badger takes.
	maxTxnKey = 65000

	// entryExtra is more than an entry takes in the journal beside key and value.
	entryExtra = 1 + 1 + 3 + 5 + 1 + 8 + crc32.Size
)

// Set sets a key to a value. Both are copied.
func (t *Txn) Set(key, value []byte) error {
	if len(value) > int(t.db.maxValue) {
		return fmt.Errorf("%w: value of %d bytes, the limit is %d",
			badger.ErrTxnTooBig, len(value), t.db.maxValue)
	}
	return t.add(bitTxn, key, value)
}

// Delete deletes a key, which need not be there. The key is copied.
func (t *Txn) Delete(key []byte) error { return t.add(bitTxn|bitDelete, key, nil) }

func (t *Txn) add(meta byte, key, value []byte) error {
	switch {
	case len(key) == 0:
		return badger.ErrEmptyKey
	case len(key) > maxTxnKey:
		return fmt.Errorf("%w: key of %d bytes, the limit is %d",
			badger.ErrTxnTooBig, len(key), maxTxnKey)
	case bytes.HasPrefix(key, []byte(badgerPrefix)):
		return badger.ErrInvalidKey
	}
	size := int64(len(key)+len(value)) + EntryOverhead
	if t.bytes+size > t.db.maxTxnBytes || int64(len(t.pairs)) >= t.db.maxTxnCount {
		return badger.ErrTxnTooBig
	}
	t.bytes += size
	t.memory += int64(len(key)+8+len(value)) + max(nodeSize, entryExtra)
	from := len(t.buf)
	t.buf = appendEntry(t.buf, entryMeta{meta: meta}, t.version, key, value)
	end := len(t.buf) - crc32.Size - len(value)
	t.pairs = append(t.pairs, txnPair{
		entry: from, key: end - 8 - len(key), value: end, size: len(value),
		deletes: meta&bitDelete != 0,
	})
	t.keeps = t.keeps || staysInJournal(len(key), len(value), t.db.minValue)
	return nil
}

// finish ends the transaction.
func (t *Txn) finish() {
	var key [len(finKey) + 8]byte
	copy(key[:], finKey)
	binary.BigEndian.PutUint64(key[len(finKey):], t.mark)
	var b [20]byte
	t.buf = appendEntry(t.buf, entryMeta{meta: bitFinTxn}, t.version, key[:],
		strconv.AppendUint(b[:0], t.version, 10))
	t.memory += entryExtra + int64(len(key)+len(b))
}

// padded returns the buffer with zeros up to the end of its last page.
func (t *Txn) padded() []byte {
	n := len(t.buf)
	whole := (n + journalPage - 1) / journalPage * journalPage
	t.buf = slices.Grow(t.buf, whole-n)
	clear(t.buf[n:whole])
	return t.buf[:whole]
}

// pair returns a key and its value, in the buffer. A nil value deletes the key.
func (t *Txn) pair(p txnPair) (key, value []byte) {
	key = t.buf[p.key : p.value-8 : p.value-8]
	if p.deletes {
		return key, nil
	}
	return key, t.buf[p.value : p.value+p.size : p.value+p.size]
}

// stays returns where the value of a pair stays in the journal, if it does, see [values].
func (t *Txn) stays(p txnPair) (at place, ok bool) {
	if t.whole || p.deletes || !staysInJournal(p.value-8-p.key, p.size, t.db.minValue) {
		return at, false
	}
	at = t.at
	at.offset += uint32(p.entry)
	at.size = uint32(p.value + p.size + crc32.Size - p.entry)
	return at, true
}

// reset empties the transaction, to be used for another one.
func (t *Txn) reset() {
	t.buf, t.pairs = t.buf[:0], t.pairs[:0]
	t.bytes, t.memory = 0, 0
	t.keeps = false
}

// entryMeta is what an entry is: its meta and its user meta.
type entryMeta struct{ meta, user byte }

// appendEntry appends an entry of a write-ahead log, see [walEntry].
func appendEntry(b []byte, m entryMeta, version uint64, key, value []byte) []byte {
	from := len(b)
	b = append(b, m.meta, m.user)
	b = binary.AppendUvarint(b, uint64(len(key)+8))
	b = binary.AppendUvarint(b, uint64(len(value)))
	b = append(b, 0) // never expires
	b = append(b, key...)
	b = binary.BigEndian.AppendUint64(b, math.MaxUint64-version)
	b = append(b, value...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}
