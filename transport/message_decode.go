package transport

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/wire"
)

// messageSlab is one message with the storage that its optional fields point
// to: protobuf's structures have a pointer for each scalar, and one allocation
// for each would be most of what decoding costs.
type messageSlab struct {
	message raftpb.Message
	typ     raftpb.MessageType
	reject  bool
	fields  [8]uint64
}

type entrySlab struct {
	entry       raftpb.Entry
	typ         raftpb.EntryType
	term, index uint64
}

type snapshotSlab struct {
	snapshot    raftpb.Snapshot
	metadata    raftpb.SnapshotMetadata
	conf        raftpb.ConfState
	index, term uint64
	autoLeave   bool
}

// entriesSlab is what a message with one entry needs for it, which most have.
type entriesSlab struct {
	slab [1]entrySlab
	list [1]*raftpb.Entry
}

// decodeMessage reads one message into s. Nothing in it is a part of r's input.
func decodeMessage(r *wire.Reader, s *messageSlab, from, to uint64) {
	m := &s.message
	s.typ = raftpb.MessageType(r.Byte())
	m.Type = &s.typ
	s.fields[0], s.fields[1] = from, to
	m.From, m.To = &s.fields[0], &s.fields[1]

	flags := r.Uvarint()
	if flags&^messageBits != 0 || flags&(hasReject|rejectTrue) == rejectTrue {
		r.Fail("message flags %#x", flags)
		return
	}
	next := 2
	optional := func(bit uint64) *uint64 {
		if flags&bit == 0 {
			return nil
		}
		p := &s.fields[next]
		next++
		*p = r.Uvarint()
		return p
	}
	m.Term = optional(hasTerm)
	m.Index = optional(hasIndex)
	m.LogTerm = optional(hasLogTerm)
	m.Commit = optional(hasCommit)
	m.RejectHint = optional(hasRejectHint)
	m.Vote = optional(hasVote)
	if flags&hasReject != 0 {
		s.reject = flags&rejectTrue != 0
		m.Reject = &s.reject
	}
	if flags&hasContext != 0 {
		m.Context = copyBytes(r.Bytes())
	}
	if flags&hasSnapshot != 0 {
		m.Snapshot = decodeSnapshot(r)
	}
	if flags&hasEntries != 0 {
		decodeEntries(r, m)
	}
}

// copyBytes copies b; an empty b becomes an empty slice, not nil.
func copyBytes(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

func decodeEntries(r *wire.Reader, m *raftpb.Message) {
	n := r.Count(1)
	if n == 0 || n > maxEntries {
		r.Fail("%d entries, want 1 to %d", n, maxEntries)
		return
	}
	slab := makeEntries(m, n)
	term, index := m.GetLogTerm(), m.GetIndex()
	size := 0
	for i := range slab {
		s := &slab[i]
		head := r.Byte()
		s.typ = raftpb.EntryType(head & 3)
		if head&entryHasType != 0 {
			s.entry.Type = &s.typ
		} else if s.typ != 0 {
			r.Fail("entry head %#x", head)
		}
		decodeTermIndex(r, head, s, term, index)
		if head&entryHasData != 0 {
			s.entry.Data = r.Bytes()
			size += len(s.entry.Data)
		}
		if r.Err() != nil {
			return
		}
		term, index = s.term, s.index
		m.Entries[i] = &s.entry
	}
	ownPayloads(slab, size)
}

// makeEntries gives a message room for n entries.
func makeEntries(m *raftpb.Message, n int) []entrySlab {
	if n == 1 {
		one := new(entriesSlab)
		m.Entries = one.list[:]
		return one.slab[:]
	}
	m.Entries = make([]*raftpb.Entry, n)
	return make([]entrySlab, n)
}

// ownPayloads copies the payloads of a message out of the frame in which they came. A log
// keeps entries for long, and a frame holds those of many groups; and so the memory of the
// frame can be used again.
func ownPayloads(slab []entrySlab, size int) {
	data := make([]byte, 0, size)
	for i := range slab {
		if e := &slab[i].entry; e.Data != nil {
			start := len(data)
			data = append(data, e.Data...)
			e.Data = data[start:len(data):len(data)]
		}
	}
}

// decodeTermIndex sets term and index of an entry. term and index are those of
// the entry before.
func decodeTermIndex(r *wire.Reader, head byte, s *entrySlab, term, index uint64) {
	switch head & entryTermMask {
	case 0:
	case entryTermSame:
		s.term, s.entry.Term = term, &s.term
	case entryTermExplicit:
		s.term, s.entry.Term = r.Uvarint(), &s.term
	default:
		r.Fail("entry head %#x", head)
	}
	switch head & entryIndexMask {
	case 0:
	case entryIndexNext:
		s.index, s.entry.Index = index+1, &s.index
	case entryIndexGiven:
		s.index, s.entry.Index = r.Uvarint(), &s.index
	default:
		r.Fail("entry head %#x", head)
	}
}

func decodeSnapshot(r *wire.Reader) *raftpb.Snapshot {
	flags := r.Byte()
	if !validSnapshotFlags(flags) {
		r.Fail("snapshot flags %#x", flags)
		return nil
	}
	s := new(snapshotSlab)
	if flags&snapHasData != 0 {
		s.snapshot.Data = copyBytes(r.Bytes())
	}
	if flags&snapHasMetadata != 0 {
		s.snapshot.Metadata = &s.metadata
	}
	if flags&snapHasIndex != 0 {
		s.index, s.metadata.Index = r.Uvarint(), &s.index
	}
	if flags&snapHasTerm != 0 {
		s.term, s.metadata.Term = r.Uvarint(), &s.term
	}
	if flags&snapHasConfState != 0 {
		s.metadata.ConfState = &s.conf
		s.conf.Voters = decodeIDs(r)
		s.conf.Learners = decodeIDs(r)
		s.conf.VotersOutgoing = decodeIDs(r)
		s.conf.LearnersNext = decodeIDs(r)
	}
	if flags&snapHasAutoLeave != 0 {
		s.autoLeave = flags&snapAutoLeave != 0
		s.conf.AutoLeave = &s.autoLeave
	}
	return &s.snapshot
}

// validSnapshotFlags reports whether no part is there without the part that it
// belongs to.
func validSnapshotFlags(f byte) bool {
	const ofMetadata = snapHasIndex | snapHasTerm | snapHasConfState
	switch {
	case f&^snapshotBits != 0,
		f&snapHasMetadata == 0 && f&ofMetadata != 0,
		f&snapHasConfState == 0 && f&(snapHasAutoLeave|snapAutoLeave) != 0,
		f&snapHasAutoLeave == 0 && f&snapAutoLeave != 0:
		return false
	}
	return true
}

func decodeIDs(r *wire.Reader) []uint64 {
	n := r.Count(1)
	if n > maxConfIDs {
		r.Fail("%d ids in a conf state, at most %d are allowed", n, maxConfIDs)
		return nil
	}
	if n == 0 {
		return nil
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = r.Uvarint()
	}
	return ids
}
