package check

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
)

// snapshotter is a log that offers a snapshot.
type snapshotter interface {
	Snapshot() (*raftpb.Snapshot, error)
}

// checkBounds looks at the indexes of a replica.
//
// Rule 12, [Bounds]: snapshot <= applied <= commit <= last, the log begins no later
// than after the snapshot, and a snapshot is what was committed at its index.
func (c *Checker) checkBounds(s *replicaState, r *Replica, now sight) {
	for _, v := range []struct {
		what         string
		lesser, more uint64
	}{
		{"the state machine is at %[2]d, only %[3]d was handed to it", r.Applied, r.HandedTo},
		{"%[2]d was handed to the state machine, only %[3]d is committed", r.HandedTo, r.Commit},
		{"%[2]d is committed, the log ends at %[3]d", r.Commit, r.Last},
		{"the log begins at %[2]d, only %[3]d (less one) is committed", r.First, r.Commit + 1},
	} {
		if v.lesser > v.more {
			c.fail(Bounds, "%[1]v: "+v.what, s, v.lesser, v.more)
		}
	}
	if s.log == nil {
		return
	}
	if hs := hardStateOf(s.log); hs.term > r.Term || hs.commit > now.durableLast {
		c.fail(Bounds, "%v is in term %d with a log up to %d, durable are term %d and commit %d",
			s, r.Term, now.durableLast, hs.term, hs.commit)
	}
	if now.durableFirst == s.seen.durableFirst {
		return
	}
	log, ok := s.log.(snapshotter)
	if !ok {
		return
	}
	snap, err := log.Snapshot()
	if errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		if now.durableFirst > 1 {
			c.fail(Bounds, "%v has a log that begins at %d, and no snapshot", s, now.durableFirst)
		}
		return
	}
	if err != nil {
		c.fail(Bounds, "%v has a snapshot that cannot be read: %v", s, err)
		return
	}
	index := snap.GetMetadata().GetIndex()
	if index+1 < now.durableFirst || index > r.Commit {
		c.fail(Bounds, "%v has a snapshot of index %d, a log from %d on, and %d committed",
			s, index, now.durableFirst, r.Commit)
	}
	c.checkSnapshot(s, snap, "keeps a snapshot")
}

// checkSnapshot looks whether a snapshot is what was committed at its index.
//
// Rules 12, [Bounds], and 8, [Membership]: term and members are those of the index;
// the members may be later ones if the snapshot says so.
func (c *Checker) checkSnapshot(s *replicaState, snap *raftpb.Snapshot, how string) {
	meta := snap.GetMetadata()
	index := meta.GetIndex()
	if term, known := s.group.committed.at(index); known && term != meta.GetTerm() {
		c.fail(Bounds, "%v %s of index %d in term %d, it was committed in term %d",
			s, how, index, meta.GetTerm(), term)
	}
	m, err := group.DecodeManifest(snap.GetData())
	if err != nil {
		c.fail(Bounds, "%v %s of index %d, whose manifest cannot be read: %v", s, how, index, err)
		return
	}
	c.noteChange(s, m.State, how+" with")
	if m.State.Descriptor.ConfState().Equivalent(meta.GetConfState()) != nil {
		c.fail(Membership, "%v %s of index %d with another configuration than %s",
			s, how, index, describe(m.State.Descriptor))
	}
	if newest, ok := s.group.changeAt(index); ok && newest.index > m.State.Index {
		c.fail(Membership, "%v %s of index %d with the members of index %d instead of %d",
			s, how, index, m.State.Index, newest.index)
	}
}
