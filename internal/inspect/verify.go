package inspect

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
)

// A Report is what [Dir.Verify] has found.
type Report struct {
	Dir     string          `json:"dir"`
	Node    raftyard.NodeID `json:"node"`
	Cluster string          `json:"cluster"`
	Store   string          `json:"store"`
	Boot    uint64          `json:"boot"`

	Sound    bool      `json:"sound"` // nothing is damaged
	Findings []Finding `json:"findings"`

	// What was read.
	Groups     int    `json:"groups"`
	Tombstones int    `json:"tombstones"`
	Entries    uint64 `json:"entries"`
	Items      uint64 `json:"items"` // of key-value groups
}

// A Finding is one thing that is not as it should be.
type Finding struct {
	Damage bool              `json:"damage"` // otherwise nothing is lost
	Path   string            `json:"path"`   // below the directory
	Group  *raftyard.GroupID `json:"group,omitempty"`
	What   string            `json:"what"`
	Do     string            `json:"do"` // what is to be done
}

// What is to be done.
const (
	doNothing  = "nothing, the next start deals with it"
	doStore    = "restore what is damaged, or empty the directory: the node rejoins by itself"
	doReplica  = "start the node: the group's leader replaces this replica"
	doReplicas = "start the node: the groups' leaders replace its replicas"
	doState    = "start the node: it takes the state from another member of the group"
	doStray    = "nothing; nobody misses it once the node has run for a while without it"
)

// Verify reads everything in the directory and tells all that is wrong. Logs are read once,
// whatever was asked before.
func (d *Dir) Verify() (Report, error) {
	id := d.logs.Identity
	v := &verifier{dir: d, report: Report{
		Dir: d.path, Node: id.Node, Boot: id.Boot, Findings: []Finding{},
	}}
	if id.Format != 0 {
		v.report.Cluster, v.report.Store = id.Cluster.String(), id.Store.String()
	}
	v.entries()
	v.store()
	v.stateStore()
	if d.logs.Whole() {
		for _, r := range d.logs.Replicas() {
			v.replica(&r)
		}
		v.owners()
	}
	if err := v.names(); err != nil {
		return v.report, err
	}
	v.report.Sound = !slices.ContainsFunc(v.report.Findings, func(f Finding) bool {
		return f.Damage
	})
	slices.SortStableFunc(v.report.Findings, func(a, b Finding) int {
		return cmp.Or(compareBool(b.Damage, a.Damage), cmp.Compare(a.Path, b.Path))
	})
	return v.report, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// verifier is a Verify that is under way.
type verifier struct {
	dir    *Dir
	report Report
}

func (v *verifier) damage(path, do, format string, args ...any) {
	v.add(Finding{Damage: true, Path: path, Do: do, What: fmt.Sprintf(format, args...)})
}

func (v *verifier) note(path, do, format string, args ...any) {
	v.add(Finding{Path: path, Do: do, What: fmt.Sprintf(format, args...)})
}

func (v *verifier) group(g raftyard.GroupID, path, do string, err error) {
	v.add(Finding{Damage: true, Path: path, Group: &g, Do: do, What: err.Error()})
}

// add takes in a finding, in one line.
func (v *verifier) add(f Finding) {
	f.What = strings.Join(strings.Fields(f.What), " ")
	v.report.Findings = append(v.report.Findings, f)
}

// store takes over what the log store has found.
func (v *verifier) store() {
	for _, f := range v.dir.logs.Findings {
		switch f.Scope {
		case storage.ScopeNothing:
			v.note(f.Path, doNothing, "%s", f.What)
		case storage.ScopeReplica:
			v.add(Finding{Damage: true, Path: f.Path, Group: &f.Group, Do: doReplica, What: f.What})
		case storage.ScopeReplicas:
			v.damage(f.Path, doReplicas, "%s", f.What)
		case storage.ScopeStore:
			v.damage(f.Path, doStore, "%s", f.What)
		}
	}
}

// stateStore tells what is wrong with the state store as a whole.
func (v *verifier) stateStore() {
	d := v.dir
	for _, f := range d.stateFound {
		path := filepath.Join(stateName, f.File)
		if f.Harmless {
			v.note(path, doNothing, "%s", f.What)
			continue
		}
		v.damage(path, doState, "%s", f.What)
	}
	if d.stateErr != nil {
		v.damage(stateName, doState, "%v", d.stateErr)
	}
	if d.states == nil || d.stateErr != nil {
		return
	}
	damaged, left, err := d.states.Check()
	if err != nil {
		damaged = append(damaged, err.Error())
	}
	for _, what := range damaged {
		v.damage(stateName, doState, "%s", what)
	}
	for _, what := range left {
		v.note(stateName, doNothing, "there is %s", what)
	}
}

// replica checks what belongs to one replica outside of the log store.
func (v *verifier) replica(r *storage.Replica) {
	if t := r.Tombstone; t != nil {
		v.report.Tombstones++
		if _, err := node.DecodeTombstone(t); err != nil {
			v.group(r.Group, "log", doNothing, err)
		}
		return
	}
	v.report.Groups++
	if r.Damage != nil {
		return // told already
	}
	first, last := v.dir.logs.Log(r.Group).Bounds()
	v.report.Entries += last + 1 - first
	if err := v.dir.odd[r.Group]; err != nil {
		v.group(r.Group, "log", doReplica, err)
	}
	rec, err := node.DecodeReplicaRecord(r.Meta)
	if err != nil {
		v.group(r.Group, "log", doReplica, err)
		return
	}
	if err := v.checkRecord(r, &rec); err != nil {
		v.group(r.Group, "log", doReplica, err)
	}
	v.files(r, &rec)
	v.state(r, &rec)
}

// checkRecord compares what is beside the log with the log and the directory.
func (v *verifier) checkRecord(r *storage.Replica, rec *node.ReplicaRecord) error {
	d := rec.State.Descriptor
	if rec.State.IsZero() {
		return nil // it has not heard anything yet
	}
	if d.Group != r.Group || d.Incarnation != r.Incarnation {
		return fmt.Errorf("the descriptor is of group %d, incarnation %v, not of %v",
			d.Group, d.Incarnation, r.Incarnation)
	}
	first, last := v.dir.logs.Log(r.Group).Bounds()
	if rec.Index > last || rec.Index+1 < first {
		return fmt.Errorf("the state is noted at index %d, outside of the log (%d, %d]",
			rec.Index, first-1, last)
	}
	m, ok := d.Member(r.ID)
	id := v.dir.logs.Identity
	if ok && id.Format != 0 && m.Node != id.Node {
		return fmt.Errorf("replica %d is a member on node %d, this is node %d",
			r.ID, m.Node, id.Node)
	}
	return nil
}

// entries reads all logs that nobody has read yet, and decodes what is in them.
func (v *verifier) entries() {
	if !v.dir.logs.Whole() {
		return
	}
	for _, r := range v.dir.logs.Replicas() {
		if err := v.dir.readLog(r.Group); err != nil {
			v.group(r.Group, "log", doReplica, err)
		}
	}
}

// state checks the state of a replica.
func (v *verifier) state(r *storage.Replica, rec *node.ReplicaRecord) {
	switch {
	case r.Group == raftyard.SystemGroup:
		if _, _, err := v.dir.Registry(); err != nil {
			v.group(r.Group, v.filePath(r, rec), doState, err)
		}
	case rec.State.Descriptor.Kind != kvKind || rec.NoMachine:
	case v.dir.stateErr != nil || v.dir.stateExists && v.dir.states == nil: // told already
	default:
		m, err := v.dir.checkMachine(r, rec)
		if err == nil && m != nil {
			err = v.dir.states.Items(m, func(kv.ListItem) error { v.report.Items++; return nil })
		}
		if err != nil {
			v.group(r.Group, stateName, doState, err)
		}
	}
}

// filePath is the file that holds the state of a replica, or its directory.
func (v *verifier) filePath(r *storage.Replica, rec *node.ReplicaRecord) string {
	return filepath.Join(node.ReplicasDir(),
		node.ReplicaDir(r.Group, r.Incarnation, r.ID), rec.File.Name)
}
