//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/storage"
)

// A Disk is what the data directory of a node holds that does not run.
type Disk struct {
	Identity storage.Identity
	// Replicas are those of the log store: live and damaged ones, and tombstones.
	Replicas []storage.Replica
	// States are the replicas of which the key-value store holds something.
	States []kv.Replica
	// Dirs are the names of the directories that replicas have for themselves.
	Dirs []string
}

// Disk opens what the node, which must not run, has on its disk, and tells what is
// there. That counts as a start of the node. Where there is no directory the answer
// is the zero value.
func (n *Node) Disk() (Disk, error) {
	d, err := readDisk(n.dir, n.id)
	if err != nil {
		return d, fmt.Errorf("disk of node %d: %w", n.id, err)
	}
	return d, nil
}

func readDisk(dir string, id raftyard.NodeID) (d Disk, err error) {
	owner, err := clusterOf(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	logs, err := storage.Open(storage.Options{Dir: dir, Cluster: owner, Node: id})
	if err != nil {
		return d, err
	}
	d.Identity, d.Replicas = logs.Identity(), logs.Replicas()
	if err = logs.Close(); err != nil {
		return d, err
	}
	if d.States, err = statesIn(filepath.Join(dir, "state")); err != nil {
		return d, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "replicas"))
	for _, e := range entries {
		d.Dirs = append(d.Dirs, e.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return d, err
}

// clusterOf reads which cluster a data directory belongs to;
// docs/formats/storage.md describes the file.
func clusterOf(dir string) (uuid.UUID, error) {
	b, err := os.ReadFile(filepath.Join(dir, "IDENTITY"))
	if err != nil {
		return uuid.UUID{}, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "cluster "); ok {
			return uuid.Parse(strings.TrimSpace(text))
		}
	}
	return uuid.UUID{}, fmt.Errorf("no cluster in %q", b)
}

// statesIn returns the replicas that a key-value store has something of.
func statesIn(dir string) ([]kv.Replica, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	states, err := kv.OpenStore(kv.StoreOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	list, err := states.Replicas()
	return list, errors.Join(err, states.Close())
}

// Live returns the group's replica on the disk; false: there is none, or it was
// destroyed.
func (d Disk) Live(g raftyard.GroupID) (storage.Replica, bool) {
	for i := range d.Replicas {
		if d.Replicas[i].Group == g && d.Replicas[i].Tombstone == nil {
			return d.Replicas[i], true
		}
	}
	return storage.Replica{}, false
}

// Purging reports whether something of a destroyed replica is still to be deleted.
func (d Disk) Purging() bool {
	for i := range d.Replicas {
		if t := d.Replicas[i].Tombstone; t != nil && !t.Purged {
			return true
		}
	}
	return false
}

// Leftovers tells what is on the disk that belongs to no live replica: states of
// state machines, and directories.
func (d Disk) Leftovers() []string {
	var left []string
	needed := make(map[string]bool)
	for i := range d.Replicas {
		if r := &d.Replicas[i]; r.Tombstone == nil {
			needed[dirName(r.Group, r.Incarnation, r.ID)] = true
		}
	}
	for _, s := range d.States {
		if name := dirName(s.Group, s.Incarnation, s.ID); !needed[name] {
			left = append(left, "state "+name)
		}
	}
	for _, name := range d.Dirs {
		if !needed[name] {
			left = append(left, "directory "+name)
		}
	}
	return left
}

// dirName is what a node names a replica's directory.
func dirName(
	g raftyard.GroupID, inc raftyard.Incarnation, id raftyard.ReplicaID,
) string {
	return fmt.Sprintf("%d-%.8s-%d", g, inc, id)
}
