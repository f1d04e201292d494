package storage

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/wire"
)

// A snapshot is its index and term, the five parts of its ConfState, and its
// data. It is kept encoded in memory too: encoded it is a fifth as large, and
// who asks for it gets a copy anyway.

// autoLeave is three-valued in raftpb.
const (
	autoLeaveUnset = iota
	autoLeaveFalse
	autoLeaveTrue
)

func appendSnapshot(b []byte, s *raftpb.Snapshot) []byte {
	m := s.GetMetadata()
	cs := m.GetConfState()
	b = wire.AppendUvarint(b, m.GetIndex())
	b = wire.AppendUvarint(b, m.GetTerm())
	b = appendIDs(b, cs.GetVoters())
	b = appendIDs(b, cs.GetLearners())
	b = appendIDs(b, cs.GetVotersOutgoing())
	b = appendIDs(b, cs.GetLearnersNext())
	switch {
	case cs == nil || cs.AutoLeave == nil:
		b = append(b, autoLeaveUnset)
	case cs.GetAutoLeave():
		b = append(b, autoLeaveTrue)
	default:
		b = append(b, autoLeaveFalse)
	}
	return wire.AppendBytes(b, s.GetData())
}

// maxSnapshotSize bounds what appendSnapshot appends.
func maxSnapshotSize(s *raftpb.Snapshot) int {
	cs := s.GetMetadata().GetConfState()
	ids := len(cs.GetVoters()) + len(cs.GetLearners()) +
		len(cs.GetVotersOutgoing()) + len(cs.GetLearnersNext())
	return (ids+7)*binary.MaxVarintLen64 + 1 + len(s.GetData())
}

func appendIDs(b []byte, ids []uint64) []byte {
	b = wire.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = wire.AppendUvarint(b, id)
	}
	return b
}

func readIDs(r *wire.Reader) []uint64 {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = r.Uvarint()
	}
	return ids
}

// decodeSnapshot returns a snapshot that shares no memory with b.
func decodeSnapshot(b []byte) (*raftpb.Snapshot, error) {
	r := wire.NewReader(b)
	index, term := r.Uvarint(), r.Uvarint()
	cs := &raftpb.ConfState{
		Voters:         readIDs(r),
		Learners:       readIDs(r),
		VotersOutgoing: readIDs(r),
		LearnersNext:   readIDs(r),
	}
	switch v := r.Byte(); v {
	case autoLeaveUnset:
	case autoLeaveFalse, autoLeaveTrue:
		cs.AutoLeave = new(v == autoLeaveTrue)
	default:
		r.Fail("%d is not an auto-leave", v)
	}
	var data []byte
	if d := r.Bytes(); len(d) > 0 {
		data = append(data, d...)
	}
	s := &raftpb.Snapshot{
		Data:     data,
		Metadata: &raftpb.SnapshotMetadata{ConfState: cs, Index: &index, Term: &term},
	}
	return s, r.Close()
}

// snapshotID returns index and term of an encoded snapshot.
func snapshotID(b []byte) (index, term uint64) {
	r := wire.NewReader(b)
	return r.Uvarint(), r.Uvarint()
}
