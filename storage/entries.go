package storage

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/wire"
)

// An entry in a record is a byte of flags, its term as uvarint and, if it has
// any, its data with the length in front. Its index follows from its place.
const (
	entryTypeMask = 0x0f // raftpb.EntryType
	entryHasType  = 0x10 // the type was set, if only to the default
	entryHasData  = 0x20 // the data was set, if only to no bytes
	entryFlags    = entryTypeMask | entryHasType | entryHasData

	// minEntrySize and maxEntryOverhead are what an entry takes at least, and at
	// most beside its data.
	minEntrySize     = 2
	maxEntryOverhead = 1 + 2*binary.MaxVarintLen64
)

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	flags := byte(e.GetType()) & entryTypeMask
	if e.Type != nil {
		flags |= entryHasType
	}
	if e.Data != nil {
		flags |= entryHasData
	}
	b = append(b, flags)
	b = wire.AppendUvarint(b, e.GetTerm())
	if e.Data != nil {
		b = wire.AppendBytes(b, e.Data)
	}
	return b
}

// encodedSize returns how many bytes appendEntry appends.
func encodedSize(e *raftpb.Entry) int {
	n := 1 + wire.SizeUvarint(e.GetTerm())
	if e.Data != nil {
		n += wire.SizeBytes(len(e.Data))
	}
	return n
}

// checkEntry reports an entry that the format cannot hold.
func checkEntry(e *raftpb.Entry) error {
	_, known := raftpb.EntryType_name[int32(e.GetType())]
	if !known || e.GetType() > entryTypeMask {
		return fmt.Errorf("%w: entry %d has type %d", ErrInvalid, e.GetIndex(), e.GetType())
	}
	return nil
}

// readEntryFront reads an entry up to its data and returns how long the data is.
func readEntryFront(r *wire.Reader) (flags byte, term, size uint64) {
	flags = r.Byte()
	if flags&^entryFlags != 0 {
		r.Fail("entry flags %#x are unknown", flags)
	}
	term = r.Uvarint()
	if flags&entryHasData != 0 {
		size = r.Uvarint()
	}
	return flags, term, size
}

// readTerms calls fn with index and term of every entry in the body of a record
// that has not been cut into parts, or of the one entry whose first part it is.
func readTerms(l *logRecord, fn func(index, term uint64)) error {
	r := wire.NewReader(l.body)
	for i := range l.count {
		_, term, size := readEntryFront(r)
		if l.parts == 1 {
			r.Raw(size)
		}
		if r.Err() != nil {
			return r.Err()
		}
		fn(l.first+i, term)
	}
	if l.parts > 1 {
		return nil
	}
	return r.Close()
}

// readEntries decodes count entries from index first. Their data are parts of
// body. The entries are made in one piece: they live and die together.
func readEntries(body []byte, first, count uint64) ([]*raftpb.Entry, error) {
	r := wire.NewReader(body)
	if count > uint64(len(body)/minEntrySize) {
		r.Fail("%d entries in %d bytes", count, len(body))
		return nil, r.Close()
	}
	var (
		entries = make([]*raftpb.Entry, count)
		slab    = make([]raftpb.Entry, count)
		numbers = make([]uint64, 2*count)
	)
	for i := range entries {
		flags, term, size := readEntryFront(r)
		e, n := &slab[i], numbers[2*i:2*i+2]
		n[0], n[1] = first+uint64(i), term
		e.Index, e.Term = &n[0], &n[1]
		if flags&entryHasType != 0 {
			e.Type = raftpb.EntryType(flags & entryTypeMask).Enum()
		}
		if flags&entryHasData != 0 {
			e.Data = r.Raw(size)
		}
		if r.Err() != nil {
			return nil, r.Err()
		}
		entries[i] = e
	}
	return entries, r.Close()
}

// protoSize returns what proto.Size returns for an entry without unknown fields,
// in a tenth of the time: raft's size limits are in those units.
func protoSize(e *raftpb.Entry) uint64 {
	n := 0
	if e.Type != nil {
		n += 1 + wire.SizeUvarint(uint64(*e.Type))
	}
	if e.Term != nil {
		n += 1 + wire.SizeUvarint(*e.Term)
	}
	if e.Index != nil {
		n += 1 + wire.SizeUvarint(*e.Index)
	}
	if e.Data != nil {
		n += 1 + wire.SizeBytes(len(e.Data))
	}
	return uint64(n)
}

// limitSize returns the longest front of entries that takes at most maxSize bytes, but
// at least one entry if there is any.
func limitSize(entries []*raftpb.Entry, maxSize uint64) []*raftpb.Entry {
	var size uint64
	for i, e := range entries {
		if size += protoSize(e); size > maxSize && i > 0 {
			return entries[:i]
		}
	}
	return entries
}
