package kv

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// TestFullLayersWait: commands that come faster than they are written do not pile up.
func TestFullLayersWait(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	value := strings.Repeat("v", MaxValueBytes)
	var most int64
	var machines []*Machine
	for g := range raftyard.GroupID(8) {
		machines = append(machines, openMachine(t, s, testReplica(g+1)))
	}
	for i := range uint64(6) {
		for _, m := range machines {
			var batch []group.Command
			for j := range 4 {
				batch = append(batch, group.Command{
					Index: i + 1, Offset: j, Data: put(fmt.Sprint("key", j), value),
				})
			}
			if _, err := m.Apply(batch); err != nil {
				t.Fatal(err)
			}
			most = max(most, s.Stats().Unwritten)
		}
	}
	if limit := int64(maxUnwritten + maxWriteSetBytes + MaxCommandBytes); most > limit {
		t.Errorf("%d bytes were not written, want at most %d", most, limit)
	}
	for _, m := range machines {
		verify(t, m)
	}
}

// TestAdmittedCommandsCount: many machines that begin at one moment do not go beyond the bound
// together.
func TestAdmittedCommandsCount(t *testing.T) {
	const machines = 32
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	value := strings.Repeat("v", MaxValueBytes/2)
	var wg sync.WaitGroup
	s.generations.mu.Lock() // which holds them up after they were admitted
	for g := range raftyard.GroupID(machines) {
		m := openMachine(t, s, testReplica(g+1))
		wg.Go(func() {
			batch := make([]group.Command, 6)
			for i := range batch {
				batch[i] = group.Command{
					Index: 1, Offset: i, Data: put(fmt.Sprint("key", i), value),
				}
			}
			if _, err := m.Apply(batch); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all have begun", func() bool {
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return s.gate.inside == machines
	})
	s.generations.mu.Unlock()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var most int64
	for applied := false; !applied; {
		select {
		case <-done:
			applied = true
		case <-s.flusher.wake:
		}
		most = max(most, s.Stats().Unwritten)
		batch, _ := s.flusher.next()
		s.flusher.wrote(batch, s.flusher.write(batch))
	}
	if limit := int64(maxUnwritten + maxWriteSetBytes + MaxCommandBytes); most > limit {
		t.Errorf("%d bytes were not written, want at most %d", most, limit)
	}
}

// TestOverwrittenKeysAreWrittenOnce: what changes again and again between two flushes is one
// record.
func TestOverwrittenKeysAreWrittenOnce(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	m := openMachine(t, s, testReplica(1))
	for i := range uint64(1000) {
		apply(t, m, 3*i+1, put("hot", strings.Repeat("v", 1000)), put("gone", "v"), del("gone"))
	}
	batch, _ := s.flusher.next()
	set := batch[0].layer.writes(m.replica)
	if len(set.writes) > 3 || set.bytes > 4<<10 {
		t.Errorf("%d records with %d bytes are written", len(set.writes), set.bytes)
	}
	if batch[0].layer.bytes > 4<<10 {
		t.Errorf("the layer counts %d bytes", batch[0].layer.bytes)
	}
	if err := s.flusher.write(batch); err != nil {
		t.Fatal(err)
	}
	s.flusher.wrote(batch, nil)
	verify(t, m)
}

// TestWaitingForAdmissionIsQuiet: commands that wait for others to be done, while nothing is to be
// written, do not have the flusher look again and again.
func TestWaitingForAdmissionIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := newFlusher(nil, nil), new(behind)
		if err := f.admit(b, 1, 1, maxUnwritten); err != nil {
			t.Fatal(err)
		}
		admitted := make(chan error, 1)
		go func() { admitted <- f.admit(b, 1, 1, 1) }()
		synctest.Wait()
		if len(f.wake) > 0 {
			t.Error("the flusher is woken for nothing")
		}
		f.next() // as if somebody else had woken it
		synctest.Wait()
		if len(f.wake) > 0 {
			t.Error("the flusher is woken by itself")
		}
		f.leave(maxUnwritten)
		if err := <-admitted; err != nil {
			t.Error(err)
		}
	})
}
