package badgerdb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4/skl"
)

// A write-ahead log of Badger 4 (NNNNN.mem) is a header of 20 bytes, then
// entries, then zeros to the end of the sparse file. A file of the journal is so, too, but for
// what is behind its end:
//
//	meta 1 | user meta 1 | key length uvarint | value length uvarint |
//	expires uvarint | key | value | CRC32C of all this, big endian 4
//
// The last 8 bytes of a key are the complement of its version. Entries of one
// transaction carry bitTxn and are followed by one with bitFinTxn whose value is
// the version in decimal. Badger's replay stops at the first thing it cannot
// read and cuts the file there, whatever comes after.
const (
	walHeaderSize = 20
	bitDelete     = 1 << 0
	bitTxn        = 1 << 6
	bitFinTxn     = 1 << 7
	minEntrySize  = 1 + 1 + 1 + 1 + 1 + 8 + 4 // an empty key still has its version
	maxKeySize    = 1 << 16

	// nodeSize is what an entry takes in a memtable beside its key and value, on average: a
	// node of the height that every third of those below it has, its padding, and what is
	// stored with the value.
	nodeSize  = int64(skl.MaxNodeSize) - maxHeight*4 + 3*4/2 + 8 + 3
	maxHeight = 20
)

// walEntry is one entry. Key and value are parts of the log.
type walEntry struct {
	meta    byte
	user    byte   // user meta, see metaPointer
	key     []byte // with the version at its end
	value   []byte
	version uint64
	marked  bool // it is of a transaction that has an end marker
	end     bool // the end marker of its transaction
	size    int
}

// parseMarked reads the entry at the front of b. It reports false for anything
// that is not a whole, undamaged entry of a transaction.
func parseMarked(b []byte) (walEntry, bool) {
	if len(b) < minEntrySize || b[0]&(bitTxn|bitFinTxn) == 0 {
		return walEntry{}, false
	}
	return parseEntry(b)
}

// parseEntry does so with any entry.
func parseEntry(b []byte) (walEntry, bool) {
	var e walEntry
	if len(b) < minEntrySize {
		return e, false
	}
	at := 2
	var n [3]uint64 // key length, value length, expiry
	for i := range n {
		v, size := binary.Uvarint(b[at:])
		if size <= 0 {
			return e, false
		}
		n[i], at = v, at+size
	}
	rest := uint64(len(b) - at)
	if n[0] < 8 || n[0] > maxKeySize || n[1] > rest || n[0]+n[1]+crc32.Size > rest {
		return e, false
	}
	key := b[at : at+int(n[0])]
	value := b[at+int(n[0]) : at+int(n[0])+int(n[1])]
	at += int(n[0] + n[1])
	sum := crc32.Checksum(b[:at], crc32.MakeTable(crc32.Castagnoli))
	if sum != binary.BigEndian.Uint32(b[at:]) {
		return e, false
	}
	e.meta, e.user, e.key, e.value = b[0], b[1], key, value
	e.size = at + crc32.Size
	e.version = ^binary.BigEndian.Uint64(key[len(key)-8:])
	e.end = b[0]&bitFinTxn != 0
	e.marked = e.end || b[0]&bitTxn != 0
	if e.end {
		said, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil || said != e.version {
			return e, false
		}
	}
	return e, true
}

// entries goes through the entries of a log, each with its offset, up to the first thing that is
// none: that is the end, or damaged.
func entries(log []byte) iter.Seq2[int, walEntry] {
	return func(yield func(int, walEntry) bool) {
		for at := walHeaderSize; at < len(log); {
			e, ok := parseEntry(log[at:])
			if !ok || !yield(at, e) {
				return
			}
			at += e.size
		}
	}
}

// walContent is what replay will find in one log.
type walContent struct {
	journal     bool   // it is of the journal: what is older than next is of its file's life before
	mark        uint64 // what the ends of its transactions have; zero: anything
	next        uint64 // the transaction that would follow; zero: any
	first, last uint64 // versions of the whole transactions; zero when there is none
	end         int64  // where the whole transactions end
	torn        uint64 // version of the entries after end that have no end marker
	memory      int64  // about what the entries take in a memtable
	longest     int    // the longest value of those that may stay in the journal
}

// replay follows the log in b from its start as Badger will, when a log of the journal is cut
// to its end.
func replay(b []byte) (walContent, error) {
	c := walContent{end: walHeaderSize}
	c.next, c.mark = journalHeader(b)
	c.journal = c.next != 0
	var memory int64 // of a transaction without its end
	longest := 0     // also of that one
	for at, e := range entries(b) {
		if !e.marked || c.journal && !c.isOwn(e) {
			break // checkTail looks into what follows
		}
		if c.torn != 0 && e.version != c.torn {
			return c, fmt.Errorf("transaction %d has no end before %d begins", c.torn, e.version)
		}
		if c.next != 0 && e.end && e.version != c.next {
			return c, fmt.Errorf("transaction %d follows %d", e.version, c.next-1)
		}
		memory += int64(len(e.key)+len(e.value)) + nodeSize
		if e.stays(longest) {
			longest = len(e.value)
		}
		if !e.end {
			c.torn = e.version
			continue
		}
		if c.first == 0 {
			c.first = e.version
		}
		c.last, c.torn, c.end = e.version, 0, int64(at+e.size)
		c.next = e.version + 1
		c.memory, memory = c.memory+memory, 0
		c.longest = longest
	}
	return c, nil
}

// isOwn reports whether an entry may be the next one of a log of the journal. Behind its end may
// be what its file held before: older transactions, and parts of values, in which somebody may
// have written what looks like transactions. But nobody knows the mark of the file.
func (c walContent) isOwn(e walEntry) bool {
	return e.version == c.next && (!e.end || c.mark == 0 || e.mark() == c.mark)
}

// mark returns what distinguishes the end of a transaction in the journal, or zero.
func (e walEntry) mark() uint64 {
	mark, found := bytes.CutPrefix(e.key[:len(e.key)-8], []byte(finKey))
	if !found || len(mark) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(mark)
}

// checkTail looks for entries behind the point where replay stops. A transaction
// that was being written when the machine stopped may have left any of its pages
// and none of another's, because the next one is written only after the sync.
// Entries of a later transaction mean that what was synced is damaged.
func checkTail(b []byte, c walContent) error {
	if c.mark != 0 {
		return checkMarkedTail(b, c)
	}
	torn := cmp.Or(c.torn, c.next)
	budget := maxTailWork
	for at := int(c.end); at < len(b) && budget > 0; {
		if b[at] == 0 || !startsOwnEntry(b[at:]) {
			at++
			continue
		}
		e, ok := parseMarked(b[at:])
		if !ok {
			budget -= len(b) - at
			at++
			continue
		}
		if torn == 0 {
			torn = e.version // the log's first transaction, wherever its front is
		}
		if e.version > torn && e.version-torn < maxTxns {
			return c.lost(e.version, at)
		}
		at += e.size
	}
	return nil
}

// checkMarkedTail is checkTail for a file of the journal: it looks for the ends of its
// transactions.
func checkMarkedTail(b []byte, c walContent) error {
	const front = 1 + 1 + 1 + 1 + 1 // of an end, before its key
	end := binary.BigEndian.AppendUint64([]byte(finKey), c.mark)
	for at := int(c.end) + front; at < len(b); at++ {
		n := bytes.Index(b[at:], end)
		if n < 0 {
			return nil
		}
		at += n
		if e, ok := parseEntry(b[at-front:]); ok && e.end && e.version > c.next {
			return c.lost(e.version, at-front)
		}
	}
	return nil
}

// lost says that a transaction follows what cannot be read.
func (c walContent) lost(version uint64, at int) error {
	return fmt.Errorf("unreadable at offset %d, but transaction %d follows at offset %d",
		c.end, version, at)
}

const (
	// maxTailWork bounds the bytes that checkTail sums up in vain, in case that
	// somebody stores what looks like the beginnings of entries.
	maxTailWork = 4 << 30

	// maxTxns is more transactions than fit into one log. Versions beyond that
	// are a part of somebody's value.
	maxTxns = 1 << 26
)

// startsOwnEntry reports whether b begins as the entries that this package
// writes do: put, delete or end, no user meta, no expiry.
func startsOwnEntry(b []byte) bool {
	if len(b) < minEntrySize || b[1] != 0 {
		return false
	}
	if m := b[0]; m != bitTxn && m != bitTxn|bitDelete && m != bitFinTxn {
		return false
	}
	_, k := binary.Uvarint(b[2:])
	if k <= 0 {
		return false
	}
	v, n := binary.Uvarint(b[2+k:])
	return n > 0 && v <= uint64(len(b)) && 2+k+n < len(b) && b[2+k+n] == 0
}

// walSummary is what all logs of a database hold.
type walSummary struct {
	newest uint64 // version of the newest whole transaction, zero when there is none
	memory int64  // what the largest of them takes in a memtable
	logs   []walContent
}

// holds reports whether a log holds the transaction.
func (w walSummary) holds(version uint64) bool {
	for _, c := range w.logs {
		if c.first <= version && version <= c.last {
			return true
		}
	}
	return false
}

// checkWALs reads every write-ahead log and tells a torn end, which is what a
// kill or a power failure leaves, from damage, which Badger would pass over in
// silence together with all that was committed after it.
func checkWALs(f files, log *slog.Logger) (walSummary, error) {
	var sum walSummary
	var prev walContent
	for i, w := range f.wals {
		c, err := checkWAL(filepath.Join(f.dir, w.name))
		if err != nil {
			return sum, damaged(w.name, err)
		}
		adjacent := i > 0 && neighbours(f.wals[i-1], w)
		if err := gap(adjacent, prev, c); err != nil {
			return sum, fmt.Errorf("%w: %s: %w", ErrDamaged, w.name, err)
		}
		if w.journal && !c.journal {
			return sum, damaged(w.name, errNoJournal)
		}
		if c.torn != 0 {
			log.Info("dropping a transaction that was cut off while it was written",
				slog.String("file", w.name), slog.Uint64("transaction", c.torn))
		}
		if c.last != 0 || !adjacent {
			prev = c
		}
		sum.newest = max(sum.newest, c.last)
		sum.memory = max(sum.memory, c.memory)
		sum.logs = append(sum.logs, c)
	}
	for _, name := range f.stale {
		if err := sum.checkStale(filepath.Join(f.dir, name)); err != nil {
			return sum, damaged(name, err)
		}
	}
	return sum, nil
}

// checkStale looks for what is newer than the journal in a log that it stands for. There may be
// one transaction, of which the end of the journal was lost before it was durable.
func (w walSummary) checkStale(path string) error {
	end := w.journalEnd()
	b, err := readSparse(path)
	if err != nil {
		return err
	}
	for _, e := range entries(b) { // what follows was not synced
		if e.version > end+1 {
			return fmt.Errorf("has transaction %d, and the journal ends with %d: its end is lost",
				e.version, end)
		}
	}
	return nil
}

// journalEnd returns the newest transaction that the journal has, or lets expect in tables: a file
// in which there is none yet says with which one it begins.
func (w walSummary) journalEnd() uint64 {
	end := w.newest
	for _, c := range w.logs {
		if c.journal {
			end = max(end, c.next-1)
		}
	}
	return end
}

// errNoJournal: a file of the journal has another header.
var errNoJournal = errors.New("does not begin as a file of the journal")

// errNoMarks: what is in one of Badger's own logs has no marks of transactions. So there was a
// journal beside it, see [mover], and without that it does not count.
var errNoMarks = errors.New("was written beside a journal, of which nothing is there")

// neighbours reports whether one log goes on where the one before it ends. The files of the
// journal do, since it lets go of the oldest only. Of Badger's logs, and those of the journal that
// have taken their place, a snapshot may keep an old one after a newer one has been flushed, so
// only those with adjacent numbers are known to follow each other.
//
// That there is no gap between the tables and the first log cannot be known: what was deleted may
// be merged away with its deletion, so the tables may end with an older transaction.
func neighbours(before, w walFile) bool {
	return before.id+1 == w.id || isOwnName(before.name) && isOwnName(w.name)
}

// isOwnName reports whether a log has the name of a file of the journal.
func isOwnName(name string) bool { return strings.HasSuffix(name, journalExt) }

// gap reports that a log does not go on where the one before it ends.
func gap(adjacent bool, prev, c walContent) error {
	first := c.first
	if c.journal && first == 0 {
		first = c.next
	}
	if adjacent && prev.last != 0 && first != 0 && first != prev.last+1 {
		return fmt.Errorf("begins with transaction %d, but the log before it ends with %d",
			first, prev.last)
	}
	return nil
}

func checkWAL(path string) (walContent, error) {
	_, c, err := readWAL(path)
	return c, err
}

// readWAL reads a log and finds out what replay will find in it.
func readWAL(path string) ([]byte, walContent, error) {
	b, err := readSparse(path)
	if err != nil {
		return nil, walContent{}, err
	}
	if len(b) < walHeaderSize {
		return nil, walContent{}, fmt.Errorf("%d bytes are less than the header", len(b))
	}
	first, _ := journalHeader(b)
	if key := b[:8]; first == 0 && !bytes.Equal(key, make([]byte, 8)) {
		return nil, walContent{}, fmt.Errorf("encrypted with key %x, which raftyard never does",
			key)
	}
	c, err := replay(b)
	if err != nil {
		return nil, c, err
	}
	if e, ok := parseEntry(b[c.end:]); ok && !c.journal && !e.marked {
		return nil, c, errNoMarks
	}
	return b, c, checkTail(b, c)
}

// readSparse returns the file without the hole at its end.
func readSparse(path string) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	size, err := dataEnd(f)
	if err != nil {
		return nil, err
	}
	// A log that was just begun when the power failed has its size, but no page: its
	// header is zeros, like all that follows. Badger finds it empty.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size = max(size, min(info.Size(), walHeaderSize))
	b = make([]byte, size)
	n, err := io.ReadFull(f, b)
	if err != nil && n < len(b) {
		return nil, err
	}
	return b, nil
}
