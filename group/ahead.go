package group

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// aheadBytes bounds what Ahead reads of a log at once.
const aheadBytes = 1 << 20

// Ahead returns the descriptors to which membership changes lead that are in the log of
// a replica and not in its state, in their order. Each is committed, or will be, or is
// replaced by what another leader has logged: nobody can tell from this log alone. from
// is an index up to which the state is certainly that of the log; a lower one only means
// to read more.
//
// They matter to whoever wants to know, of a replica that is no more, what it may have
// vouched for: the group may have gone on with any of them.
func Ahead(log raft.Storage, state State, from uint64) ([]Descriptor, error) {
	first, err := log.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("group: look ahead: %w", err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("group: look ahead: %w", err)
	}
	var ahead []Descriptor
	d := state.Descriptor
	for lo := max(first, state.Index+1, from+1); lo <= last; {
		entries, err := log.Entries(lo, last+1, aheadBytes)
		if err != nil {
			return nil, fmt.Errorf("group: look ahead: %w", err)
		}
		for _, e := range entries {
			if e.GetType() != raftpb.EntryConfChangeV2 {
				continue
			}
			if next, err := d.validChange(e); err == nil {
				d = next
				ahead = append(ahead, d)
			}
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("group: look ahead: no entry at %d of %d", lo, last)
		}
		lo = entries[len(entries)-1].GetIndex() + 1
	}
	return ahead, nil
}
