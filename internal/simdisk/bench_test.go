package simdisk_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/simdisk"
	"github.com/raftyard/raftyard/storage"
)

func openStore(b *testing.B, d *simdisk.Disk) *storage.Store {
	b.Helper()
	s, err := storage.OpenOn(
		storage.Options{Dir: "/node", Cluster: uuid.UUID{1}, Node: 1},
		storage.Backing{
			Files: d.Files(), OpenDB: d.OpenDB, UUID: func() uuid.UUID { return uuid.UUID{2} },
			Until: func(func() bool) {},
		})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func fill(b *testing.B, s *storage.Store, groups, entries uint64) {
	b.Helper()
	batch := s.NewBatch()
	for g := range raftyard.GroupID(groups) {
		batch.Create(storage.Replica{
			Group: g, ID: 1, Incarnation: raftyard.Incarnation{1},
		}, storage.Update{Meta: make([]byte, 100)})
	}
	for i := range entries {
		for g := range raftyard.GroupID(groups) {
			batch.Update(g, one(i+1))
		}
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		batch.Reset()
	}
}

func one(index uint64) storage.Update {
	return storage.Update{Entries: []*raftpb.Entry{
		{Index: new(index), Term: new(uint64(1)), Data: make([]byte, 64)},
	}}
}

// BenchmarkCrashAndOpen is what a simulated node pays to come back: 8 groups of 50
// records.
func BenchmarkCrashAndOpen(b *testing.B) {
	d := simdisk.New(rand.New(rand.NewPCG(1, 1)).Uint64)
	s := openStore(b, d)
	fill(b, s, 8, 50)
	for b.Loop() {
		d.Crash()
		if n := len(openStore(b, d).Replicas()); n != 8 {
			b.Fatal(n)
		}
	}
}

// BenchmarkCommit is one record through the store.
func BenchmarkCommit(b *testing.B) {
	d := simdisk.New(rand.New(rand.NewPCG(1, 1)).Uint64)
	s := openStore(b, d)
	fill(b, s, 8, 50)
	batch := s.NewBatch()
	b.ReportAllocs()
	index := uint64(51)
	for b.Loop() {
		batch.Reset()
		u := one(index)
		if index%100 == 0 {
			u.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Index: new(index - 1), Term: new(uint64(1)),
				ConfState: &raftpb.ConfState{Voters: []uint64{1}},
			}}
			u.CompactTo = index - 20
		}
		batch.Update(1, u)
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		index++
	}
}
