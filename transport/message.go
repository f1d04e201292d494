package transport

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/wire"
)

// A raft message is written without its From and To, which the envelope has.
// Every optional field has a bit that says whether it is there, so a message
// arrives exactly as it was sent. The layout is in docs/formats/transport.md.
const (
	hasTerm       = 1 << 0
	hasIndex      = 1 << 1
	hasLogTerm    = 1 << 2
	hasCommit     = 1 << 3
	hasEntries    = 1 << 4
	hasContext    = 1 << 5
	hasReject     = 1 << 6
	rejectTrue    = 1 << 7
	hasRejectHint = 1 << 8
	hasVote       = 1 << 9
	hasSnapshot   = 1 << 10
	messageBits   = 1<<11 - 1
)

// The head byte of an entry: type in bits 0 and 1, then these.
const (
	entryHasType      = 1 << 2
	entryTermSame     = 1 << 3 // as the entry before, or the message's log term
	entryTermExplicit = 2 << 3
	entryTermMask     = 3 << 3
	entryIndexNext    = 1 << 5 // one above the entry before, or the message's index
	entryIndexGiven   = 2 << 5
	entryIndexMask    = 3 << 5
	entryHasData      = 1 << 7
)

const (
	snapHasData      = 1 << 0
	snapHasMetadata  = 1 << 1
	snapHasIndex     = 1 << 2
	snapHasTerm      = 1 << 3
	snapHasConfState = 1 << 4
	snapHasAutoLeave = 1 << 5
	snapAutoLeave    = 1 << 6
	snapshotBits     = 1<<7 - 1
)

// encodable reports whether m can be written. What it refuses is no message
// between nodes.
func encodable(m *raftpb.Message) bool {
	if m.Type == nil || m.GetType() < 0 || m.GetType() > 0x7f || len(m.GetResponses()) != 0 {
		return false
	}
	for _, e := range m.GetEntries() {
		if e == nil || e.GetType() < 0 || e.GetType() > 3 {
			return false
		}
	}
	return true
}

// appendMessage appends m, which must be encodable.
func appendMessage(b []byte, m *raftpb.Message) []byte {
	flags := messageFlags(m)
	b = append(b, byte(m.GetType()))
	b = wire.AppendUvarint(b, flags)
	b = appendOptional(b, m.Term)
	b = appendOptional(b, m.Index)
	b = appendOptional(b, m.LogTerm)
	b = appendOptional(b, m.Commit)
	b = appendOptional(b, m.RejectHint)
	b = appendOptional(b, m.Vote)
	if m.Context != nil {
		b = wire.AppendBytes(b, m.GetContext())
	}
	if m.Snapshot != nil {
		b = appendSnapshot(b, m.GetSnapshot())
	}
	if len(m.GetEntries()) > 0 {
		b = appendEntries(b, m)
	}
	return b
}

func messageFlags(m *raftpb.Message) uint64 {
	var f uint64
	set := func(bit uint64, on bool) {
		if on {
			f |= bit
		}
	}
	set(hasTerm, m.Term != nil)
	set(hasIndex, m.Index != nil)
	set(hasLogTerm, m.LogTerm != nil)
	set(hasCommit, m.Commit != nil)
	set(hasEntries, len(m.GetEntries()) > 0)
	set(hasContext, m.Context != nil)
	set(hasReject, m.Reject != nil)
	set(rejectTrue, m.GetReject())
	set(hasRejectHint, m.RejectHint != nil)
	set(hasVote, m.Vote != nil)
	set(hasSnapshot, m.Snapshot != nil)
	return f
}

func appendOptional(b []byte, v *uint64) []byte {
	if v == nil {
		return b
	}
	return wire.AppendUvarint(b, *v)
}

func appendEntries(b []byte, m *raftpb.Message) []byte {
	b = wire.AppendUvarint(b, uint64(len(m.GetEntries())))
	term, index := m.GetLogTerm(), m.GetIndex()
	for _, e := range m.GetEntries() {
		head := entryHead(e, term, index)
		b = append(b, head)
		if head&entryTermMask == entryTermExplicit {
			b = wire.AppendUvarint(b, e.GetTerm())
		}
		if head&entryIndexMask == entryIndexGiven {
			b = wire.AppendUvarint(b, e.GetIndex())
		}
		if head&entryHasData != 0 {
			b = wire.AppendBytes(b, e.GetData())
		}
		term, index = e.GetTerm(), e.GetIndex()
	}
	return b
}

func entryHead(e *raftpb.Entry, term, index uint64) byte {
	head := byte(e.GetType())
	if e.Type != nil {
		head |= entryHasType
	}
	switch {
	case e.Term == nil:
	case e.GetTerm() == term:
		head |= entryTermSame
	default:
		head |= entryTermExplicit
	}
	switch {
	case e.Index == nil:
	case e.GetIndex() == index+1:
		head |= entryIndexNext
	default:
		head |= entryIndexGiven
	}
	if e.Data != nil {
		head |= entryHasData
	}
	return head
}

func appendSnapshot(b []byte, s *raftpb.Snapshot) []byte {
	meta := s.GetMetadata()
	conf := meta.GetConfState()
	b = append(b, snapshotFlags(s))
	if s.Data != nil {
		b = wire.AppendBytes(b, s.GetData())
	}
	if meta == nil {
		return b
	}
	b = appendOptional(b, meta.Index)
	b = appendOptional(b, meta.Term)
	if conf == nil {
		return b
	}
	for _, ids := range [][]uint64{
		conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext(),
	} {
		b = wire.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = wire.AppendUvarint(b, id)
		}
	}
	return b
}

func snapshotFlags(s *raftpb.Snapshot) byte {
	var f byte
	set := func(bit byte, on bool) {
		if on {
			f |= bit
		}
	}
	set(snapHasData, s.Data != nil)
	if meta := s.GetMetadata(); meta != nil {
		set(snapHasMetadata, true)
		set(snapHasIndex, meta.Index != nil)
		set(snapHasTerm, meta.Term != nil)
		if conf := meta.GetConfState(); conf != nil {
			set(snapHasConfState, true)
			set(snapHasAutoLeave, conf.AutoLeave != nil)
			set(snapAutoLeave, conf.GetAutoLeave())
		}
	}
	return f
}

// sizeMessage returns an upper bound of what appendMessage appends. It is what
// queues and frames count, so it is cheap rather than exact: it may be a few
// dozen bytes too high, and is never too low.
func sizeMessage(m *raftpb.Message) int {
	const scalars = 1 + 2 + 6*10
	n := scalars + 5 + len(m.GetContext())
	if len(m.GetEntries()) > 0 {
		n += 5
	}
	for _, e := range m.GetEntries() {
		n += 1 + 10 + 10 + 5 + len(e.GetData())
	}
	if s := m.GetSnapshot(); s != nil {
		conf := s.GetMetadata().GetConfState()
		ids := len(conf.GetVoters()) + len(conf.GetLearners()) +
			len(conf.GetVotersOutgoing()) + len(conf.GetLearnersNext())
		n += 1 + 5 + len(s.GetData()) + 20 + 4*5 + 10*ids
	}
	return n
}
