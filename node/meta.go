package node

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/wire"
)

const metaFormat = 6

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

	// Stores are the data directories that the nodes are known with, and the latest
	// starts that this node has heard of, by node; StoresAt is the version of the
	// registry from which the directories were taken last. Only the system group's
	// replica has any; see noteStores.
	Stores   []knownStore
	StoresAt uint64

	// NoMachine: no state machine was ever opened for this replica, so there is nothing
	// of one to delete.
	NoMachine bool

	// Rebuild: the state machine is to be restored from Floor.File, whatever it has.
	Rebuild bool

	// SkipAt is the latest index at which the log has, or had, an entry that has another
	// one skipped: where a start need not look further. Skips are those that are committed,
	// of entries that the state machine had not applied by then, until the floor is beyond
	// their At. See skip.go.
	SkipAt uint64
	Skips  []group.Skip
}

// knownStore is the data directory that a node is known with, the first one that it
// was known with, and its latest start in the former.
type knownStore struct {
	Node    raftyard.NodeID
	Store   raftyard.StoreID
	First   raftyard.StoreID // zero: not known
	Boot    uint64           // zero: not known
	Process raftyard.StoreID // of that start; zero: not known
}

// A floor ties an index of the log to the state machine. Everything up to Index
// is in the state machine's durable state, though the last command in it, which
// is all that a durable state machine knows, may be older: Machine. A state
// machine that reports less than Machine has lost state.
type floor struct {
	Index   uint64
	Term    uint64
	Machine uint64
	// File is the name of the snapshot file that holds the state at Index: for a state
	// machine that is not durable, and for a replica that has none. Empty when the state
	// is empty at Index, or in a durable state machine.
	File  string
	Check fileCheck // of File
}

// installIntent says which file a state machine is being restored from.
type installIntent struct {
	Index uint64
	Term  uint64
	File  string    // in the replica's directory; empty: the state is empty
	Check fileCheck // of File
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
	b = m.Floor.Check.append(b)
	b = wire.AppendBool(b, m.Install != nil)
	if in := m.Install; in != nil {
		b = wire.AppendUvarint(b, in.Index)
		b = wire.AppendUvarint(b, in.Term)
		b = wire.AppendString(b, in.File)
		b = in.Check.append(b)
		b = wire.AppendBytes(b, in.Manifest)
	}
	b = wire.AppendUvarint(b, uint64(len(m.Stores)))
	for _, k := range m.Stores {
		b = wire.AppendUvarint(b, uint64(k.Node))
		b = wire.AppendID(b, k.Store)
		b = wire.AppendID(b, k.First)
		b = wire.AppendUvarint(b, k.Boot)
		b = wire.AppendID(b, k.Process)
	}
	b = wire.AppendUvarint(b, m.StoresAt)
	b = wire.AppendBool(b, m.NoMachine)
	b = wire.AppendBool(b, m.Rebuild)
	b = wire.AppendUvarint(b, m.SkipAt)
	b = wire.AppendUvarint(b, uint64(len(m.Skips)))
	for _, s := range m.Skips {
		b = wire.AppendUvarint(b, s.Index)
		b = wire.AppendUvarint(b, s.Term)
		b = wire.AppendUvarint(b, s.At)
	}
	return b
}

func decodeMeta(b []byte) (meta, error) {
	r := wire.NewReader(b)
	format := r.Byte()
	if r.Err() == nil && (format < 1 || format > metaFormat) {
		return meta{}, fmt.Errorf("node: replica record has format %d, want 1 to %d",
			format, metaFormat)
	}
	state := r.Bytes()
	var m meta
	m.Floor = floor{
		Index: r.Uvarint(), Term: r.Uvarint(), Machine: r.Uvarint(), File: r.String(),
		Check: readCheck(r, format > 3),
	}
	if r.Bool() {
		m.Install = &installIntent{
			Index: r.Uvarint(), Term: r.Uvarint(), File: r.String(),
			Check: readCheck(r, format > 3), Manifest: r.Bytes(),
		}
	}
	if format > 1 {
		m.Stores = readStores(r, format)
	}
	if format > 4 {
		m.StoresAt = r.Uvarint()
	}
	if format > 3 {
		m.NoMachine = r.Bool()
	}
	if format > 5 {
		m.Rebuild = r.Bool()
		m.SkipAt = r.Uvarint()
		for range r.Count(3) {
			m.Skips = append(m.Skips, group.Skip{
				Index: r.Uvarint(), Term: r.Uvarint(), At: r.Uvarint(),
			})
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

// readStores reads the directories of nodes; format 2 has no starts, format 4 no first
// directories and no processes.
func readStores(r *wire.Reader, format byte) []knownStore {
	var stores []knownStore
	for range r.Count(1 + len(raftyard.StoreID{})) {
		k := knownStore{Node: raftyard.NodeID(r.Uvarint()), Store: r.ID()}
		if format > 4 {
			k.First = r.ID()
		}
		if format > 2 {
			k.Boot = r.Uvarint()
		}
		if format > 4 {
			k.Process = r.ID()
		}
		stores = append(stores, k)
	}
	return stores
}
