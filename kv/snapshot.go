package kv

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/wire"
)

const (
	snapshotMagic  = "raftykv\x00"
	snapshotFormat = 1

	// blockBytes is how many bytes of items make a block full.
	blockBytes = 64 << 10
	// maxBlockBytes is the longest block: a full one and the largest item.
	maxBlockBytes = blockBytes + MaxKeyBytes + MaxValueBytes + 64
)

// A snapshotHeader begins a stream.
type snapshotHeader struct {
	group    uint64 // which group it was; a stream may be restored into another
	position position
	revision uint64
	content  content
}

func (h snapshotHeader) encode() []byte {
	b := wire.AppendUvarint(nil, h.group)
	b = appendPosition(b, h.position)
	b = wire.AppendUvarint(b, h.revision)
	return appendContent(b, h.content)
}

func decodeSnapshotHeader(data []byte) (snapshotHeader, error) {
	r := wire.NewReader(data)
	h := snapshotHeader{group: r.Uvarint(), position: readPosition(r), revision: r.Uvarint()}
	h.content = readContent(r)
	return h, r.Close()
}

func appendSnapshotItem(b, key []byte, it item) []byte {
	b = wire.AppendBytes(b, key)
	b = wire.AppendUvarint(b, it.create)
	b = wire.AppendUvarint(b, it.mod-it.create)
	return wire.AppendBytes(b, it.value)
}

// snapshot is a view of a machine's state. It implements group.Snapshot.
type snapshot struct {
	store   *Store
	replica Replica
	state   machineState
	changes []change // above the view

	mu   sync.Mutex // held while the view is read
	view *badgerdb.Snapshot
}

// view opens a snapshot of the present state.
func (m *Machine) view() (*snapshot, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	defer m.end()
	if n := m.store.snapshots.Add(1); n > int64(m.store.maxSnapshots) {
		m.store.snapshots.Add(-1)
		return nil, fmt.Errorf("%w: the limit is %d", ErrTooManySnapshots, m.store.maxSnapshots)
	}
	s := &snapshot{store: m.store, replica: m.replica}
	var err error
	s.state, s.view, err = m.behind.look(func(b *behind) bool {
		s.changes = b.changesLocked(nil, nil)
		return false
	})
	if err != nil {
		m.store.snapshots.Add(-1)
		return nil, err
	}
	return s, nil
}

// Close releases the view. It waits for WriteTo.
func (s *snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view != nil {
		s.view.Discard()
		s.view = nil
		s.store.snapshots.Add(-1)
	}
	return nil
}

// WriteTo writes the state to w, in the order of the keys. It holds one block in
// memory. Damage that it finds is an error, and w gets no trailer.
func (s *snapshot) WriteTo(w io.Writer) (int64, error) {
	sw := newStreamWriter(w)
	sw.header(snapshotHeader{
		group:    uint64(s.replica.Group),
		position: s.state.position,
		revision: s.state.revision,
		content:  s.state.content,
	})
	err := s.writeItems(sw.item)
	if err == nil {
		err = sw.finish(s.state.content)
	}
	if err != nil {
		err = fmt.Errorf("kv: %v: write snapshot: %w", s.replica, err)
	}
	return sw.written, err
}

// writeItems calls fn for each item, in order, and then checks that what it has
// seen is what the machine's record says: Badger skips what it cannot read without
// an error. That sees all that is missing or old, and costs no second look at the
// tables; only when it fails they are asked which of them it was.
func (s *snapshot) writeItems(fn func(key []byte, it item) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.gate.enter(); err != nil {
		return err
	}
	defer s.store.gate.leave()
	if s.view == nil {
		return ErrClosed
	}
	err := ours(badgerdb.Guard(func() error { return s.eachItem(fn) }))
	if errors.Is(err, ErrDamaged) {
		at := s.store.db.Reader(s.view.Txn)
		err = errors.Join(err, at.Check(itemKeyPrefix(s.state.generation)))
		s.store.distrust(s.replica, s.state.generation, err)
	}
	return err
}

func (s *snapshot) eachItem(fn func(key []byte, it item) error) error {
	prefix := itemKeyPrefix(s.state.generation)
	stored := s.view.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer stored.Close()
	var seen content
	over := newMerge(s.changes, func(key []byte, it item) (bool, error) {
		if s.store.gate.closing.Load() {
			return false, ErrClosed
		}
		seen = seen.with(key, it)
		return true, fn(key, it)
	})
	for stored.Seek(prefix); stored.Valid(); stored.Next() {
		if err := s.merge(over, stored.Item()); err != nil {
			return err
		}
	}
	if err := over.rest(); err != nil {
		return err
	}
	if want := s.state.content; seen != want {
		return fmt.Errorf("%w: stored are %d items, %d bytes, hash %x; want %d, %d, %x",
			ErrDamaged, seen.count, seen.bytes, seen.hash(s.state.revision),
			want.count, want.bytes, want.hash(s.state.revision))
	}
	return nil
}

// merge gives on an item of the database, and what has changed before it.
func (s *snapshot) merge(over *merge, stored *badger.Item) error {
	storedKey := stored.Key()
	counts, _, err := over.before(storedKey[itemKeyHeader:])
	if err != nil || !counts {
		return err
	}
	return stored.Value(func(record []byte) error {
		it, err := decodeItem(s.replica.Group, storedKey, record)
		if err == nil {
			_, err = over.fn(storedKey[itemKeyHeader:], it)
		}
		return err
	})
}

// A streamWriter writes the stream of a snapshot. After the first error it writes
// nothing more.
type streamWriter struct {
	w       *bufio.Writer
	written int64
	block   []byte
	err     error
}

func newStreamWriter(w io.Writer) *streamWriter {
	return &streamWriter{w: bufio.NewWriterSize(w, blockBytes)}
}

func (w *streamWriter) header(h snapshotHeader) {
	w.write(append([]byte(snapshotMagic), snapshotFormat))
	w.frame(h.encode())
}

func (w *streamWriter) item(key []byte, it item) error {
	w.block = appendSnapshotItem(w.block, key, it)
	if len(w.block) >= blockBytes {
		w.flush()
	}
	return w.err
}

func (w *streamWriter) flush() {
	if len(w.block) > 0 {
		w.frame(w.block)
		w.block = w.block[:0]
	}
}

// finish writes the last block, the empty frame that ends the blocks, and the
// trailer.
func (w *streamWriter) finish(c content) error {
	w.flush()
	w.frame(nil)
	w.frame(appendContent(nil, c))
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

// frame writes a body between its length and its CRC.
func (w *streamWriter) frame(body []byte) {
	var length, crc [4]byte
	binary.LittleEndian.PutUint32(length[:], uint32(len(body)))
	binary.LittleEndian.PutUint32(crc[:], frameCRC(length, body))
	w.write(length[:])
	w.write(body)
	w.write(crc[:])
}

func (w *streamWriter) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(b)
	w.written += int64(n)
	w.err = err
}

// frameCRC covers the length too, so that bytes cannot move between frames.
func frameCRC(length [4]byte, body []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Update(0, table, length[:]), table, body)
}

// A streamReader reads and checks the stream of a snapshot. Its errors wrap
// [ErrSnapshotFormat], or are those of the reader below.
type streamReader struct {
	r    *bufio.Reader
	head snapshotHeader
	seen content
	last []byte // key of the last item
	body []byte // of the present frame
}

func newStreamReader(r io.Reader) *streamReader {
	return &streamReader{r: bufio.NewReaderSize(r, blockBytes)}
}

func (s *streamReader) header() (snapshotHeader, error) {
	var head [len(snapshotMagic) + 1]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return snapshotHeader{}, truncated(err)
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return snapshotHeader{}, fmt.Errorf("%w: it does not begin like one", ErrSnapshotFormat)
	}
	if v := head[len(snapshotMagic)]; v != snapshotFormat {
		return snapshotHeader{}, fmt.Errorf("%w: version %d", ErrSnapshotFormat, v)
	}
	body, err := s.frame()
	if err != nil {
		return snapshotHeader{}, err
	}
	h, err := decodeSnapshotHeader(body)
	if err != nil {
		return snapshotHeader{}, fmt.Errorf("%w: header: %w", ErrSnapshotFormat, err)
	}
	s.head = h
	return h, nil
}

// items calls fn for every item. Key and value are parts of a buffer that is
// used again.
func (s *streamReader) items(fn func(key []byte, it item) error) error {
	for {
		body, err := s.frame()
		if err != nil {
			return err
		}
		if len(body) == 0 {
			return s.trailer()
		}
		r := wire.NewReader(body)
		for r.Err() == nil && r.Len() > 0 {
			key := r.Bytes()
			it := item{create: r.Uvarint()}
			it.mod = it.create + r.Uvarint()
			it.value = r.Bytes()
			if r.Err() == nil {
				if err := s.accept(key, it, fn); err != nil {
					return err
				}
			}
		}
		if err := r.Close(); err != nil {
			return fmt.Errorf("%w: item %d: %w", ErrSnapshotFormat, s.seen.count, err)
		}
	}
}

func (s *streamReader) accept(key []byte, it item, fn func([]byte, item) error) error {
	if err := checkItem(key, it.value); err != nil {
		return fmt.Errorf("%w: item %d: %w", ErrSnapshotFormat, s.seen.count, err)
	}
	switch {
	case it.create == 0 || it.mod < it.create || it.mod > s.head.revision:
		return fmt.Errorf("%w: item %d: created at revision %d, written at %d of %d",
			ErrSnapshotFormat, s.seen.count, it.create, it.mod, s.head.revision)
	case s.seen.count > 0 && string(key) <= string(s.last):
		return fmt.Errorf("%w: item %d: key %q after %q", ErrSnapshotFormat, s.seen.count,
			key, s.last)
	}
	s.last = append(s.last[:0], key...)
	s.seen = s.seen.with(key, it)
	return fn(key, it)
}

// trailer reads the trailer, compares, and makes sure that the stream ends.
func (s *streamReader) trailer() error {
	body, err := s.frame()
	if err != nil {
		return err
	}
	r := wire.NewReader(body)
	c := readContent(r)
	if err := r.Close(); err != nil {
		return fmt.Errorf("%w: trailer: %w", ErrSnapshotFormat, err)
	}
	if want := s.head.content; c != s.seen || want != s.seen {
		return fmt.Errorf("%w: it holds %d items with %d bytes; header and trailer say"+
			" %d with %d and %d with %d, or another hash", ErrSnapshotFormat,
			s.seen.count, s.seen.bytes, want.count, want.bytes, c.count, c.bytes)
	}
	switch _, err := s.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: bytes after the end", ErrSnapshotFormat)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// frame returns the body of the next frame. It stays valid until the next call.
func (s *streamReader) frame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.r, length[:]); err != nil {
		return nil, truncated(err)
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxBlockBytes {
		return nil, fmt.Errorf("%w: frame of %d bytes, the limit is %d", ErrSnapshotFormat, n,
			maxBlockBytes)
	}
	if uint32(cap(s.body)) < n+4 {
		s.body = make([]byte, n+4)
	}
	s.body = s.body[:n+4]
	if _, err := io.ReadFull(s.r, s.body); err != nil {
		return nil, truncated(err)
	}
	body := s.body[:n]
	if binary.LittleEndian.Uint32(s.body[n:]) != frameCRC(length, body) {
		return nil, fmt.Errorf("%w: checksum of a frame of %d bytes does not match",
			ErrSnapshotFormat, n)
	}
	return body, nil
}

// truncated says that a stream has ended too early; other errors stay what they
// are.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early: %w", ErrSnapshotFormat, io.ErrUnexpectedEOF)
	}
	return err
}
