package node

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/storage"
)

// remains are what is left of a destroyed replica: what it knew last. See
// docs/formats/node.md.
type remains struct {
	group.Descriptor

	// Index and Term are those of the committed entry that led to the descriptor's
	// epoch, or zero if they are not known.
	Index, Term uint64

	// NoMachine: there never was a state machine.
	NoMachine bool

	// Deleted: the group is, and no replica of this incarnation may ever come again.
	Deleted bool

	// Ahead are further epochs and members that the replica may have vouched for: those
	// that it had applied itself, if it was destroyed on somebody's word, and those to
	// which changes lead that were in its log. The group may have gone on with any of them.
	Ahead []group.Descriptor

	// Blind: its log could not be read, so it may have vouched for others than these.
	Blind bool
}

const remainsFormat = 5

// never is the next replica id of an incarnation that is deleted: it is greater than
// all that can be.
const never raftyard.ReplicaID = math.MaxUint64

// encode is what a tombstone keeps of them: among others the kind, which finds what the
// state machine has stored.
func (d remains) encode() []byte {
	b := []byte{remainsFormat}
	b = wire.AppendString(b, d.Kind)
	b = appendMembers(b, d.Members)
	b = wire.AppendUvarint(b, d.Index)
	b = wire.AppendUvarint(b, d.Term)
	b = wire.AppendBool(b, d.NoMachine)
	b = wire.AppendBool(b, d.Deleted)
	b = wire.AppendUvarint(b, uint64(d.NextReplica))
	b = wire.AppendUvarint(b, uint64(len(d.Ahead)))
	for i := range d.Ahead {
		b = wire.AppendUvarint(b, d.Ahead[i].Epoch)
		b = appendMembers(b, d.Ahead[i].Members)
	}
	return wire.AppendBool(b, d.Blind)
}

func appendMembers(b []byte, members []group.Member) []byte {
	b = wire.AppendUvarint(b, uint64(len(members)))
	for _, m := range members {
		b = wire.AppendUvarint(b, uint64(m.ID))
		b = wire.AppendUvarint(b, uint64(m.Node))
		b = append(b, byte(m.Role))
		b = wire.AppendID(b, m.Store)
	}
	return b
}

// readMembers reads members; before format 5 they have no data directory.
func readMembers(r *wire.Reader, format byte) (members []group.Member) {
	for range r.Count(3) {
		m := group.Member{
			ID: raftyard.ReplicaID(r.Uvarint()), Node: raftyard.NodeID(r.Uvarint()),
			Role: group.Role(r.Byte()),
		}
		if format > 4 {
			m.Store = r.ID()
		}
		members = append(members, m)
	}
	return members
}

// decodeRemains reads what encode has written. The epoch is not in it, nor, before
// format 4, the next replica: the tombstone has them. Before format 5 a replica told what
// was in its log only if its group was deleted, and not whether that could be read; one
// that has applied its own removal was sent nothing beyond it.
func decodeRemains(b []byte) (remains, error) {
	r := wire.NewReader(b)
	format := r.Byte()
	if r.Err() == nil && (format < 1 || format > remainsFormat) {
		return remains{}, fmt.Errorf("node: tombstone has format %d, want 1 to %d",
			format, remainsFormat)
	}
	var d remains
	d.Kind = r.String()
	d.Members = readMembers(r, format)
	if format > 1 {
		d.Index, d.Term = r.Uvarint(), r.Uvarint()
	}
	if format > 2 {
		d.NoMachine = r.Bool()
	}
	if format > 3 {
		d.Deleted = r.Bool()
		d.NextReplica = raftyard.ReplicaID(r.Uvarint())
		for range r.Count(2) {
			d.Ahead = append(d.Ahead,
				group.Descriptor{Epoch: r.Uvarint(), Members: readMembers(r, format)})
		}
	}
	d.Blind = d.Deleted || len(d.Members) == 0
	if format > 4 {
		d.Blind = r.Bool()
	}
	if err := r.Close(); err != nil {
		return remains{}, fmt.Errorf("node: tombstone: %w", err)
	}
	return d, nil
}

// remainsIn returns what a tombstone says. One that was lost may have come back without its
// data, and knows of no members.
func remainsIn(t *storage.Tombstone) (remains, error) {
	d, err := remains{Blind: true}, error(nil)
	if len(t.Data) > 0 {
		d, err = decodeRemains(t.Data)
	}
	d.Epoch = t.Epoch
	if !d.Deleted {
		d.NextReplica = t.NextReplica
	}
	return d, err
}

// tombstone is what the log store keeps of them.
func (d remains) tombstone() storage.Tombstone {
	t := storage.Tombstone{NextReplica: d.NextReplica, Epoch: d.Epoch, Data: d.encode()}
	if d.Deleted {
		t.NextReplica = never
	}
	return t
}

const leftoverFormat = 1

// encode is what a note keeps of a leftover.
func (lo leftover) encode() []byte {
	b := []byte{leftoverFormat}
	b = wire.AppendUvarint(b, uint64(lo.group))
	b = wire.AppendID(b, lo.incarnation)
	b = wire.AppendUvarint(b, uint64(lo.id))
	b = wire.AppendString(b, lo.kind)
	b = wire.AppendBool(b, lo.noMachine)
	return binary.LittleEndian.AppendUint32(b, castagnoli(b))
}

func castagnoli(b []byte) uint32 {
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

func decodeLeftover(b []byte) (leftover, error) {
	n := len(b) - 4
	if n < 0 || binary.LittleEndian.Uint32(b[n:]) != castagnoli(b[:n]) {
		return leftover{}, fmt.Errorf("node: note of %d bytes: wrong checksum", len(b))
	}
	r := wire.NewReader(b[:n])
	if format := r.Byte(); r.Err() == nil && format != leftoverFormat {
		r.Fail("format %d, want %d", format, leftoverFormat)
	}
	lo := leftover{
		group: raftyard.GroupID(r.Uvarint()), incarnation: r.ID(),
		id: raftyard.ReplicaID(r.Uvarint()), kind: r.String(), noMachine: r.Bool(),
	}
	if err := r.Close(); err != nil {
		return leftover{}, fmt.Errorf("node: note: %w", err)
	}
	return lo, nil
}
