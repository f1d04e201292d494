package group

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// The formats are described in docs/formats/group.md. Each begins with a byte that
// names its version; a reader refuses every version that it does not know.
const (
	descriptorVersion byte = 2
	stateVersion      byte = 1
	manifestVersion   byte = 1
	changeVersion     byte = 1
	batchVersion      byte = 1
	// skipVersion begins entries that are not batches, so it is told from those.
	skipVersion byte = 0x81
)

// A State is a group's descriptor together with the log index that it comes from:
// that of the membership change, or of the snapshot, that made it. The zero State
// belongs to a replica that has not heard anything yet.
type State struct {
	Descriptor Descriptor
	Index      uint64
}

// IsZero reports whether s is that of an uninitialised replica.
func (s State) IsZero() bool { return s.Index == 0 && s.Descriptor.IsZero() }

// A Manifest is what raft carries of a snapshot; the content itself is streamed
// beside it. It is the Data of a raftpb.Snapshot.
type Manifest struct {
	// State is the group's state at the snapshot's index, or a later one: the
	// receiver takes membership changes up to State.Index for applied.
	State State

	// Empty: the state machine is empty at this index, there is no content.
	Empty bool

	// ID names the content, Size is its length in bytes, as far as the sender
	// knows. The zero ID names nothing.
	ID   CommandID
	Size int64
}

// Encode returns d in the binary form that [DecodeDescriptor] reads.
func (d Descriptor) Encode() []byte { return d.append(nil) }

func (d Descriptor) append(b []byte) []byte {
	b = append(b, descriptorVersion)
	b = wire.AppendUvarint(b, uint64(d.Group))
	b = wire.AppendID(b, d.Incarnation)
	b = wire.AppendString(b, d.Kind)
	b = wire.AppendUvarint(b, d.Epoch)
	b = wire.AppendUvarint(b, uint64(d.NextReplica))
	b = wire.AppendUvarint(b, d.SnapshotEntries)
	b = wire.AppendUvarint(b, d.TrailingEntries)
	b = wire.AppendUvarint(b, uint64(len(d.Members)))
	for _, m := range d.Members {
		b = wire.AppendUvarint(b, uint64(m.ID))
		b = wire.AppendUvarint(b, uint64(m.Node))
		b = append(b, byte(m.Role))
		b = wire.AppendID(b, m.Store)
	}
	return b
}

// DecodeDescriptor reads what [Descriptor.Encode] wrote. What it returns is valid.
func DecodeDescriptor(b []byte) (Descriptor, error) {
	r := wire.NewReader(b)
	version := r.Byte()
	if r.Err() == nil && (version < 1 || version > descriptorVersion) {
		r.Fail("format version %d, want 1 to %d", version, descriptorVersion)
	}
	d := Descriptor{
		Group:       raftyard.GroupID(r.Uvarint()),
		Incarnation: r.ID(),
		Kind:        r.String(),
		Epoch:       r.Uvarint(),
		NextReplica: raftyard.ReplicaID(r.Uvarint()),
	}
	d.SnapshotEntries = r.Uvarint()
	d.TrailingEntries = r.Uvarint()
	size := 3 // of the smallest member; version 1 has no directories
	if version > 1 {
		size += len(raftyard.StoreID{})
	}
	if n := r.Count(size); n > 0 {
		d.Members = make([]Member, n)
	}
	for i := range d.Members {
		m := &d.Members[i]
		m.ID = raftyard.ReplicaID(r.Uvarint())
		m.Node = raftyard.NodeID(r.Uvarint())
		m.Role = Role(r.Byte())
		if version > 1 {
			m.Store = r.ID()
		}
	}
	if err := r.Close(); err != nil {
		return Descriptor{}, fmt.Errorf("group: decode descriptor: %w", err)
	}
	if err := d.Validate(); err != nil {
		return Descriptor{}, fmt.Errorf("group: decode descriptor: %w", err)
	}
	return d, nil
}

// checkVersion reads the version byte of a format.
func checkVersion(r *wire.Reader, want byte) {
	if got := r.Byte(); got != want && r.Err() == nil {
		r.Fail("format version %d, want %d", got, want)
	}
}

// Encode returns s in the binary form that [DecodeState] reads.
func (s State) Encode() []byte {
	b := []byte{stateVersion}
	b = wire.AppendUvarint(b, s.Index)
	if s.Descriptor.IsZero() {
		return wire.AppendBytes(b, nil)
	}
	return wire.AppendBytes(b, s.Descriptor.Encode())
}

// DecodeState reads what [State.Encode] wrote: a valid state or the zero State.
func DecodeState(b []byte) (State, error) {
	r := wire.NewReader(b)
	checkVersion(r, stateVersion)
	s := State{Index: r.Uvarint()}
	descriptor := r.Bytes()
	if (s.Index == 0) != (len(descriptor) == 0) {
		r.Fail("index %d with a descriptor of %d bytes", s.Index, len(descriptor))
	}
	if err := r.Close(); err != nil {
		return State{}, fmt.Errorf("group: decode state: %w", err)
	}
	if len(descriptor) == 0 {
		return State{}, nil
	}
	d, err := DecodeDescriptor(descriptor)
	if err != nil {
		return State{}, err
	}
	s.Descriptor = d
	return s, nil
}

// Encode returns m in the binary form that [DecodeManifest] reads.
func (m Manifest) Encode() []byte {
	b := []byte{manifestVersion}
	b = wire.AppendBytes(b, m.State.Encode())
	b = wire.AppendBool(b, m.Empty)
	b = wire.AppendID(b, m.ID)
	return wire.AppendUvarint(b, uint64(max(m.Size, 0)))
}

// DecodeManifest reads what [Manifest.Encode] wrote.
func DecodeManifest(b []byte) (Manifest, error) {
	r := wire.NewReader(b)
	checkVersion(r, manifestVersion)
	state := r.Bytes()
	m := Manifest{Empty: r.Bool(), ID: r.ID()}
	size := r.Uvarint()
	if size > math.MaxInt64 {
		r.Fail("size %d", size)
	}
	m.Size = int64(size)
	if err := r.Close(); err != nil {
		return Manifest{}, fmt.Errorf("group: decode manifest: %w", err)
	}
	s, err := DecodeState(state)
	if err != nil {
		return Manifest{}, err
	}
	if s.IsZero() {
		return Manifest{}, fmt.Errorf("%w manifest: it has no state", ErrInvalid)
	}
	m.State = s
	return m, nil
}

// encodeChange returns the Context of a membership change.
func encodeChange(expect uint64, next Descriptor) []byte {
	b := []byte{changeVersion}
	b = wire.AppendUvarint(b, expect)
	return wire.AppendBytes(b, next.Encode())
}

// decodeChange reads what encodeChange wrote.
func decodeChange(b []byte) (expect uint64, next Descriptor, err error) {
	r := wire.NewReader(b)
	checkVersion(r, changeVersion)
	expect = r.Uvarint()
	descriptor := r.Bytes()
	if err = r.Close(); err != nil {
		return 0, Descriptor{}, fmt.Errorf("group: decode membership change: %w", err)
	}
	next, err = DecodeDescriptor(descriptor)
	if err != nil {
		return 0, Descriptor{}, err
	}
	return expect, next, nil
}

// decodeConfChange reads the data of a membership change's entry. Only the form
// that this package writes is taken: ConfChangeV2 with a descriptor as Context.
func decodeConfChange(e *raftpb.Entry) (loggedChange, error) {
	if e.GetType() != raftpb.EntryConfChangeV2 {
		return loggedChange{}, fmt.Errorf("%w change: entry %d is of type %s",
			ErrInvalid, e.GetIndex(), e.GetType())
	}
	l := loggedChange{cc: new(raftpb.ConfChangeV2)}
	err := proto.Unmarshal(e.GetData(), l.cc)
	if err != nil {
		return loggedChange{}, fmt.Errorf("%w change in entry %d: %w",
			ErrInvalid, e.GetIndex(), err)
	}
	if l.expect, l.next, err = decodeChange(l.cc.GetContext()); err != nil {
		return loggedChange{}, fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	return l, nil
}

// A loggedChange is a membership change as the log has it.
type loggedChange struct {
	cc     *raftpb.ConfChangeV2
	expect uint64
	next   Descriptor
}

// batchOverhead is the most that a batch of one command adds to its data.
const batchOverhead = 1 + 1 + len(CommandID{}) + 5

// appendBatchHeader begins a batch of n commands.
func appendBatchHeader(b []byte, n int) []byte {
	return wire.AppendUvarint(append(b, batchVersion), uint64(n))
}

func appendCommand(b []byte, id CommandID, data []byte) []byte {
	return wire.AppendBytes(wire.AppendID(b, id), data)
}

// commandSize is what appendCommand appends for n bytes of data.
func commandSize(n int) int { return len(CommandID{}) + wire.SizeBytes(n) }

// DecodeEntry returns the commands that a log entry carries, which is none for the
// empty entry of a new leader, for a membership change and for a skip. The commands' Data are
// parts of e.Data, not copies.
func DecodeEntry(e *raftpb.Entry) ([]Command, error) {
	return appendCommands(nil, e)
}

// appendCommands appends e's commands to dst.
func appendCommands(dst []Command, e *raftpb.Entry) ([]Command, error) {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || isSkip(e) {
		return dst, nil
	}
	r := wire.NewReader(e.GetData())
	checkVersion(r, batchVersion)
	n := r.Count(commandSize(0))
	if n == 0 {
		r.Fail("a batch without commands")
	}
	dst = slices.Grow(dst, n)
	for i := range n {
		dst = append(dst, Command{
			Index: e.GetIndex(), Offset: i, ID: r.ID(), Data: r.Bytes(),
		})
	}
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("group: decode entry %d: %w", e.GetIndex(), err)
	}
	return dst, nil
}
