package node

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/storage"
)

// What follows reads what a node has written into its data directory, for whoever looks
// at the directory of a node that does not run. docs/formats/node.md has the formats.

// A ReplicaRecord is what a node keeps beside the log of a replica.
type ReplicaRecord struct {
	State group.State

	// Index is how far the state machine is known to be, durably, though a state machine
	// that keeps its own state may say Machine, which is the last command's index.
	Index   uint64
	Machine uint64

	// File holds the state at Index, of a state machine that keeps none itself. Its name is
	// empty if the state is empty there, or kept elsewhere.
	File StateFile

	// Installing: the state machine was being restored from this file when the node
	// stopped; the next start goes on.
	Installing *StateFile

	// NoMachine: no state machine was ever opened for the replica.
	NoMachine bool
}

// A StateFile is a file in a replica's directory that holds a state.
type StateFile struct {
	Name  string // empty: the state is empty
	Index uint64 // of the state

	check fileCheck
}

// Open opens the file for reading. To read it to its end is an error if it is not what
// was written.
func (f StateFile) Open(replicaDir string) (io.ReadCloser, error) {
	return openSnapshotFile(vfs.OS{}, filepath.Join(replicaDir, f.Name), f.check)
}

// DecodeReplicaRecord reads the [storage.Replica.Meta] of a replica.
func DecodeReplicaRecord(b []byte) (ReplicaRecord, error) {
	m, err := decodeMeta(b)
	if err != nil {
		return ReplicaRecord{}, err
	}
	fl := m.Floor
	r := ReplicaRecord{
		State: m.State, Index: fl.Index, Machine: fl.Machine, NoMachine: m.NoMachine,
		File: StateFile{Name: fl.File, Index: fl.Index, check: fl.Check},
	}
	if in := m.Install; in != nil {
		r.Installing = &StateFile{Name: in.File, Index: in.Index, check: in.Check}
	}
	return r, nil
}

// A TombstoneRecord is what a node knew last of a destroyed replica.
type TombstoneRecord struct {
	Kind        string
	Epoch       uint64
	NextReplica raftyard.ReplicaID
	Members     []group.Member
	Deleted     bool // the whole group is
}

// DecodeTombstone reads the data of a tombstone.
func DecodeTombstone(t *storage.Tombstone) (TombstoneRecord, error) {
	d, err := remainsIn(t)
	return TombstoneRecord{
		Kind: d.Kind, Epoch: d.Epoch, NextReplica: d.NextReplica, Members: d.Members,
		Deleted: d.Deleted,
	}, err
}

// CheckNote reads a note of what a destroyed replica has left.
func CheckNote(b []byte) error {
	_, err := decodeLeftover(b)
	return err
}

// Files returns the names in a data directory that the node itself owns, beside those of
// the log store.
func Files() []string { return []string{replicasName, probeName} }

// ReplicasDir is the name of the directory, in a data directory, that holds the
// directories of replicas.
func ReplicasDir() string { return replicasName }

// IsNote reports whether a name there is that of a note of what a destroyed replica has
// left.
func IsNote(name string) bool { return strings.HasSuffix(name, noteSuffix) }

// ReplicaDir is the name of a replica's directory there.
func ReplicaDir(
	g raftyard.GroupID, incarnation raftyard.Incarnation, id raftyard.ReplicaID,
) string {
	return strconv.FormatUint(uint64(g), 10) + "-" + incarnation.String()[:8] +
		"-" + strconv.FormatUint(uint64(id), 10)
}
