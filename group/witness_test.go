package group

import (
	"errors"
	"io"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// checkWitnesses looks whether anybody calls a replica damaged that has lost nothing,
// when it compares what it is told with what it has now, and with what is on its disk.
func (m *model) checkWitnesses(*rapid.T) {
	for _, from := range m.members {
		if from.r == nil {
			continue
		}
		for _, d := range from.r.state.Descriptor.Members {
			w := from.r.Witness(d.ID)
			i := slices.IndexFunc(m.members, func(x *member) bool { return x.id == d.ID })
			if w.IsZero() || i < 0 || m.members[i] == from || m.members[i].store != d.Store {
				continue // it is told nothing, or stands in another directory
			}
			m.checkWitness(from, m.members[i], w)
		}
	}
}

func (m *model) checkWitness(from, x *member, w Witness) {
	if x.r != nil {
		if err := x.r.CheckWitness(from.id, w); err != nil {
			m.rt.Fatalf("false alarm: %v", err)
		}
	}
	// What a restart would find on its disk.
	back := *x
	err := m.tryStart(&back)
	if errors.Is(err, ErrRemoved) {
		return
	}
	m.must(err)
	if err := back.r.CheckWitness(from.id, w); err != nil {
		m.rt.Fatalf("false alarm after a restart: %v", err)
	}
}

// lossOf says what a disk has lost.
type lossOf func(t *testing.T, disk *raft.MemoryStorage) *raft.MemoryStorage

// cutTo returns a log that ends at an index, with another hard state.
func cutTo(last uint64, hs *raftpb.HardState) lossOf {
	return func(t *testing.T, disk *raft.MemoryStorage) *raft.MemoryStorage {
		t.Helper()
		snap, err := disk.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		entries, err := disk.Entries(snap.GetMetadata().GetIndex()+1, last+1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		short := raft.NewMemoryStorage()
		if err = errors.Join(
			short.ApplySnapshot(snap), short.Append(entries), short.SetHardState(hs),
		); err != nil {
			t.Fatal(err)
		}
		return short
	}
}

func hardStateFor(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

// TestWitness: a replica loses something of which its own disk shows no trace; what the
// leader remembers tells.
func TestWitness(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lost    lossOf
		damaged bool
	}{
		{"nothing", cutTo(5, hardStateFor(2, 1, 4)), false},
		{"the last entry", cutTo(4, hardStateFor(2, 1, 3)), true},
		{"the vote", cutTo(5, hardStateFor(2, 0, 4)), true},
		{"the term", cutTo(1, hardStateFor(1, 0, 1)), true},
		{"a committed entry, in a later term", cutTo(2, hardStateFor(3, 0, 2)), true},
		{"what a later leader may have cut", cutTo(4, hardStateFor(3, 0, 2)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.found(testDescriptor(voters(3)...))
			leader, x := e.member(1), e.member(2)
			e.crash(e.member(3))
			e.must(leader.r.Campaign())
			e.stabilize()
			for _, data := range []string{"a", "b"} {
				e.must(leader.r.Propose(Proposal{Data: []byte(data), Token: data}))
				e.stabilize()
			}
			e.must(leader.r.Propose(Proposal{Data: []byte("c"), Token: "c"}))
			e.stabilize()
			w := leader.r.Witness(2)
			if w.Acked.Index != 5 || w.Term != 2 || w.Voted != 2 {
				t.Fatalf("the leader remembers %+v", w)
			}
			w.Committed = Mark{4, 2} // as if the leader had not heard of the last one
			e.crash(x)
			x.log, x.list = tt.lost(t, x.log), list{}
			e.start(x)
			err := x.r.CheckWitness(1, w)
			if got := errors.Is(err, ErrDamaged); got != tt.damaged {
				t.Errorf("damaged is %v (%v), want %v", got, err, tt.damaged)
			}
		})
	}
}

// TestWitnessOfAnotherTerm: the entry at the index is there, and is an older one, which
// the lost one had replaced.
func TestWitnessOfAnotherTerm(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	e.must(e.member(1).r.Campaign())
	e.stabilize()
	x := e.member(2).r
	last := x.Position().Last
	ack := Witness{Term: 2, AckTerm: 2, Acked: Mark{last, 2}}
	if err := x.CheckWitness(1, ack); err != nil {
		t.Error(err)
	}
	ack.Acked.Term = 1
	if err := x.CheckWitness(1, ack); !errors.Is(err, ErrDamaged) {
		t.Errorf("the entry has term 2, and was acknowledged with term 1: %v", err)
	}
	ack.Acked.Term = 0
	if err := x.CheckWitness(1, ack); err != nil {
		t.Errorf("with a term that is not known: %v", err)
	}
}

// unread is a log whose terms cannot be told.
type unread struct {
	raft.Storage

	err error
}

func (u unread) Term(uint64) (uint64, error) { return 0, u.err }

// TestWitnessOfALogThatCannotBeRead: that an entry cannot be read is no sign that it is lost.
func TestWitnessOfALogThatCannotBeRead(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	e.must(e.member(1).r.Campaign())
	e.stabilize()
	x := e.member(2).r
	w := Witness{Term: 2, AckTerm: 2, Acked: Mark{x.Position().Last, 2}}
	disk := x.cfg.Storage
	defer func() { x.cfg.Storage = disk }()
	for err, lost := range map[error]bool{
		raft.ErrUnavailable: true, raft.ErrCompacted: false, io.ErrUnexpectedEOF: false,
	} {
		x.cfg.Storage = unread{disk, err}
		if got := x.CheckWitness(1, w); errors.Is(got, ErrDamaged) != lost {
			t.Errorf("%v: %v, want a loss: %t", err, got, lost)
		}
	}
}

// TestWitnessesAreBounded: members that are no more are forgotten.
func TestWitnessesAreBounded(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	r := e.member(1).r
	for id := range raftyard.ReplicaID(1000) {
		r.witnessOf(id + 1)
	}
	if n := len(r.witnesses); n > 8 {
		t.Errorf("%d are remembered", n)
	}
}

func TestWitnessFormat(t *testing.T) {
	w := Witness{1, 2, 3, Mark{4, 5}, Mark{6, 7}}
	r := wire.NewReader(w.Append(nil))
	if got := ReadWitness(r); got != w || r.Close() != nil {
		t.Errorf("%+v came back as %+v, %v", w, got, r.Close())
	}
}

// TestWitnessOfACutLog: a later leader has cut off what a former one was promised. That
// is no loss.
func TestWitnessOfACutLog(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(5)...))
	e.must(e.member(1).r.Campaign())
	e.stabilize()
	for _, data := range []string{"a", "b", "c"} {
		e.must(e.member(1).r.Propose(Proposal{Data: []byte(data), Token: data}))
		e.stabilize(1, 2)
	}
	w := e.member(1).r.Witness(2)
	e.crash(e.member(1))
	e.network = nil
	for id := 2; id <= 5; id++ {
		e.must(e.member(id).r.ForgetLeader())
	}
	e.must(e.member(3).r.Campaign())
	e.stabilize()
	x := e.member(2).r
	if term, err := x.cfg.Storage.Term(w.Acked.Index); err != nil || term == w.Acked.Term {
		t.Fatalf("%+v was promised, and the log has term %d there, %v: nothing was cut",
			w, term, err)
	}
	if err := x.CheckWitness(1, w); err != nil {
		t.Errorf("%+v was promised: %v", w, err)
	}
}
