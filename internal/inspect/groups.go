package inspect

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
)

// The states of a replica.
const (
	Live      = "live"
	Damaged   = "damaged"
	Tombstone = "tombstone"
)

// A Group is what is here of one group.
type Group struct {
	ID          raftyard.GroupID   `json:"id"`
	Incarnation string             `json:"incarnation"`
	Replica     raftyard.ReplicaID `json:"replica"`
	State       string             `json:"state"` // Live, Damaged or Tombstone
	Kind        string             `json:"kind"`  // empty: the replica has not heard it yet

	// Of a live replica, as they were made durable last.
	Term     uint64             `json:"term"`
	Vote     raftyard.ReplicaID `json:"vote"`
	Commit   uint64             `json:"commit"`
	Start    uint64             `json:"start"` // entries up to here are cut off
	Last     uint64             `json:"last"`
	Snapshot uint64             `json:"snapshot"`
	LogBytes int64              `json:"log_bytes"`

	// Applied is how far the state machine is known to have got, durably.
	Applied uint64 `json:"applied"`

	Epoch       uint64             `json:"epoch"`
	NextReplica raftyard.ReplicaID `json:"next_replica"` // in a tombstone: the lowest that may come
	Members     []Member           `json:"members"`
	Deleted     bool               `json:"deleted,omitempty"` // a tombstone of a deleted group

	Damage string `json:"damage,omitempty"`
}

// A Member is one of a group's members, as this replica knows them.
type Member struct {
	Replica raftyard.ReplicaID `json:"replica"`
	Node    raftyard.NodeID    `json:"node"`
	Role    string             `json:"role"`
}

// Groups returns what is here of each group, by id.
func (d *Dir) Groups() ([]Group, error) {
	if !d.logs.Whole() {
		return nil, fmt.Errorf("the logs are %w", ErrUnreadable)
	}
	for _, r := range d.logs.Replicas() {
		if err := d.readLog(r.Group); err != nil {
			return nil, err
		}
	}
	replicas := d.logs.Replicas() // as it is known to be by now
	all := make([]Group, 0, len(replicas))
	for i := range replicas {
		all = append(all, d.describe(&replicas[i]))
	}
	return all, nil
}

func (d *Dir) describe(r *storage.Replica) Group {
	g := Group{
		ID: r.Group, Incarnation: r.Incarnation.String(), Replica: r.ID, State: Live,
		Members: []Member{},
	}
	switch {
	case r.Tombstone != nil:
		g.State = Tombstone
		g.buried(r.Tombstone)
	case r.Damage != nil:
		g.State, g.Damage = Damaged, r.Damage.Error()
	default:
		g.log(d.logs.Log(r.Group))
		d.record(&g, r)
	}
	return g
}

func (g *Group) buried(t *storage.Tombstone) {
	rec, err := node.DecodeTombstone(t)
	if err != nil {
		g.Damage = err.Error()
		return
	}
	g.Kind, g.Epoch, g.NextReplica = rec.Kind, rec.Epoch, rec.NextReplica
	g.Deleted = rec.Deleted
	g.members(rec.Members)
}

func (g *Group) members(members []group.Member) {
	for _, m := range members {
		g.Members = append(g.Members, Member{Replica: m.ID, Node: m.Node, Role: m.Role.String()})
	}
}

func (g *Group) log(l *storage.Log) {
	if hs := l.HardState(); hs != nil {
		g.Term, g.Commit = hs.GetTerm(), hs.GetCommit()
		g.Vote = raftyard.ReplicaID(hs.GetVote())
	}
	first, last := l.Bounds()
	g.Start, g.Last, g.LogBytes = first-1, last, l.Bytes()
	if s, err := l.Snapshot(); err == nil {
		g.Snapshot = s.GetMetadata().GetIndex()
	}
}

// record adds what the node keeps beside the log.
func (d *Dir) record(g *Group, r *storage.Replica) {
	rec, err := node.DecodeReplicaRecord(r.Meta)
	if err != nil {
		g.State, g.Damage = Damaged, err.Error()
		return
	}
	desc := rec.State.Descriptor
	g.Kind, g.Epoch, g.NextReplica = desc.Kind, desc.Epoch, desc.NextReplica
	g.members(desc.Members)
	g.Applied = rec.Index
	if m := d.machine(r); m != nil {
		g.Applied = max(g.Applied, m.Applied)
		if m.Damage != nil {
			g.State, g.Damage = Damaged, m.Damage.Error()
		}
	}
}
