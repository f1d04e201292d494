package inspect

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
)

// Kind returns the kind of a group of which there is a live replica here.
func (d *Dir) Kind(g raftyard.GroupID) (string, error) {
	_, rec, err := d.live(g)
	if g == raftyard.SystemGroup && err == nil {
		return "", nil
	}
	return rec.State.Descriptor.Kind, err
}

// A KVState is the state of a key-value group here, beside its items.
type KVState struct {
	Applied  uint64
	Revision uint64
	Items    uint64
	Bytes    uint64
	Hash     []byte
}

// KV calls fn with every item of a key-value group, by key, until fn returns an error,
// which it returns; the group must be of that kind. All items are checked against what is
// noted of them together. What fn gets may be used until it returns.
func (d *Dir) KV(g raftyard.GroupID, fn func(kv.ListItem) error) (KVState, error) {
	r, rec, err := d.live(g)
	if err != nil {
		return KVState{}, err
	}
	if kind := rec.State.Descriptor.Kind; kind != kvKind {
		return KVState{}, fmt.Errorf("group %d is of kind %q, only the state of %q can be shown",
			g, kind, kvKind)
	}
	m, err := d.checkMachine(&r, &rec)
	if err != nil || m == nil {
		return KVState{Applied: rec.Index}, err
	}
	state := KVState{
		Applied: max(m.Applied, rec.Index), Revision: m.Revision, Items: m.Items,
		Bytes: m.Bytes, Hash: m.Hash,
	}
	return state, d.states.Items(m, fn)
}

// checkMachine compares the state of a replica with its log. The result is nil if nothing
// was ever applied.
func (d *Dir) checkMachine(
	r *storage.Replica, rec *node.ReplicaRecord,
) (*kv.ReplicaImage, error) {
	if d.stateExists && d.states == nil || d.stateErr != nil {
		return nil, fmt.Errorf("the state store is %w", ErrUnreadable)
	}
	m := d.machine(r)
	applied := uint64(0)
	if m != nil {
		if m.Damage != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreadable, m.Damage)
		}
		applied = m.Applied
	}
	// While a state is being restored, and where it is in a file, the record is not of the
	// state machine.
	if applied < rec.Machine && rec.Installing == nil && rec.File.Name == "" {
		return nil, fmt.Errorf("%w: it is at index %d, but had reached %d: it has lost state",
			ErrUnreadable, applied, rec.Machine)
	}
	if _, last := d.logs.Log(r.Group).Bounds(); applied > last && rec.Installing == nil {
		return nil, fmt.Errorf("%w: it is at index %d, which the log does not reach: that ends"+
			" at %d", ErrUnreadable, applied, last)
	}
	return m, nil
}

// Registry returns the registry as of the newest entry that this node has noted as
// committed, and that entry's index.
func (d *Dir) Registry() (*registry.Registry, uint64, error) {
	r, rec, err := d.live(raftyard.SystemGroup)
	if err != nil {
		return nil, 0, err
	}
	reg := registry.New(nil, nil)
	at := rec.File
	if rec.Installing != nil {
		at = *rec.Installing
	}
	if at.Name != "" {
		if err = restore(reg, at, d.replicaDir(&r)); err != nil {
			return nil, 0, fmt.Errorf("%w: %s: %w", ErrUnreadable, at.Name, err)
		}
	}
	if rec.Installing != nil {
		return reg, at.Index, nil // the log is that before it
	}
	commit := max(d.logs.Log(r.Group).HardState().GetCommit(), at.Index)
	err = d.logs.Entries(r.Group, at.Index+1, commit, func(e *raftpb.Entry) error {
		commands, derr := group.DecodeEntry(e)
		if derr != nil || len(commands) == 0 {
			return derr
		}
		_, derr = reg.Apply(commands)
		return derr
	})
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return reg, commit, nil
}

func restore(reg *registry.Registry, f node.StateFile, dir string) (err error) {
	src, err := f.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return reg.Restore(src)
}
