package kv

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

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
