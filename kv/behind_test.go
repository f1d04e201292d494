package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// byHand gives a store a flusher whose steps are the test's.
func byHand(tb testing.TB, s *Store) {
	tb.Helper()
	s.flusher.stop()
	s.flusher = newFlusher(s.committer, s.written)
	tb.Cleanup(s.flusher.start) // Close stops it
}

// flushSteps are the steps of a flush, each of which may come between any two others.
type flushSteps struct {
	*machineTest

	batch   []flush
	written bool
}

// Take begins a flush: what is on top is to be written.
func (f *flushSteps) Take(t *rapid.T) {
	if f.batch != nil {
		t.Skip("a flush is under way")
	}
	f.batch, _ = f.store.flusher.next()
}

// Write has the database show what the lower layer still has, too.
func (f *flushSteps) Write(t *rapid.T) {
	if f.batch == nil || f.written {
		t.Skip("there is nothing to be written")
	}
	if err := f.store.flusher.write(f.batch); err != nil {
		t.Fatal(err)
	}
	f.written = true
}

// Done lets go of the lower layer.
func (f *flushSteps) Done(t *rapid.T) {
	if !f.written {
		t.Skip("nothing is written")
	}
	f.store.flusher.wrote(f.batch, nil)
	f.batch, f.written = nil, false
}

// all ends a flush that is under way, and makes another one.
func (f *flushSteps) all(t *rapid.T) {
	for range 2 {
		if f.batch == nil {
			f.Take(t)
		}
		if f.batch != nil && !f.written {
			f.Write(t)
		}
		if f.written {
			f.Done(t)
		}
	}
}

// after is a step that waits for all to be written.
func (f *flushSteps) after(step func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		f.all(t)
		step(t)
	}
}

// Recover opens the store of a machine that was killed: it has what was written, and the log
// has the rest.
func (f *flushSteps) Recover(t *rapid.T) {
	found := f.stored(t)
	upTo := f.model.position
	if !upTo.covers(found.position.index, found.position.offset) {
		t.Fatalf("stored is %+v, applied was %+v only", found.position, upTo)
	}
	if found.position == upTo && found.content != f.model.content() {
		t.Fatalf("at %+v another content is stored", upTo)
	}
}

// stored returns the state that the database has.
func (f *flushSteps) stored(t *rapid.T) (s machineState) {
	err := view(f.store.db, func(at badgerdb.Reader) (err error) {
		s, err = loadMachine(at, f.replica)
		return errors.Join(err, checkGeneration(at, f.replica, s))
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFlushAgainstModel: whatever of a state is in the database, and whatever is not yet, it
// reads as what was applied. A machine that is closed and opened again meanwhile goes on.
func TestFlushAgainstModel(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	mt := &machineTest{tb: t, store: s}
	g := raftyard.GroupID(0)
	rapid.Check(t, func(rt *rapid.T) {
		g++
		mt.replica = testReplica(g)
		mt.machine, mt.model = openMachine(t, s, mt.replica), newModel()
		mt.streams, mt.restores = nil, nil
		f := &flushSteps{machineTest: mt}
		rt.Repeat(map[string]func(*rapid.T){
			"Apply":         mt.Apply,
			"ApplyMore":     mt.Apply,
			"Take":          f.Take,
			"Write":         f.Write,
			"Done":          f.Done,
			"Recover":       f.Recover,
			"List":          mt.List,
			"Snapshot":      mt.Snapshot,
			"OpenSnapshot":  mt.OpenSnapshot,
			"WriteSnapshot": mt.WriteSnapshot,
			"Reopen":        mt.Reopen,
			"Restore":       f.after(mt.Restore),
			"Recreate":      f.after(mt.Recreate),
			"":              mt.check,
		})
		mt.closeSnapshot()
		f.all(rt)
		if !mt.machine.behind.isWritten() || f.stored(rt).content != mt.model.content() {
			rt.Fatal("the database does not have all of it")
		}
		if n := len(s.left); n > 0 {
			rt.Fatalf("%d closed machines are remembered", n)
		}
		if err := mt.machine.Destroy(); err != nil {
			rt.Fatal(err)
		}
		waitCleaned(t, s)
	})
}

// TestTakenWhileApplied: a flush takes what commands have begun from, before they are done. What
// they delete was not in the database then, and will be.
func TestTakenWhileApplied(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, put("goes", "1"), put("stays", "1"))
	p, view, err := m.behind.begin()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Discard()
	if _, err := p.execute(del("goes")); err != nil {
		t.Fatal(err)
	}
	batch, _ := s.flusher.next()
	m.behind.add(p)
	m.setStateLocked(p.state)
	for range 2 {
		if err := s.flusher.write(batch); err != nil {
			t.Fatal(err)
		}
		s.flusher.wrote(batch, nil)
		batch, _ = s.flusher.next()
	}
	verify(t, m)
	if got := dump(t, m); len(got) != 1 || got["stays"] != "1" {
		t.Errorf("left is %v", got)
	}
}

// TestAppliedIsDurable: the database has an index when it is named, and what was applied since
// need not be there.
func TestAppliedIsDurable(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	m := openMachine(t, s, testReplica(1))
	stored := func() (index uint64) {
		err := s.db.Read(func(at badgerdb.Reader) error {
			state, err := loadMachine(at, m.replica)
			index = state.position.applied()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return index
	}
	apply(t, m, 1, put("a", "1"), put("b", "1"))
	if n := stored(); n != 0 || s.Stats().Unwritten == 0 {
		t.Errorf("index %d is stored, %d bytes are not", n, s.Stats().Unwritten)
	}
	go func() { // what a flusher does when it is woken
		<-s.flusher.wake
		batch, _ := s.flusher.next()
		s.flusher.wrote(batch, s.flusher.write(batch))
	}()
	if n, err := m.Applied(); err != nil || n != 2 || stored() != 2 {
		t.Errorf("Applied = %d, %v; index %d is stored", n, err, stored())
	}
	if n := s.Stats().Unwritten; n != 0 {
		t.Errorf("%d bytes are not written", n)
	}
}

// TestValuesAreTheCallers: whoever changes what he was given changes nothing else.
func TestValuesAreTheCallers(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, put("key", "value"))
	for range 2 {
		v, err := m.Get([]byte("key"))
		if err != nil || string(v.Data) != "value" {
			t.Fatalf("Get = %q, %v", v.Data, err)
		}
		clear(v.Data)
		l, err := m.List(ListRequest{})
		if err != nil || len(l.Items) != 1 || string(l.Items[0].Data) != "value" {
			t.Fatalf("List = %+v, %v", l, err)
		}
		clear(l.Items[0].Data)
	}
	verify(t, m)
}

// TestReplicasWhileOneIsOpened: a state of which nothing is written yet is there, also while its
// machine is opened again.
func TestReplicasWhileOneIsOpened(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	byHand(t, s)
	m := openMachine(t, s, testReplica(1))
	apply(t, m, 1, put("key", "value"))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	b, ok := s.register(m.replica)
	if !ok {
		t.Fatal("it is open")
	}
	replicas, err := s.Replicas()
	if err != nil || len(replicas) != 1 {
		t.Errorf("Replicas = %v, %v", replicas, err)
	}
	s.unregister(m.replica, b)
	if m = openMachine(t, s, m.replica); m.Revision() != 1 {
		t.Errorf("it is at revision %d", m.Revision())
	}
}

// TestCloseFlushes: a store that is closed leaves nothing out, also of machines that were
// closed before.
func TestCloseFlushes(t *testing.T) {
	dir := t.TempDir()
	s := openTestStore(t, dir)
	closed, open := openMachine(t, s, testReplica(1)), openMachine(t, s, testReplica(2))
	apply(t, closed, 1, put("a", "1"))
	apply(t, open, 1, put("a", "2"))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	replicas, err := s.Replicas()
	if err != nil || len(replicas) != 2 {
		t.Errorf("replicas %v, %v", replicas, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTestStore(t, dir)
	for g := range raftyard.GroupID(2) {
		m := openMachine(t, s, testReplica(g+1))
		if got := dump(t, m); got["a"] != fmt.Sprint(g+1) {
			t.Errorf("machine %d has %v", g+1, got)
		}
		verify(t, m)
	}
}

// TestReadsBesideFlushes: gets never go back, and a list is of one moment, while what they see
// moves from layer to layer and into the database.
func TestReadsBesideFlushes(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	const flushes = 30
	number := func(v []byte) uint64 { return binary.BigEndian.Uint64(v) }
	encoded := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	both := func(n uint64) []byte {
		return encodeTxn(Txn{Then: []Op{
			{Kind: OpPut, Key: []byte("first"), Value: encoded(n)},
			{Kind: OpDelete, Key: fmt.Appendf(nil, "gone-%d", n-1)},
			{Kind: OpPut, Key: fmt.Appendf(nil, "gone-%d", n), Value: encoded(n)},
			{Kind: OpPut, Key: []byte("last"), Value: encoded(n)},
		}})
	}
	apply(t, m, 1, both(1))
	var applied atomic.Uint64
	applied.Store(1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	beside := func(fn func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					fn()
					runtime.Gosched()
				}
			}
		})
	}
	beside(s.flusher.hurry)
	for _, key := range []string{"first", "last"} {
		beside(func() {
			least := applied.Load()
			v, err := m.Get([]byte(key))
			if err != nil || number(v.Data) < least {
				t.Errorf("%s = %x, %v after %d was applied", key, v.Data, err, least)
			}
		})
	}
	beside(func() {
		l, err := m.List(ListRequest{})
		if err != nil || len(l.Items) != 3 {
			t.Errorf("list of %d items: %v", len(l.Items), err)
			return
		}
		n := number(l.Items[0].Data)
		for _, i := range l.Items {
			if number(i.Data) != n || i.Revision != n || l.Revision != n {
				t.Errorf("%s is of %d in a list of %d", i.Key, number(i.Data), n)
			}
		}
	})
	beside(func() {
		var stream bytes.Buffer
		snap, err := m.Snapshot()
		if err == nil {
			_, err = snap.WriteTo(&stream)
			err = errors.Join(err, snap.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	for n := uint64(2); s.Stats().Transactions < flushes; n++ {
		apply(t, m, n, both(n))
		applied.Store(n)
		for range 20 { // a flush may begin and end meanwhile
			if v, err := m.Get([]byte("last")); err != nil || number(v.Data) != n {
				t.Errorf("last = %x, %v after %d was applied", v.Data, err, n)
			}
		}
	}
	close(stop)
	wg.Wait()
}

// TestListsAmongManyChanges: pages of a list have all keys in order, whether they are stored,
// changed, deleted or new, in whichever layer.
func TestListsAmongManyChanges(t *testing.T) {
	const keys = 1000
	s := openTestStore(t, t.TempDir())
	m := openMachine(t, s, testReplica(1))
	index := uint64(1)
	want := make(map[string]string)
	change := func(step int, value string) {
		for i := 0; i < keys; i += step {
			key := fmt.Sprintf("key-%04d", i)
			cmd := put(key, value)
			if want[key] = value; value == "" {
				cmd = del(key)
				delete(want, key)
			}
			apply(t, m, index, cmd)
			index++
		}
	}
	change(2, "stored")
	flushAll(t, s)
	byHand(t, s)
	change(3, "below")
	change(7, "")
	s.flusher.next()
	change(5, "above")
	change(11, "")
	var last []byte
	got := make(map[string]string)
	for q := (ListRequest{Limit: 7}); ; {
		l, err := m.List(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range l.Items {
			if bytes.Compare(last, i.Key) >= 0 {
				t.Errorf("%s comes after %s", i.Key, last)
			}
			last, got[string(i.Key)] = i.Key, string(i.Data)
		}
		if q.Start = l.Next; q.Start == nil {
			break
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d items are listed, want %d", len(got), len(want))
	}
	verify(t, m)
}

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
