package group

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// pastEnd is a log that does not say what has been cut off since it was opened: the bug
// of mutant.TruncatePast. Nothing else makes one.
type pastEnd struct {
	raft.Storage

	first, term uint64 // when it was opened
}

// FirstIndex implements raft.Storage.
func (p pastEnd) FirstIndex() (uint64, error) { return p.first, nil }

// Term implements raft.Storage.
func (p pastEnd) Term(index uint64) (uint64, error) {
	term, err := p.Storage.Term(index)
	if errors.Is(err, raft.ErrCompacted) {
		return p.term, nil
	}
	return term, err
}

// Entries implements raft.Storage.
func (p pastEnd) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	first, err := p.Storage.FirstIndex()
	if err != nil {
		return nil, err
	}
	return p.Storage.Entries(min(max(lo, first), hi), hi, maxSize)
}
