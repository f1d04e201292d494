package storage

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
)

// Update is one change of a replica's durable state. It is durable as a whole or
// not at all. Its parts take effect in this order: Snapshot with Reset, Entries,
// Snapshot without Reset, CompactTo, HardState, Meta.
//
// The store keeps the entries in memory for a while and hands them out again, so
// nobody may modify them after the batch was filled. Everything else is read in
// Commit and not kept.
type Update struct {
	// HardState replaces the hard state. Nil: unchanged. Its commit index must
	// not be beyond the last entry.
	HardState *raftpb.HardState

	// Snapshot is the newest snapshot that this replica offers: index, term and
	// ConfState, and in Data a small manifest, not the state. Nil: unchanged.
	// Without Reset its index must be in the log, with the same term, and not
	// before that of the snapshot it replaces.
	Snapshot *raftpb.Snapshot

	// Reset replaces the whole log by Snapshot: the log is empty and begins
	// after it.
	Reset bool

	// Entries are appended at the index of the first; everything from there on
	// is dropped. They must be consecutive and leave no gap. Entries that the
	// log has compacted are ignored.
	Entries []*raftpb.Entry

	// CompactTo drops the entries up to and including it; its term stays known.
	// It must not be beyond the newest snapshot. Zero, or what is compacted
	// already: unchanged.
	CompactTo uint64

	// Meta replaces the caller's bytes. Nil: unchanged.
	Meta []byte
}

// Limits are what one batch can hold. They follow from Badger's limit for a
// transaction and are fixed while the store is open.
type Limits struct {
	// MaxBatchBytes bounds [Batch.Bytes].
	MaxBatchBytes int64

	// MaxUpdateBytes bounds [Store.UpdateBytes] of one update.
	MaxUpdateBytes int64

	// MaxEntryBytes bounds the data of one entry.
	MaxEntryBytes int64

	// MaxValueBytes bounds each of Update.Meta, Tombstone.Data and an encoded
	// snapshot.
	MaxValueBytes int64

	// MaxUpdates bounds [Batch.Len].
	MaxUpdates int
}

func limitsOf(db kv.DB) Limits {
	bytes := db.MaxTxnBytes()
	return Limits{
		MaxBatchBytes:  bytes,
		MaxUpdateBytes: bytes - recordCharge, // Create writes a record more
		MaxEntryBytes:  bytes / 2,
		MaxValueBytes:  db.MaxValueBytes() - maxPrefixSize - 64,
		MaxUpdates:     int(min(bytes/recordCharge, db.MaxTxnCount())),
	}
}

// recordCharge is what a record counts at most beside its content: key, Badger's
// overhead, checksum, prefix, head and numbers. It is also more than the part of
// Badger's transaction limit that each key is granted, so whoever keeps to the
// bytes keeps to the number of keys.
const recordCharge = logKeySize + badgerdb.EntryOverhead + maxLogRecordSize + 32

type opKind byte

const (
	opCreate opKind = iota
	opUpdate
	opDestroy
	opPurged
	opDamaged
	opForget
)

type op struct {
	kind      opKind
	group     raftyard.GroupID
	update    Update
	replica   Replica
	tombstone Tombstone
	damage    string
}

// Batch collects changes of any number of groups and commits them together: one
// transaction, one sync, all or nothing. It is not safe for concurrent use, but
// several batches may be filled, and their Commits called, at the same time.
//
// Changes of the same group take effect in the order in which they were added.
// What is wrong with one is found by Commit.
type Batch struct {
	store *Store
	ops   []op
	bytes int64
}

// NewBatch returns an empty batch.
func (s *Store) NewBatch() *Batch { return &Batch{store: s} }

// Create adds a new replica. The group must have no live replica here; a
// tombstone is replaced if it is of another incarnation or if r.ID is at least
// its NextReplica. With u.Snapshot and u.Reset the log begins after the
// snapshot, otherwise it is empty and begins at 1. r.Meta counts if u.Meta is nil.
func (b *Batch) Create(r Replica, u Update) {
	if u.Meta == nil {
		u.Meta = r.Meta
	}
	b.add(op{kind: opCreate, group: r.Group, replica: r, update: u},
		recordCharge+b.store.UpdateBytes(u))
}

// Update changes a live replica.
func (b *Batch) Update(g raftyard.GroupID, u Update) {
	b.add(op{kind: opUpdate, group: g, update: u}, b.store.UpdateBytes(u))
}

// Destroy replaces the group's replica, live or damaged, by a tombstone. Hard
// state, log, snapshot and meta are gone with the same step; the space that the
// log took is freed later, by the store. On a group that has a tombstone already
// it replaces that; on one that was never here it is [ErrNotFound].
func (b *Batch) Destroy(g raftyard.GroupID, t Tombstone) {
	// The record of the tombstone, and three deletions.
	b.add(op{kind: opDestroy, group: g, tombstone: t}, 4*recordCharge+int64(len(t.Data)))
}

// MarkDamaged notes that a live replica has lost something that it had acknowledged,
// which the store itself does not see: somebody else knows better. From then on the
// replica has a [Replica.Damage], no Log, and can only be destroyed. One that is damaged
// already, as far as this store has seen, is so durably after it. Without a live replica
// it is [ErrNotFound].
func (b *Batch) MarkDamaged(g raftyard.GroupID, reason string) {
	b.add(op{kind: opDamaged, group: g, damage: reason}, recordCharge+int64(len(reason)))
}

// MarkPurged notes in the group's tombstone that all else of the destroyed
// replica is gone too.
func (b *Batch) MarkPurged(g raftyard.GroupID) {
	var data int // of the tombstone that is there, or comes to be in this batch
	if r, ok := b.store.Replica(g); ok && r.Tombstone != nil {
		data = len(r.Tombstone.Data)
	}
	for i := range b.ops {
		if o := &b.ops[i]; o.group == g && o.kind == opDestroy {
			data = max(data, len(o.tombstone.Data))
		}
	}
	b.add(op{kind: opPurged, group: g}, recordCharge+int64(data))
}

// Forget removes the group's tombstone, so that nothing of the group is left in the
// store: the group is as if it had never been here, and any replica of it can be
// created. The caller must know by other means that none of those that were here may
// come back.
//
// It is [ErrRemains] while the log is still being deleted, or before MarkPurged; and
// [ErrInvalid] on a group that is not there or has a live replica, or together with
// other changes of the group in the batch.
func (b *Batch) Forget(g raftyard.GroupID) {
	// The deletion, and a record that tells that the batch was there.
	b.add(op{kind: opForget, group: g}, 2*recordCharge)
}

func (b *Batch) add(o op, bytes int64) {
	b.ops = append(b.ops, o)
	b.bytes += bytes
}

// Bytes returns how much of [Limits].MaxBatchBytes the batch uses up. It is an
// upper bound of what will be written.
func (b *Batch) Bytes() int64 { return b.bytes }

// Len returns how many changes the batch holds.
func (b *Batch) Len() int { return len(b.ops) }

// Reset empties the batch, so that it can be filled again.
func (b *Batch) Reset() {
	clear(b.ops)
	b.ops, b.bytes = b.ops[:0], 0
}

// Commit makes the batch durable, whole, with one transaction and one sync, and
// then visible. Commits of several batches are made one at a time. An empty
// batch costs nothing.
//
// Errors: [ErrFailed] means that the outcome is unknown and the store is out of
// service. [ErrClosed]. All others were found before anything was written.
func (b *Batch) Commit() error { return b.store.commit(b) }

// UpdateBytes returns how much u counts in a batch, at most.
func (s *Store) UpdateBytes(u Update) int64 {
	n := int64(recordCharge)
	var size int64
	for _, e := range u.Entries {
		size += int64(len(e.GetData())) + maxEntryOverhead
	}
	// Two records that follow each other are together longer than the limit, and
	// so are two parts of one.
	n += size + (2*size/s.recordLimit+2)*recordCharge
	if u.Snapshot != nil {
		n += recordCharge + int64(maxSnapshotSize(u.Snapshot))
	}
	if u.Meta != nil {
		n += recordCharge + int64(len(u.Meta))
	}
	return n
}
