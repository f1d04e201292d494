package storage

import (
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// Replica is what the store knows of a group's replica on this node.
type Replica struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation

	// ID is the replica's id, or that of the destroyed replica if Tombstone is set.
	ID raftyard.ReplicaID

	// Meta is whatever the caller keeps with the replica. It must not be modified. That of
	// a damaged replica may be an older one, or missing.
	Meta []byte

	// Tombstone is set when the replica was destroyed.
	Tombstone *Tombstone

	// Damage is set, and wraps [ErrDamaged], when what was durable of this
	// replica cannot be trusted. It has no Log; it can only be destroyed. What the store
	// has found itself it finds again at each start; see [Batch.MarkDamaged] for the rest.
	Damage error

	// Forgotten is set, with Damage, when the group had been forgotten here, see
	// [Batch.Forget], and what is there has come back with a disk that has lost its newest
	// batches. It is to be destroyed.
	Forgotten bool
}

// isOf reports whether both are of the same replica, live or destroyed.
func (r *Replica) isOf(o *Replica) bool {
	return r.ID == o.ID && r.Incarnation == o.Incarnation
}

// Tombstone is what outlives a destroyed replica.
type Tombstone struct {
	// NextReplica is the lowest replica id that may be created here again under
	// the same incarnation.
	NextReplica raftyard.ReplicaID

	Epoch uint64

	// Data is whatever the caller keeps with the tombstone.
	Data []byte

	// Purged says that everything else that belonged to the replica, outside
	// this store, is gone too. See [Batch.MarkPurged].
	Purged bool
}

// replicaState is the first byte of a replica record after the prefix.
type replicaState byte

const (
	stateLive      replicaState = 1
	stateTombstone replicaState = 2
	stateDamaged   replicaState = 3 // live, but known to have lost something
)

// replicaRecord is the value of a kindReplica key. Records of the group with a
// lower seq belong to a replica before this one.
type replicaRecord struct {
	prefix

	state     replicaState
	tombstone Tombstone // stateTombstone
	damage    string    // stateDamaged
}

func (rr *replicaRecord) append(b []byte) []byte {
	b = rr.prefix.append(b)
	b = append(b, byte(rr.state))
	switch rr.state {
	case stateTombstone:
		b = wire.AppendUvarint(b, uint64(rr.tombstone.NextReplica))
		b = wire.AppendUvarint(b, rr.tombstone.Epoch)
		b = wire.AppendBool(b, rr.tombstone.Purged)
		b = wire.AppendBytes(b, rr.tombstone.Data)
	case stateDamaged:
		b = wire.AppendString(b, rr.damage)
	case stateLive:
	}
	return b
}

func readReplicaRecord(key, record []byte) (replicaRecord, error) {
	r, err := openRecord(key, record)
	if err != nil {
		return replicaRecord{}, err
	}
	rr := replicaRecord{prefix: readPrefix(r), state: replicaState(r.Byte())}
	switch rr.state {
	case stateLive:
	case stateDamaged:
		rr.damage = r.String()
	case stateTombstone:
		rr.tombstone.NextReplica = raftyard.ReplicaID(r.Uvarint())
		rr.tombstone.Epoch = r.Uvarint()
		rr.tombstone.Purged = r.Bool()
		rr.tombstone.Data = slices.Clone(r.Bytes())
	default:
		r.Fail("replica state %d is unknown", rr.state)
	}
	return rr, r.Close()
}

// replica is the committer's view of one group. The committer alone changes it;
// info and log are changed under Store.mu, for those who look.
type replica struct {
	info Replica
	log  *Log // nil unless live and undamaged

	seq         uint64 // of the newest record
	metaSeq     uint64
	snapshotSeq uint64
	slots       slots
}

func (r *replica) live() bool { return r.info.Tombstone == nil }

// clone returns the replica's description for the caller to keep.
func (r *replica) clone() Replica {
	info := r.info
	if info.Tombstone != nil {
		info.Tombstone = new(*info.Tombstone)
	}
	return info
}

// admits reports why a replica with the given incarnation and id may not be
// created where r is.
func (t *Tombstone) admits(old, created Replica) error {
	if created.Incarnation == old.Incarnation && created.ID < t.NextReplica {
		return fmt.Errorf("%w: group %d: replica %d, the lowest that may come is %d",
			ErrDestroyed, created.Group, created.ID, t.NextReplica)
	}
	return nil
}
