package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

// byHand gives a store a flusher whose steps are the test's.
func byHand(tb testing.TB, s *Store) {
	tb.Helper()
	s.flusher.stop()
	s.flusher = newFlusher(s.committer, s.written)
	tb.Cleanup(s.flusher.start) // Close stops it
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
