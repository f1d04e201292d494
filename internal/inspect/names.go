package inspect

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
)

// files checks the files of a replica's directory.
func (v *verifier) files(r *storage.Replica, rec *node.ReplicaRecord) {
	dir := v.dir.replicaDir(r)
	below := filepath.Join(node.ReplicasDir(), filepath.Base(dir))
	want := []node.StateFile{rec.File}
	if rec.Installing != nil {
		want = append(want, *rec.Installing)
	}
	named := make(map[string]bool)
	for _, f := range want {
		if f.Name == "" {
			continue
		}
		named[f.Name] = true
		// The registry's is read as a whole, see state.
		if err := readAll(f, dir); err != nil && r.Group != raftyard.SystemGroup {
			v.group(r.Group, filepath.Join(below, f.Name), doState, err)
		}
	}
	names, err := readNames(dir)
	if err != nil {
		v.group(r.Group, below, doReplica, err)
	}
	for _, name := range names {
		if !named[name] {
			v.note(filepath.Join(below, name), doNothing, "is not needed any more")
		}
	}
}

func readAll(f node.StateFile, dir string) (err error) {
	src, err := f.Open(dir)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, src)
	return errors.Join(err, src.Close())
}

// owners looks for states and directories of replicas that there are not.
func (v *verifier) owners() {
	dirs := make(map[string]bool)
	live := make(map[kv.Replica]bool)
	going := make(map[raftyard.GroupID]bool) // what is left is being deleted
	for _, r := range v.dir.logs.Replicas() {
		if r.Tombstone == nil {
			live[kv.Replica{Group: r.Group, Incarnation: r.Incarnation, ID: r.ID}] = true
			dirs[node.ReplicaDir(r.Group, r.Incarnation, r.ID)] = true
			continue
		}
		going[r.Group] = !r.Tombstone.Purged
	}
	for i := range v.dir.machines {
		if r := v.dir.machines[i].Replica; !live[r] {
			v.note(stateName, doFor(going[r.Group]), "there is the state of %v, which is gone", r)
		}
	}
	names, err := readNames(filepath.Join(v.dir.path, node.ReplicasDir()))
	if err != nil {
		v.damage(node.ReplicasDir(), doStore, "%v", err)
	}
	for _, name := range names {
		path := filepath.Join(node.ReplicasDir(), name)
		switch {
		case dirs[name]:
		case node.IsNote(name):
			v.noteFile(path)
		default:
			v.note(path, doStray, "belongs to no replica")
		}
	}
}

func doFor(going bool) string {
	if going {
		return doNothing
	}
	return doStray
}

// noteFile checks a note of what a destroyed replica has left.
func (v *verifier) noteFile(path string) {
	b, err := os.ReadFile(filepath.Join(v.dir.path, path))
	if err == nil {
		err = node.CheckNote(b)
	}
	if err != nil {
		v.note(path, doStray, "%v", err)
		return
	}
	v.note(path, doNothing, "says what is still to be deleted of a replica that is gone")
}

// names looks for what is none of a node's in the directory.
func (v *verifier) names() error {
	names, err := readNames(v.dir.path)
	if err != nil {
		return err
	}
	aside := kv.AsideDir(stateName)
	known := slices.Concat(storage.Files(), node.Files(), []string{stateName, aside})
	for _, name := range names {
		if !slices.Contains(known, name) {
			v.note(name, "nothing; a node does not look at it", "is none of a node's files")
		}
		if name == aside {
			v.note(name, "delete it when no group has a problem", "was damaged and is set aside")
		}
		if strings.HasSuffix(name, ".new") && slices.Contains(known, name) {
			v.note(name, doNothing, "was to replace another file when the node was stopped")
		}
	}
	return nil
}

// readNames returns the names in a directory, none if it is not there.
func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}
