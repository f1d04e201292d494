package storage

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// appendOne appends entry i to the log of a group.
func appendOne(t *testing.T, s *Store, g raftyard.GroupID, i uint64) {
	t.Helper()
	mustCommit(t, s, func(b *Batch) {
		e := &raftpb.Entry{Index: new(i), Term: new(uint64(1)), Data: fmt.Append(nil, i)}
		b.Update(g, Update{Entries: []*raftpb.Entry{e}})
	})
}

// checkEntries reads the entries [lo, hi) that appendOne has appended.
func checkEntries(l *Log, lo, hi uint64) error {
	entries, err := l.Entries(lo, hi, 1<<40)
	if err != nil {
		return err
	}
	if uint64(len(entries)) != hi-lo {
		return fmt.Errorf("%d entries, want %d", len(entries), hi-lo)
	}
	for n, e := range entries {
		i := lo + uint64(n)
		if e.GetIndex() != i || string(e.GetData()) != fmt.Sprint(i) {
			return fmt.Errorf("entry %d is %v", i, e)
		}
	}
	return nil
}

// TestALogThatRestsKeepsNothingInMemory has a log rest: it says the same, from the disk, and
// what is appended later is in memory again.
func TestALogThatRestsKeepsNothingInMemory(t *testing.T) {
	s := mustOpen(t, testOptions(t.TempDir()))
	defer mustClose(t, s)
	for g := range raftyard.GroupID(2) {
		mustCommit(t, s, func(b *Batch) { b.Create(testReplica(g+1), Update{}) })
		for i := range uint64(5) {
			appendOne(t, s, g+1, i+1)
		}
	}
	l, other := s.Log(1), s.Stats().CacheBytes/2
	l.Rest()
	if used := s.Stats().CacheBytes; used != other {
		t.Errorf("the cache holds %d bytes, want %d of the other log", used, other)
	}
	if spare := cap(l.refs) - len(l.refs); spare != 0 {
		t.Errorf("there is room for %d more records", spare)
	}
	if err := checkEntries(l, 1, 6); err != nil {
		t.Error(err)
	}
	if got := s.Stats(); got.CacheMisses != 1 || got.RecordsRead != 5 {
		t.Errorf("%d misses, %d records read, want 1 and 5", got.CacheMisses, got.RecordsRead)
	}
	appendOne(t, s, 1, 6)
	if err := errors.Join(checkEntries(l, 6, 7), checkEntries(l, 3, 7)); err != nil {
		t.Error(err)
	}
	if got := s.Stats(); got.CacheHits != 1 || got.RecordsRead != 8 {
		t.Errorf("%d hits, %d records read, want 1 and 8", got.CacheHits, got.RecordsRead)
	}
	l.Rest()
	l.Rest()
	if err := checkEntries(s.Log(2), 1, 6); err != nil {
		t.Error(err)
	}
}

// TestLogsRestBesideEverythingElse has logs rest while they are written, cut off, read, and
// dropped from a cache that is too small for them.
func TestLogsRestBesideEverythingElse(t *testing.T) {
	o := testOptions(t.TempDir())
	o.CacheBytes = 10 * entryCharge
	s := mustOpen(t, o)
	defer mustClose(t, s)
	const groups = 4
	for g := range raftyard.GroupID(groups) {
		mustCommit(t, s, func(b *Batch) { b.Create(testReplica(g), Update{}) })
		appendOne(t, s, g, 1)
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	for g := range raftyard.GroupID(groups) {
		l := s.Log(g)
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				l.Rest()
				first, last := l.Bounds()
				err := checkEntries(l, max(first, last-min(last, 5)), last+1)
				if err != nil && !errors.Is(err, raft.ErrCompacted) {
					t.Errorf("group %d: %v", g, err)
					return
				}
			}
		})
	}
	for i := uint64(2); i <= 60; i++ {
		for g := range raftyard.GroupID(groups) {
			appendOne(t, s, g, i)
		}
		if i%20 == 0 {
			mustCommit(t, s, func(b *Batch) {
				b.Update(1, Update{Snapshot: snapshotAt(i-5, 1), CompactTo: i - 5})
			})
		}
	}
	close(done)
	others.Wait()
	for g := range raftyard.GroupID(groups) {
		s.Log(g).Rest()
	}
	if used := s.Stats().CacheBytes; used != 0 || s.cache.first() != nil {
		t.Errorf("the cache holds %d bytes of nothing, %v", used, s.cache.first())
	}
}
