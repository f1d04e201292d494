package group

import "go.etcd.io/raft/v3/raftpb"

// DecodeChange returns the descriptor that the entry of a membership change leads to. It
// reports false for an entry that is none, such as one that raft has emptied.
func DecodeChange(e *raftpb.Entry) (next Descriptor, ok bool, err error) {
	if e.GetType() == raftpb.EntryNormal || len(e.GetData()) == 0 {
		return Descriptor{}, false, nil
	}
	l, err := decodeConfChange(e)
	return l.next, true, err
}
