// Package inspect looks at the data directory of a node that does not run, and changes
// nothing in it.
//
//	d, err := inspect.Open(dir)
//	report, err := d.Verify()
//	...
//	err = d.Close()
//
// It works after a kill too: what the next start would replay it reads as it is. It needs
// no permission to write, and refuses a directory that a node uses ([ErrInUse]). While it
// looks, no node starts on the directory.
package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
)

var (
	// ErrInUse is the error of a directory that a node uses. The text says which process.
	ErrInUse = errors.New("in use")

	// ErrNoDirectory is the error of a directory that is none of a node.
	ErrNoDirectory = errors.New("no data directory of a node")

	// ErrUnreadable is the error of a question that the directory cannot answer, because
	// what it takes is damaged. [Dir.Verify] says what.
	ErrUnreadable = errors.New("damaged")

	// ErrNotFound is the error of a question about a group that has no such replica here.
	ErrNotFound = errors.New("not found")
)

// stateName is where the daemon keeps the state of all key-value groups.
const stateName = "state"

// kvKind is the kind of those groups.
const kvKind = "kv"

// A Dir is a data directory that is looked at. It is for one goroutine.
type Dir struct {
	path string
	logs *storage.Inspection

	states      *kv.StoreImage // nil: there is none, or it is damaged
	stateFound  []kv.Finding
	stateErr    error // why it cannot be read, beside what was found
	stateExists bool
	odd         map[raftyard.GroupID]error // the first entry of a log that makes no sense
	machines    []kv.ReplicaImage
	machineOf   map[kv.Replica]*kv.ReplicaImage
}

// Open begins to look at a data directory. What is damaged is not an error but for
// [Dir.Verify] to tell.
func Open(dir string) (*Dir, error) {
	d := &Dir{path: dir, odd: make(map[raftyard.GroupID]error)}
	var err error
	d.logs, err = storage.Inspect(dir)
	switch {
	case errors.Is(err, storage.ErrLocked):
		return nil, fmt.Errorf("%s is %w by %s: stop the node first", dir, ErrInUse, holder(err))
	case errors.Is(err, storage.ErrNoStore):
		return nil, fmt.Errorf("%s: %w", dir, ErrNoDirectory)
	case err != nil:
		return nil, err
	}
	if err := d.openStates(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// holder returns who has a lock.
func holder(err error) string {
	if held, ok := errors.AsType[*vfs.LockedError](err); ok {
		return held.Holder
	}
	return "another process"
}

// openStates reads the store with the states of key-value groups, if there is one.
func (d *Dir) openStates() error {
	path := filepath.Join(d.path, stateName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d.stateExists = true
	var err error
	d.states, d.stateFound, err = kv.OpenImage(path)
	switch {
	case errors.Is(err, kv.ErrLocked):
		return fmt.Errorf("%s is %w: %w", path, ErrInUse, err)
	case err != nil:
		d.stateErr = err
	case d.states != nil:
		d.machines, d.stateErr = d.states.Replicas()
	}
	d.machineOf = make(map[kv.Replica]*kv.ReplicaImage, len(d.machines))
	for i := range d.machines {
		d.machineOf[d.machines[i].Replica] = &d.machines[i]
	}
	return nil
}

// Close ends the looking.
func (d *Dir) Close() error {
	var errs []error
	if d.states != nil {
		errs = append(errs, d.states.Close())
	}
	return errors.Join(append(errs, d.logs.Close())...)
}

// Identity returns whose directory it is. It is zero if that cannot be read.
func (d *Dir) Identity() storage.Identity { return d.logs.Identity }

// machine returns what the state store holds of a replica; nil: nothing.
func (d *Dir) machine(r *storage.Replica) *kv.ReplicaImage {
	return d.machineOf[kv.Replica{Group: r.Group, Incarnation: r.Incarnation, ID: r.ID}]
}

// readLog reads a whole log, once, so that it is known what is wrong with it, and with what
// its entries say, whoever asks first.
func (d *Dir) readLog(g raftyard.GroupID) error {
	return d.logs.ReadLog(g, func(e *raftpb.Entry) error {
		if err := checkEntry(e); err != nil && d.odd[g] == nil {
			d.odd[g] = fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
		return nil
	})
}

// checkEntry reports an entry that no replica can apply.
func checkEntry(e *raftpb.Entry) error {
	if _, _, err := group.DecodeChange(e); err != nil {
		return err
	}
	_, err := group.DecodeEntry(e)
	return err
}

// live returns the live replica of a group, and what is kept beside its log.
func (d *Dir) live(g raftyard.GroupID) (storage.Replica, node.ReplicaRecord, error) {
	if !d.logs.Whole() {
		return storage.Replica{}, node.ReplicaRecord{}, fmt.Errorf("the logs are %w", ErrUnreadable)
	}
	if err := d.readLog(g); err != nil {
		return storage.Replica{}, node.ReplicaRecord{}, err
	}
	for _, r := range d.logs.Replicas() {
		switch {
		case r.Group != g:
		case r.Tombstone != nil:
			return r, node.ReplicaRecord{}, fmt.Errorf("group %d: its replica here is gone,"+
				" there is a tombstone: %w", g, ErrNotFound)
		case r.Damage != nil:
			return r, node.ReplicaRecord{},
				fmt.Errorf("group %d: %w: %w", g, ErrUnreadable, r.Damage)
		default:
			rec, err := node.DecodeReplicaRecord(r.Meta)
			if err != nil {
				err = fmt.Errorf("group %d: %w: %w", g, ErrUnreadable, err)
			}
			return r, rec, err
		}
	}
	return storage.Replica{}, node.ReplicaRecord{}, fmt.Errorf("group %d: %w: there is no replica"+
		" of it here", g, ErrNotFound)
}

// replicaDir is where a replica has its own files.
func (d *Dir) replicaDir(r *storage.Replica) string {
	return filepath.Join(d.path, node.ReplicasDir(),
		node.ReplicaDir(r.Group, r.Incarnation, r.ID))
}
