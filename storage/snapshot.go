package storage

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/wire"
)

// A snapshot is its index and term, the five parts of its ConfState, and its
// data. It is kept encoded in memory too: encoded it is a fifth as large, and
// who asks for it gets a copy anyway.

func appendSnapshot(b []byte, s *raftpb.Snapshot) []byte {
	m := s.GetMetadata()
	cs := m.GetConfState()
	b = wire.AppendUvarint(b, m.GetIndex())
	b = wire.AppendUvarint(b, m.GetTerm())
	b = appendIDs(b, cs.GetVoters())
	b = appendIDs(b, cs.GetLearners())
	b = appendIDs(b, cs.GetVotersOutgoing())
	b = appendIDs(b, cs.GetLearnersNext())
	b = wire.AppendBool(b, cs.GetAutoLeave())
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
	cs.AutoLeave = new(r.Bool()) // always set, as in raft's own storage
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

// snapshotIndex returns the index of an encoded snapshot.
func snapshotIndex(b []byte) uint64 { return wire.NewReader(b).Uvarint() }
