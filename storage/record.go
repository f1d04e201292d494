package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// recordFormat is the version of all record formats but one: logFormat is that of the
// records with a head. In its first version those did not tell which terms they follow.
const (
	recordFormat = 1
	logFormat    = 2
)

// crcSize is the length of the checksum that every record begins with.
const crcSize = 4

// sealRecord puts the checksum in front of a record: CRC32C, little endian, over
// the key and everything after the checksum. With the key in it, a record in
// another place is not a record.
func sealRecord(key, record []byte) {
	binary.LittleEndian.PutUint32(record, recordSum(key, record))
}

func recordSum(key, record []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, record[crcSize:])
}

// openRecord checks a record's checksum and format and returns a reader of what
// follows.
func openRecord(key, record []byte) (*wire.Reader, error) {
	r, _, err := openFormat(key, record, recordFormat)
	return r, err
}

// openFormat is openRecord for a record of a format up to the one given, and returns which
// it is.
func openFormat(key, record []byte, newest byte) (*wire.Reader, byte, error) {
	if len(record) < crcSize+1 {
		return nil, 0, fmt.Errorf("%d bytes are no record", len(record))
	}
	if want, got := binary.LittleEndian.Uint32(record), recordSum(key, record); want != got {
		return nil, 0, fmt.Errorf("checksum is %08x, content has %08x", want, got)
	}
	r := wire.NewReader(record[crcSize:])
	format := r.Byte()
	if format < 1 || format > newest {
		return nil, 0, fmt.Errorf("format %d is unknown", format)
	}
	return r, format, nil
}

// prefix is what every record of a group begins with, after checksum and format.
type prefix struct {
	incarnation raftyard.Incarnation
	replica     raftyard.ReplicaID
	batch       uint64 // number of the batch, node-wide
	seq         uint64 // number of the record, in its group and never reused
}

// maxPrefixSize is the length of checksum, format and the longest prefix.
const maxPrefixSize = crcSize + 1 + 16 + 3*binary.MaxVarintLen64

// append appends checksum (to be sealed), format and prefix.
func (p *prefix) append(b []byte) []byte { return p.appendAs(b, recordFormat) }

func (p *prefix) appendAs(b []byte, format byte) []byte {
	b = append(b, 0, 0, 0, 0, format)
	b = wire.AppendID(b, p.incarnation)
	b = wire.AppendUvarint(b, uint64(p.replica))
	b = wire.AppendUvarint(b, p.batch)
	return wire.AppendUvarint(b, p.seq)
}

func readPrefix(r *wire.Reader) prefix {
	return prefix{
		incarnation: r.ID(),
		replica:     raftyard.ReplicaID(r.Uvarint()),
		batch:       r.Uvarint(),
		seq:         r.Uvarint(),
	}
}

// hardState is raft's hard state. set is false when none was ever written.
type hardState struct {
	set                bool
	term, vote, commit uint64
}

// head is the state of a replica's log after the record that carries it.
//
// Invariant: start <= last, and start <= hard.commit <= last if hard.set.
type head struct {
	hard        hardState
	start       uint64 // entries <= start are gone
	startTerm   uint64 // term of the entry at start
	last        uint64
	metaSeq     uint64 // seq of the meta record, 0 if there is none
	snapshotSeq uint64 // seq of the snapshot record, 0 if there is none

	// lastTerm is the term of the last entry, or of start if there is none. Since format
	// 2; before that it is not known. It stands at the end of the record.
	lastTerm knownTerm
}

// knownTerm is a term, unless a record is too old to tell.
type knownTerm struct {
	term  uint64
	known bool
}

// differs reports whether the term is known to be another.
func (t knownTerm) differs(term uint64) bool { return t.known && t.term != term }

func readTerm(r *wire.Reader, known bool) (t knownTerm) {
	if t.known = known; known {
		t.term = r.Uvarint()
	}
	return t
}

const maxHeadSize = 1 + 9*binary.MaxVarintLen64

func (h *head) append(b []byte) []byte {
	b = wire.AppendBool(b, h.hard.set)
	if h.hard.set {
		b = wire.AppendUvarint(b, h.hard.term)
		b = wire.AppendUvarint(b, h.hard.vote)
		b = wire.AppendUvarint(b, h.hard.commit)
	}
	b = wire.AppendUvarint(b, h.start)
	b = wire.AppendUvarint(b, h.startTerm)
	b = wire.AppendUvarint(b, h.last)
	b = wire.AppendUvarint(b, h.metaSeq)
	return wire.AppendUvarint(b, h.snapshotSeq)
}

func readHead(r *wire.Reader) head {
	var h head
	if h.hard.set = r.Bool(); h.hard.set {
		h.hard.term = r.Uvarint()
		h.hard.vote = r.Uvarint()
		h.hard.commit = r.Uvarint()
	}
	h.start = r.Uvarint()
	h.startTerm = r.Uvarint()
	h.last = r.Uvarint()
	h.metaSeq = r.Uvarint()
	h.snapshotSeq = r.Uvarint()
	return h
}

// check reports a head that was never written.
func (h *head) check() error {
	switch {
	case h.start > h.last:
		return fmt.Errorf("log begins after %d and ends with %d", h.start, h.last)
	case h.hard.set && h.hard.commit > h.last:
		return fmt.Errorf("commit index %d is beyond the last entry %d", h.hard.commit, h.last)
	case h.hard.set && h.hard.commit < h.start:
		return fmt.Errorf("commit index %d is below the log's start %d", h.hard.commit, h.start)
	default:
		return nil
	}
}

// readHeadRecord decodes the value of a kindHead key.
func readHeadRecord(key, record []byte) (prefix, head, error) {
	r, format, err := openFormat(key, record, logFormat)
	if err != nil {
		return prefix{}, head{}, err
	}
	p, h := readPrefix(r), readHead(r)
	h.lastTerm = readTerm(r, format > 1)
	return p, h, r.Close()
}

// appendHeadRecord appends everything that a record with a head and without entries has.
func appendHeadRecord(b []byte, p *prefix, h *head) []byte {
	return wire.AppendUvarint(h.append(p.appendAs(b, logFormat)), h.lastTerm.term)
}

// logRecord is the value of a kindLog key. A record of one entry that is longer
// than the record limit is cut into parts, each in a slot of its own and all
// with the same prefix; part 0 has everything up to the entry's first bytes,
// the others only more bytes.
type logRecord struct {
	prefix

	part  uint64
	parts uint64 // part 0 only, like all that follows

	head  head
	first uint64
	count uint64
	prev  knownTerm // of the entry before the first; since format 2
	body  []byte    // encoded entries, or in parts > 0 the next piece of them
}

// maxLogRecordSize is the length of a log record beside its body.
const maxLogRecordSize = maxPrefixSize + maxHeadSize + 5*binary.MaxVarintLen64

// appendFront appends everything of l but the body.
func (l *logRecord) appendFront(b []byte) []byte {
	b = l.appendAs(b, logFormat)
	b = wire.AppendUvarint(b, l.part)
	if l.part != 0 {
		return b
	}
	b = wire.AppendUvarint(b, l.parts)
	b = l.head.append(b)
	b = wire.AppendUvarint(b, l.first)
	b = wire.AppendUvarint(b, l.count)
	b = wire.AppendUvarint(b, l.prev.term)
	return wire.AppendUvarint(b, l.head.lastTerm.term)
}

// readLogRecord decodes the value of a kindLog key. The body is a part of the
// record, not a copy.
func readLogRecord(key, record []byte) (logRecord, error) {
	r, format, err := openFormat(key, record, logFormat)
	if err != nil {
		return logRecord{}, err
	}
	l := logRecord{prefix: readPrefix(r), part: r.Uvarint()}
	if l.part == 0 {
		l.parts = r.Uvarint()
		l.head = readHead(r)
		l.first = r.Uvarint()
		l.count = r.Uvarint()
		l.prev = readTerm(r, format > 1)
		l.head.lastTerm = readTerm(r, format > 1)
		switch {
		case l.parts == 0 || l.parts > 1 && l.count != 1:
			r.Fail("%d entries in %d parts", l.count, l.parts)
		case l.count == 0 || l.first == 0 || l.first+l.count < l.first:
			r.Fail("%d entries from index %d", l.count, l.first)
		case l.parts == 1 && l.count > uint64(r.Len()):
			r.Fail("%d entries in %d bytes", l.count, r.Len())
		}
	}
	l.body = r.Raw(uint64(r.Len()))
	return l, r.Close()
}
