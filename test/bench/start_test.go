package bench

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/storage"
)

// The live data of both stores of BenchmarkStart: so many groups with logs of so many entries,
// written in so many at a time.
const (
	startGroups  = 100
	startEntries = 1024
	startRun     = 16
)

// BenchmarkStart opens a log store that has just been made, and one with the same live data
// that has a past: five million entries that were cut off since, and twenty thousand groups
// that came, went and were forgotten. What is dead costs the reading of tables that have it,
// until they are merged: "rested" is after that. It must not cost more than that.
func BenchmarkStart(b *testing.B) {
	entries, groups := 5_000_000, 20_000
	if testing.Short() {
		entries, groups = 20_000, 200
	}
	b.Run("fresh", func(b *testing.B) { benchStart(b, 0, 0, false) })
	b.Run("past", func(b *testing.B) { benchStart(b, entries, groups, false) })
	b.Run("rested", func(b *testing.B) { benchStart(b, entries, groups, true) })
}

func benchStart(b *testing.B, past, dead int, rest bool) {
	b.Helper()
	o := storage.Options{
		Dir: b.TempDir(), Cluster: uuid.UUID{1}, Node: 1,
	}
	if err := writePast(o, past, dead); err != nil {
		b.Fatal(err)
	}
	if rest {
		db, err := badgerdb.Open(badgerdb.Options{Dir: filepath.Join(o.Dir, "log")})
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(db.Reclaim(), db.Close()); err != nil {
			b.Fatal(err)
		}
	}
	tables := int64(0)
	for b.Loop() {
		s, err := storage.Open(o)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if n := len(s.Replicas()); n != startGroups {
			b.Errorf("%d replicas are there, want %d", n, startGroups)
		}
		first, last := s.Log(1).Bounds()
		if live := last - first + 1; live > 2*startEntries || last < uint64(past/startGroups) {
			b.Errorf("a log has %d entries up to %d", live, last)
		}
		tables = s.Stats().TableBytes
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(tables)/(1<<20), "MiB")
}

// writePast makes a store: first what is dead by the end, then what is alive.
func writePast(o storage.Options, past, dead int) (err error) {
	s, err := storage.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := comeAndGo(s, dead); err != nil {
		return err
	}
	batch := s.NewBatch()
	for g := range raftyard.GroupID(startGroups) {
		batch.Create(startReplica(g+1), storage.Update{
			HardState: &raftpb.HardState{Term: new(uint64(1))},
		})
	}
	if err := batch.Commit(); err != nil {
		return err
	}
	end := uint64(past/startGroups/startRun+1)*startRun + startEntries
	for first := uint64(1); first < end; first += startRun {
		batch.Reset()
		for g := range raftyard.GroupID(startGroups) {
			batch.Update(g+1, startUpdate(first))
		}
		if err := batch.Commit(); err != nil {
			return fmt.Errorf("entries from %d: %w", first, err)
		}
	}
	return nil
}

// startUpdate appends a run of entries, and now and then cuts off all but the newest.
func startUpdate(first uint64) storage.Update {
	u := storage.Update{}
	for i := range uint64(startRun) {
		index, term := first+i, uint64(1)
		u.Entries = append(u.Entries, &raftpb.Entry{
			Index: &index, Term: &term, Data: bytes.Repeat([]byte{byte(index)}, payload),
		})
	}
	if cut := first - 1; first%(startEntries/2) == 1 && cut > startEntries {
		cut -= startEntries
		u.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &cut, Term: new(uint64(1)),
			ConfState: raftpb.EnsureConfState(&raftpb.ConfState{Voters: []uint64{1}}),
		}}
		u.CompactTo = cut
	}
	return u
}

func startReplica(g raftyard.GroupID) storage.Replica {
	return storage.Replica{Group: g, Incarnation: raftyard.Incarnation{1}, ID: 1}
}

// comeAndGo creates groups, destroys them and forgets them.
func comeAndGo(s *storage.Store, count int) error {
	const some = 100
	for first := 0; first < count; first += some {
		steps := []func(*storage.Batch, raftyard.GroupID){
			func(b *storage.Batch, g raftyard.GroupID) {
				b.Create(startReplica(g), storage.Update{
					HardState: &raftpb.HardState{Term: new(uint64(1))},
				})
				b.Update(g, storage.Update{Entries: startUpdate(1).Entries})
			},
			func(b *storage.Batch, g raftyard.GroupID) {
				b.Destroy(g, storage.Tombstone{NextReplica: 2, Epoch: 1})
			},
			func(b *storage.Batch, g raftyard.GroupID) { b.MarkPurged(g) },
			func(b *storage.Batch, g raftyard.GroupID) { b.Forget(g) },
		}
		for i, step := range steps {
			batch := s.NewBatch()
			for g := range some {
				step(batch, raftyard.GroupID(1000+first+g))
			}
			if err := commitStep(s, batch, raftyard.GroupID(1000+first)); err != nil {
				return fmt.Errorf("step %d of groups %d: %w", i, first, err)
			}
		}
	}
	return nil
}

// commitStep commits as soon as what is left of destroyed replicas is deleted.
func commitStep(s *storage.Store, batch *storage.Batch, probe raftyard.GroupID) error {
	for {
		err := batch.Commit()
		if !errors.Is(err, storage.ErrRemains) {
			return err
		}
		// A commit deletes some of it.
		more := s.NewBatch()
		more.MarkPurged(probe)
		if err := more.Commit(); err != nil {
			return err
		}
	}
}
