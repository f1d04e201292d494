package node

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// saveWrites appends the writes that make s durable. It is one, unless s holds
// more entries than fit into one: then a prefix comes first, with the term and
// vote that it needs, and the step goes on when the last part is durable. A crash
// in between leaves a shorter log that nobody has been told of.
func (r *replica) saveWrites(ws []write, s *group.Save, chunk int64) []write {
	entries := s.Entries
	if s.SkipAt > r.meta.SkipAt { // it must be known before the entries are there
		r.meta.SkipAt = s.SkipAt
		ws = append(ws, write{group: r.group, done: func(error) {}, update: r.metaUpdate()})
	}
	for {
		n := prefix(entries, chunk)
		if n == len(entries) {
			break
		}
		hs := s.HardState
		if hs == nil {
			st := r.raft.Status()
			hs = &raftpb.HardState{
				Term: new(st.Term), Vote: new(uint64(st.Vote)), Commit: new(st.Commit),
			}
		}
		last := entries[n-1].GetIndex()
		ws = append(ws, write{group: r.group, done: func(error) {}, update: storage.Update{
			Entries: entries[:n],
			HardState: &raftpb.HardState{
				Term: new(hs.GetTerm()), Vote: new(hs.GetVote()),
				Commit: new(min(hs.GetCommit(), last)),
			},
		}})
		entries = entries[n:]
	}
	u := storage.Update{HardState: s.HardState, Entries: entries}
	if s.State != nil {
		r.meta.State = *s.State
		u.Meta = r.meta.encode()
	}
	return append(ws, write{group: r.group, update: u, saved: r})
}

// prefix returns how many entries, at least one, stay within a size.
func prefix(entries []*raftpb.Entry, size int64) int {
	for i, e := range entries {
		size -= int64(len(e.GetData())) + entryOverhead
		if size < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

// entryOverhead is a bound of what an entry takes in a record beside its data.
const entryOverhead = 32

// entriesSize bounds what entries take.
func entriesSize(es []*raftpb.Entry) (size int) {
	for _, e := range es {
		size += len(e.GetData()) + entryOverhead
	}
	return size
}
