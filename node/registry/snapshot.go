package registry

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

// A snapshot is a stream of frames:
//
//	length of the payload   4 bytes, little endian
//	CRC-32C                 4 bytes, little endian: of the payloads of all frames
//	                        from the first to this one
//	payload                 kind (1 byte), then by kind
//	  1 head                format, version, number of nodes, number of groups
//	  2 nodes               count, then nodes by id
//	  3 groups              count, then groups by id
//	  4 end                 nothing
//
// The CRC runs on from frame to frame, so that a frame that is missing, twice
// there or in another place is noticed like a bit that is flipped. The stream
// ends with the end frame: what comes after it is an error.
const (
	snapshotFormat = 4 // those before are still read; their records have less

	frameHead   = 1
	frameNodes  = 2
	frameGroups = 3
	frameEnd    = 4

	frameHeaderBytes = 8
	frameBytes       = 64 << 10                    // a frame that has reached this is full
	maxFrameBytes    = frameBytes + maxRecordBytes // what Restore accepts
)

// ErrSnapshot is wrapped by every error of [Registry.Restore] that says that the
// stream is not a snapshot of a registry, or is damaged or cut off.
var ErrSnapshot = errors.New("registry: bad snapshot")

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Snapshot implements [group.StateMachine]. It costs one pointer and never
// fails; the view keeps the records alive that it shows.
func (r *Registry) Snapshot() (group.Snapshot, error) {
	return &snapshot{state: r.state.Load()}, nil
}

// Hash implements [group.Hasher]: the SHA-256 of what a snapshot would write.
func (r *Registry) Hash() ([]byte, error) {
	h := sha256.New()
	if _, err := (&snapshot{state: r.state.Load()}).WriteTo(h); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

type snapshot struct{ state *state }

// Close implements [io.Closer].
func (s *snapshot) Close() error { return nil }

// WriteTo implements [io.WriterTo].
func (s *snapshot) WriteTo(w io.Writer) (int64, error) {
	fw := newFrameWriter(w)
	st := s.state
	head := []byte{frameHead, snapshotFormat}
	head = wire.AppendUvarint(head, st.version)
	head = wire.AppendUvarint(head, uint64(len(st.nodes)))
	head = wire.AppendUvarint(head, uint64(st.groups.len()))
	fw.write(head)

	fw.begin(frameNodes)
	for _, n := range st.nodes {
		fw.items = appendNode(fw.items, n)
		fw.added()
	}
	fw.flush()
	fw.begin(frameGroups)
	for g := range st.groups.after(0) {
		fw.items = appendGroup(fw.items, g)
		if fw.added(); fw.err != nil {
			break
		}
	}
	fw.flush()
	fw.write([]byte{frameEnd})
	return fw.written, fw.err
}

// frameWriter makes frames of items. After the first error it does nothing.
type frameWriter struct {
	w       io.Writer
	table   *crc32.Table
	crc     uint32
	kind    byte
	items   []byte
	count   int
	frame   []byte // for reuse
	written int64
	err     error
}

func newFrameWriter(w io.Writer) *frameWriter {
	return &frameWriter{w: w, table: castagnoli()}
}

func (f *frameWriter) begin(kind byte) { f.kind = kind }

// added closes the frame if the item that was just appended has filled it.
func (f *frameWriter) added() {
	f.count++
	if len(f.items) >= frameBytes {
		f.flush()
	}
}

func (f *frameWriter) flush() {
	if f.count == 0 {
		return
	}
	payload := append(make([]byte, 0, len(f.items)+binary.MaxVarintLen64+1), f.kind)
	payload = wire.AppendUvarint(payload, uint64(f.count))
	f.write(append(payload, f.items...))
	f.items, f.count = f.items[:0], 0
}

func (f *frameWriter) write(payload []byte) {
	if f.err != nil {
		return
	}
	f.crc = crc32.Update(f.crc, f.table, payload)
	f.frame = binary.LittleEndian.AppendUint32(f.frame[:0], uint32(len(payload)))
	f.frame = binary.LittleEndian.AppendUint32(f.frame, f.crc)
	f.frame = append(f.frame, payload...)
	n, err := f.w.Write(f.frame)
	f.written += int64(n)
	f.err = err
}

// Restore implements [group.StateMachine]. It builds the new state beside the
// present one and puts it in place when the whole stream has been checked.
func (r *Registry) Restore(src io.Reader) error {
	rd := &snapshotReader{src: bufio.NewReader(src), table: castagnoli()}
	st, err := rd.read()
	if err != nil {
		return err
	}
	r.publish(st)
	return nil
}

type snapshotReader struct {
	src   *bufio.Reader
	table *crc32.Table
	crc   uint32
	frame []byte // for reuse

	format byte
	state  state
	nodes  uint64 // announced by the head
	groups uint64
}

func (s *snapshotReader) read() (*state, error) {
	payload, err := s.next()
	if err != nil {
		return nil, err
	}
	if err = s.head(payload); err != nil {
		return nil, fmt.Errorf("%w: head: %w", ErrSnapshot, err)
	}
	for {
		payload, err = s.next()
		switch {
		case err != nil:
			return nil, err
		case payload[0] == frameEnd:
			return s.end(payload)
		}
		if err = s.items(payload); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
}

// next reads one frame and returns its payload, which is valid until the next
// call and not empty.
func (s *snapshotReader) next() ([]byte, error) {
	var header [frameHeaderBytes]byte
	if _, err := io.ReadFull(s.src, header[:]); err != nil {
		return nil, cutOff(err)
	}
	size := binary.LittleEndian.Uint32(header[0:])
	if size == 0 || size > maxFrameBytes {
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrSnapshot, size)
	}
	s.frame = slices.Grow(s.frame[:0], int(size))[:size]
	if _, err := io.ReadFull(s.src, s.frame); err != nil {
		return nil, cutOff(err)
	}
	s.crc = crc32.Update(s.crc, s.table, s.frame)
	if want := binary.LittleEndian.Uint32(header[4:]); s.crc != want {
		return nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrSnapshot, s.crc, want)
	}
	return s.frame, nil
}

// cutOff says that a stream that ends is a damaged one. An error of the reader
// itself is passed on: the stream may be good.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: cut off: %w", ErrSnapshot, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("registry: reading a snapshot: %w", err)
}

func (s *snapshotReader) head(payload []byte) error {
	r := wire.NewReader(payload)
	if kind := r.Byte(); kind != frameHead {
		return fmt.Errorf("the first frame is of kind %d", kind)
	}
	s.format = r.Byte()
	if r.Err() == nil && (s.format < 1 || s.format > snapshotFormat) {
		return fmt.Errorf("format %d is not known", s.format)
	}
	s.state.version = r.Uvarint()
	s.nodes = r.Uvarint()
	s.groups = r.Uvarint()
	return r.Close()
}

func (s *snapshotReader) items(payload []byte) error {
	r := wire.NewReader(payload)
	kind := r.Byte()
	for range r.Count(1) {
		var err error
		switch kind {
		case frameNodes:
			err = s.node(readNode(r, s.format))
		case frameGroups:
			err = s.group(readGroup(r, s.format))
		default:
			return fmt.Errorf("a frame of kind %d", kind)
		}
		// What could not be read fails its checks too, for a lesser reason.
		if r.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
	}
	return r.Close()
}

func (s *snapshotReader) node(n Node) error {
	if err := n.checkRecord(); err != nil {
		return fmt.Errorf("node %d: %w", n.ID, err)
	}
	if k := len(s.state.nodes); k > 0 && s.state.nodes[k-1].ID >= n.ID {
		return fmt.Errorf("node %d after node %d", n.ID, s.state.nodes[k-1].ID)
	}
	s.state.nodes = append(s.state.nodes, &n)
	return nil
}

func (s *snapshotReader) group(g Group) error {
	if err := g.check(); err != nil {
		return fmt.Errorf("group %d: %w", g.ID, err)
	}
	if g.Version == 0 || g.Version > s.state.version {
		return fmt.Errorf("group %d: version %d of %d", g.ID, g.Version, s.state.version)
	}
	if !slices.IsSorted(g.Voters) || !slices.IsSorted(g.Learners) {
		return fmt.Errorf("group %d: members out of order", g.ID)
	}
	if last, ok := s.state.groups.last(); ok && last.ID >= g.ID {
		return fmt.Errorf("group %d after group %d", g.ID, last.ID)
	}
	s.state.groups.push(&g)
	return nil
}

// end checks that everything that the head announced is there, and that the
// stream ends with the end frame.
func (s *snapshotReader) end(payload []byte) (*state, error) {
	if len(payload) != 1 {
		return nil, fmt.Errorf("%w: the end frame has %d bytes", ErrSnapshot, len(payload))
	}
	nodes, groups := uint64(len(s.state.nodes)), uint64(s.state.groups.len())
	if nodes != s.nodes || groups != s.groups {
		return nil, fmt.Errorf("%w: %d nodes and %d groups, announced %d and %d",
			ErrSnapshot, nodes, groups, s.nodes, s.groups)
	}
	switch _, err := s.src.ReadByte(); {
	case err == nil:
		return nil, fmt.Errorf("%w: bytes after the end", ErrSnapshot)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("registry: reading a snapshot: %w", err)
	}
	return &s.state, nil
}
