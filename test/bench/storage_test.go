package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/test/internal/device"
)

const (
	payload = 128 // bytes in an entry
	// header is what an append file needs beside each entry to find it again: a
	// checksum, a length, group, index, term.
	header = 32
)

// An appendFile is the least that a log store can do: one write and one sync for a batch,
// into a file that has its blocks.
type appendFile struct {
	f      *os.File
	at     int64
	record []byte
	buf    []byte
}

const fileSize = 64 << 20

func newAppendFile(b *testing.B) *appendFile {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "append"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := f.Write(make([]byte, fileSize)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return &appendFile{f: f, record: bytes.Repeat([]byte{1}, header+payload)}
}

// commit appends so many entries, and makes them durable.
func (a *appendFile) commit(entries int) error {
	a.buf = a.buf[:0]
	for range entries {
		a.buf = append(a.buf, a.record...)
	}
	if a.at+int64(len(a.buf)) > fileSize {
		a.at = 0
	}
	if _, err := a.f.WriteAt(a.buf, a.at); err != nil {
		return err
	}
	a.at += int64(len(a.buf))
	return device.SyncData(a.f)
}

// A logStore is a store with groups whose logs grow, and are cut as a node would.
type logStore struct {
	s     *storage.Store
	batch *storage.Batch
	last  []uint64 // index, by group
	data  []byte
}

const (
	snapshotEvery = 200
	trailing      = 100
)

func newLogStore(b *testing.B, groups int) *logStore {
	b.Helper()
	s, err := storage.Open(storage.Options{Dir: b.TempDir(), Cluster: uuid.UUID{1}, Node: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	l := &logStore{
		s: s, batch: s.NewBatch(), last: make([]uint64, groups),
		data: bytes.Repeat([]byte{1}, payload),
	}
	for g := range groups {
		l.batch.Create(storage.Replica{
			Group: raftyard.GroupID(g + 1), Incarnation: raftyard.Incarnation{1}, ID: 1,
		}, storage.Update{})
		if l.batch.Len() == 1000 || g == groups-1 {
			if err := l.batch.Commit(); err != nil {
				b.Fatal(err)
			}
			l.batch.Reset()
		}
	}
	return l
}

// add puts entries of a group into the next commit.
func (l *logStore) add(group, entries int) {
	before := l.last[group]
	last := before + uint64(entries)
	u := storage.Update{HardState: &raftpb.HardState{
		Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(before),
	}}
	for index := before + 1; index <= last; index++ {
		u.Entries = append(u.Entries, &raftpb.Entry{
			Index: new(index), Term: new(uint64(1)), Data: l.data,
		})
	}
	if last/snapshotEvery > before/snapshotEvery {
		u.CompactTo = max(last, trailing) - trailing
		u.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(last), Term: new(uint64(1)),
			ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}}
	}
	l.last[group] = last
	l.batch.Update(raftyard.GroupID(group+1), u)
}

func (l *logStore) commit() error {
	err := l.batch.Commit()
	l.batch.Reset()
	return err
}

// together has n committers commit so many times each. Whatever waits goes into one commit,
// made by one goroutine, as in a node.
func together(n, times int, commit func(who []int) error) error {
	waiting := make(chan int, n)
	done := make([]chan error, n)
	errs := make([]error, n)
	var committers sync.WaitGroup
	for i := range n {
		done[i] = make(chan error, 1)
		committers.Go(func() {
			for range times {
				waiting <- i
				if errs[i] = <-done[i]; errs[i] != nil {
					return
				}
			}
		})
	}
	go func() {
		committers.Wait()
		close(waiting)
	}()
	var batch []int
	for first := range waiting {
		batch = append(batch[:0], first)
		for range len(waiting) {
			batch = append(batch, <-waiting)
		}
		err := commit(batch)
		for _, i := range batch {
			done[i] <- err
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkStorageCommit measures commits of one entry by as many committers, each for a
// group of its own, against an append file with the same batches. What the store costs beside
// the sync must fall as more of them share one.
func BenchmarkStorageCommit(b *testing.B) {
	for _, n := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("committers=%d", n), func(b *testing.B) {
			store, file := newLogStore(b, n), newAppendFile(b)
			const times = 50
			versus(b, "commits",
				&side{turn: func() (int, error) {
					return n * times, together(n, times, func(who []int) error {
						for _, g := range who {
							store.add(g, 1)
						}
						return store.commit()
					})
				}},
				&side{turn: func() (int, error) {
					return n * times, together(n, times, func(who []int) error {
						return file.commit(len(who))
					})
				}},
			)
		})
	}
}

// BenchmarkStorageSustained measures one commit after the other with entries of all of 100
// groups, whose logs are cut, against the append file. Bytes that the disk has taken for each
// byte of payload contain what the store moves in the background, and what other processes
// write.
func BenchmarkStorageSustained(b *testing.B) {
	const (
		groups = 100
		each   = 4
		times  = 20
	)
	store, file := newLogStore(b, groups), newAppendFile(b)
	dir := b.TempDir()
	from, err := device.Taken(dir)
	if err != nil {
		b.Fatal(err)
	}
	ours := &side{turn: func() (int, error) {
		for range times {
			for g := range groups {
				store.add(g, each)
			}
			if failed := store.commit(); failed != nil {
				return 0, failed
			}
		}
		return times * groups * each, nil
	}}
	baseline := &side{turn: func() (int, error) {
		for range times {
			if failed := file.commit(groups * each); failed != nil {
				return 0, failed
			}
		}
		return times * groups * each, nil
	}}
	versus(b, "entries", ours, baseline)
	to, err := device.Taken(dir)
	if err != nil {
		b.Fatal(err)
	}
	if to > from {
		own := float64(to-from) - float64(baseline.ops*(header+payload))
		b.ReportMetric(own/float64(ours.ops*payload), "written/payload")
	}
}
