package group

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// The log of every group begins at this position. It holds no entry: its state is
// the descriptor with which the group was founded, so that nothing is ever
// replayed to found a group, and two nodes that found it from the same descriptor
// have the same group.
const (
	genesisIndex = 1
	genesisTerm  = 1
)

// Genesis returns the snapshot and hard state with which a new group's first
// members start. The state machine is empty at that point. d must be valid.
func Genesis(d Descriptor) (*raftpb.Snapshot, *raftpb.HardState) {
	m := Manifest{State: State{Descriptor: d, Index: genesisIndex}, Empty: true}
	hs := &raftpb.HardState{
		Term: new(uint64(genesisTerm)), Vote: new(uint64(0)), Commit: new(uint64(genesisIndex)),
	}
	return NewSnapshot(genesisIndex, genesisTerm, m), hs
}

// NewSnapshot returns the snapshot that a replica offers for a log position: term
// is the term of the entry at index, and m.State what the group was at index or
// later. See [Apply] for where both come from.
func NewSnapshot(index, term uint64, m Manifest) *raftpb.Snapshot {
	return &raftpb.Snapshot{
		Data: m.Encode(),
		Metadata: &raftpb.SnapshotMetadata{
			ConfState: m.State.Descriptor.ConfState(),
			Index:     new(index),
			Term:      new(term),
		},
	}
}

// FinishInstall returns the write that completes an [Install] which was cut off
// by a crash between the state machine's Restore and the Save: hs is the hard
// state on disk, snap the Snapshot of the Install, which the driver has kept in a
// place of its own. Nothing was acknowledged yet, so beginning again is as good,
// except that a state machine which restored itself cannot go back.
func FinishInstall(hs *raftpb.HardState, snap *raftpb.Snapshot) (*Save, error) {
	m, err := checkSnapshot(snap)
	if err != nil {
		return nil, err
	}
	index, term := snap.GetMetadata().GetIndex(), snap.GetMetadata().GetTerm()
	next := &raftpb.HardState{Term: new(hs.GetTerm()), Vote: new(hs.GetVote()), Commit: new(index)}
	if hs.GetTerm() < term {
		next.Term, next.Vote = new(term), new(uint64(0))
	}
	if hs.GetCommit() >= index {
		return nil, fmt.Errorf("%w: snapshot of index %d, but %d is committed",
			ErrInvalid, index, hs.GetCommit())
	}
	return &Save{HardState: next, Snapshot: snap, Reset: true, State: &m.State}, nil
}

// checkSnapshot returns the manifest of a snapshot that raft can be trusted with.
func checkSnapshot(snap *raftpb.Snapshot) (Manifest, error) {
	meta := snap.GetMetadata()
	if meta.GetIndex() == 0 || meta.GetTerm() == 0 {
		return Manifest{}, fmt.Errorf("%w snapshot: index %d, term %d",
			ErrInvalid, meta.GetIndex(), meta.GetTerm())
	}
	m, err := DecodeManifest(snap.GetData())
	if err != nil {
		return Manifest{}, err
	}
	if meta.GetConfState() == nil {
		return Manifest{}, fmt.Errorf("%w snapshot: no configuration", ErrInvalid)
	}
	if err := m.State.Descriptor.ConfState().Equivalent(meta.GetConfState()); err != nil {
		return Manifest{}, fmt.Errorf("%w snapshot: %w", ErrInvalid, err)
	}
	return m, nil
}
