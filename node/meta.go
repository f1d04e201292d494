package node

import (
	"fmt"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

const metaFormat = 1

// meta is what the log store keeps for the node beside a replica's log, in the
// same durable step. See docs/formats/node.md.
type meta struct {
	// State is the descriptor and the index that made it.
	State group.State

	// Floor is how far the state machine is known to be, whatever it says.
	Floor floor

	// Install is set while a received snapshot is being installed; a restart
	// finishes the installation.
	Install *installIntent
}

// A floor ties an index of the log to the state machine. Everything up to Index
// is in the state machine's durable state, though the last command in it, which
// is all that a durable state machine knows, may be older: Machine. A state
// machine that reports less than Machine has lost state.
type floor struct {
	Index   uint64
	Term    uint64
	Machine uint64
	// File is the name of the snapshot file that holds the state at Index, for a
	// state machine that is not durable; empty when it starts empty.
	File string
}

// installIntent says which file a state machine is being restored from.
type installIntent struct {
	Index uint64
	Term  uint64
	File  string // in the replica's directory; empty: the state is empty
	// Manifest is the encoded group.Manifest of the snapshot.
	Manifest []byte
}

func (m meta) encode() []byte {
	b := []byte{metaFormat}
	b = wire.AppendBytes(b, m.State.Encode())
	b = wire.AppendUvarint(b, m.Floor.Index)
	b = wire.AppendUvarint(b, m.Floor.Term)
	b = wire.AppendUvarint(b, m.Floor.Machine)
	b = wire.AppendString(b, m.Floor.File)
	b = wire.AppendBool(b, m.Install != nil)
	if in := m.Install; in != nil {
		b = wire.AppendUvarint(b, in.Index)
		b = wire.AppendUvarint(b, in.Term)
		b = wire.AppendString(b, in.File)
		b = wire.AppendBytes(b, in.Manifest)
	}
	return b
}

func decodeMeta(b []byte) (meta, error) {
	r := wire.NewReader(b)
	if f := r.Byte(); r.Err() == nil && f != metaFormat {
		return meta{}, fmt.Errorf("node: replica record has format %d, want %d", f, metaFormat)
	}
	state := r.Bytes()
	var m meta
	m.Floor = floor{Index: r.Uvarint(), Term: r.Uvarint(), Machine: r.Uvarint(), File: r.String()}
	if r.Bool() {
		m.Install = &installIntent{
			Index: r.Uvarint(), Term: r.Uvarint(), File: r.String(), Manifest: r.Bytes(),
		}
	}
	if err := r.Close(); err != nil {
		return meta{}, fmt.Errorf("node: replica record: %w", err)
	}
	var err error
	if m.State, err = group.DecodeState(state); err != nil {
		return meta{}, fmt.Errorf("node: replica record: %w", err)
	}
	return m, nil
}
