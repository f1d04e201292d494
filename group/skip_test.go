package group

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// skipping is a group of three, led by replica 1, with "a", "bad" and "b" committed, and
// the index of "bad".
func skipping(t *testing.T) (e *env, index uint64) {
	t.Helper()
	e = newEnv(t)
	e.found(testDescriptor(voters(3)...))
	e.must(e.member(1).r.Campaign())
	e.stabilize()
	for _, word := range []string{"a", "bad", "b"} {
		e.must(e.member(1).r.Propose(Proposal{Data: []byte(word), Token: word}))
		e.stabilize()
	}
	return e, e.member(1).list.applied - 1
}

// begin takes the state machine of a replica back to the beginning and starts it again.
func (e *env) begin(id int) *member {
	m := e.member(id)
	e.crash(m)
	m.list = list{applied: genesisIndex}
	e.start(m)
	return m
}

// TestSkippedEntryIsPassedOver replays a log with a skip that is known to be committed.
func TestSkippedEntryIsPassedOver(t *testing.T) {
	e, index := skipping(t)
	var outcomes []error
	e.answered = func(_ *member, token any, _ uint64, err error) {
		if token == "skip" {
			outcomes = append(outcomes, err)
		}
	}
	var decided []Skip
	e.observe = func(_ *member, out Output) {
		if out.Apply != nil {
			decided = append(decided, out.Apply.Decided...)
		}
	}
	e.must(e.member(1).r.ProposeSkip(index, "skip"))
	if err := e.member(1).r.ProposeSkip(index, "again"); !errors.Is(err, ErrInvalid) {
		t.Errorf("ProposeSkip of what waits = %v, want ErrInvalid", err) // not in the log yet
	}
	e.stabilize()
	if len(outcomes) != 1 || outcomes[0] != nil {
		t.Errorf("outcomes of the skip: %v, want success", outcomes)
	}
	want := Skip{Index: index, Term: 2, At: index + 2}
	if !slices.Equal(decided, []Skip{want, want, want}) { // at three replicas
		t.Errorf("decided %v, want three times %v", decided, want)
	}
	if err := e.member(1).r.ProposeSkip(index, "later"); !errors.Is(err, ErrInvalid) {
		t.Errorf("ProposeSkip of what is skipped = %v, want ErrInvalid", err)
	}
	for _, wrong := range []uint64{1, 2, index + 2, index + 9} {
		if err := e.member(1).r.ProposeSkip(wrong, "wrong"); !errors.Is(err, ErrInvalid) {
			t.Errorf("ProposeSkip(%d) = %v, want ErrInvalid", wrong, err)
		}
	}
	e.must(e.member(1).r.Propose(Proposal{Data: []byte("c")})) // so that disks know the commit
	e.stabilize()
	for range 2 { // the second time it knows from its disk
		m := e.begin(2)
		e.stabilize()
		if got := m.list.items; !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("replica 2 has applied %q, want a and b", got)
		}
		if !slices.Contains(m.skips, want) {
			t.Errorf("replica 2 notes %v, want %v", m.skips, want)
		}
	}
}

// TestSecondSkipSaysNothing has two entries that skip the same one, as a log may have that
// an earlier version has written. Who comes to the second one, with the state of whoever was
// between both, has not applied the entry.
func TestSecondSkipSaysNothing(t *testing.T) {
	e, index := skipping(t)
	var decided []Skip
	e.observe = func(_ *member, out Output) {
		if out.Apply != nil {
			decided = append(decided, out.Apply.Decided...)
		}
	}
	for range 2 {
		e.must(e.member(1).r.rn.Propose(encodeSkip(index, 2)))
		e.stabilize()
	}
	want := Skip{Index: index, Term: 2, At: index + 2}
	if !slices.Equal(decided, []Skip{want, want, want}) { // at three replicas
		t.Errorf("decided %v, want three times %v", decided, want)
	}
	decided = nil
	e.begin(2)
	e.stabilize()
	if !slices.Equal(decided, []Skip{want}) {
		t.Errorf("decided %v after a start, want %v", decided, want)
	}
	m := e.member(2) // from between both
	skips := slices.Clone(m.skips)
	e.crash(m)
	m.list.applied, decided = want.At, nil
	e.start(m)
	e.stabilize()
	if len(decided) != 0 || !slices.Equal(m.skips, skips) {
		t.Errorf("decided %v from between both, with %v noted, want nothing", decided, skips)
	}
}

// TestEntryIsHeldWhileItsSkipIsOpen replays a log with a skip that is not known to be
// committed: the state machine must wait for that.
func TestEntryIsHeldWhileItsSkipIsOpen(t *testing.T) {
	for _, name := range []string{"committed", "overwritten"} {
		t.Run(name, func(t *testing.T) {
			e, index := skipping(t)
			e.must(e.member(1).r.ProposeSkip(index, "skip"))
			e.stabilize(1) // nobody else has it yet
			e.network = slices.DeleteFunc(e.network, func(m *raftpb.Message) bool {
				return name == "overwritten" || m.GetTo() == 3
			})
			e.stabilize(2) // replica 2 acknowledges, which replica 1 does not hear
			at := e.member(2)
			if name == "overwritten" {
				at = e.member(1)
			}
			e.crash(at)
			at.list = list{applied: genesisIndex}
			e.start(at)
			var stop *Stop
			e.observe = func(m *member, out Output) {
				if m == at && out.Apply != nil && out.Apply.Stop != nil && stop == nil {
					stop = out.Apply.Stop
				}
			}
			e.stabilize(int(at.id))
			if stop == nil || !stop.Held || stop.Index != index {
				t.Fatalf("the state machine is stopped at %+v, want it held at %d", stop, index)
			}
			if got := at.list.items; !slices.Equal(got, []string{"a"}) {
				t.Errorf("applied %q, want a", got)
			}
			if name == "overwritten" {
				e.network = nil
				e.must(e.member(3).r.ForgetLeader())
				e.must(e.member(2).r.Campaign())
			}
			e.stabilize()
			_, decided, pending := at.r.Skipped(index)
			if decided != (name == "committed") || pending {
				t.Errorf("decided %t, pending %t in the end", decided, pending)
			}
		})
	}
}

// TestUnreadableEntryStopsTheMachine has an entry committed whose bytes make no sense.
func TestUnreadableEntryStopsTheMachine(t *testing.T) {
	e, _ := skipping(t)
	m := e.member(1)
	index := m.list.applied + 1
	e.must(m.r.rn.Propose([]byte{batchVersion, 9, 9}))
	var stops []*Stop
	e.observe = func(_ *member, out Output) {
		if out.Apply != nil && out.Apply.Stop != nil {
			stops = append(stops, out.Apply.Stop)
		}
	}
	e.stabilize()
	if len(stops) != 3 || stops[0].Index != index || stops[0].Err == nil || stops[0].Held {
		t.Fatalf("stops %v, want each replica's at %d, with an error", stops, index)
	}
	e.must(m.r.ProposeSkip(index, "skip"))
	e.stabilize()
	e.must(m.r.Propose(Proposal{Data: []byte("c")})) // so that a disk knows what is committed
	e.stabilize()
	got := e.begin(3)
	e.stabilize()
	if len(got.skips) != 1 || got.list.applied <= index {
		t.Errorf("replica 3 skips %v, want the entry at %d", got.skips, index)
	}
}

// TestSkipBehindASnapshot has raft accept a snapshot and entries behind it, with a skip,
// in one step.
func TestSkipBehindASnapshot(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	leader, m := e.member(1), e.member(3)
	e.crash(m)
	e.must(leader.r.Campaign())
	e.stabilize()
	e.must(leader.r.Propose(Proposal{Data: []byte("a")}))
	e.stabilize()
	e.must(e.snapshot(leader, 0))
	snap, err := leader.log.Snapshot()
	e.must(err)
	cut := snap.GetMetadata().GetIndex()
	e.must(leader.r.Propose(Proposal{Data: []byte("bad")}))
	e.stabilize()
	e.must(leader.r.ProposeSkip(cut+1, "skip"))
	e.stabilize()
	entries, err := leader.log.Entries(cut+1, cut+3, 1<<20)
	e.must(err)
	e.start(m)
	from := func(typ raftpb.MessageType) *raftpb.Message {
		return &raftpb.Message{
			Type: &typ, From: new(uint64(1)), To: new(uint64(3)), Term: new(uint64(2)),
		}
	}
	msg := from(raftpb.MsgSnap)
	msg.Snapshot = snap
	e.must(m.r.Step(msg))
	msg = from(raftpb.MsgApp)
	msg.Index, msg.LogTerm, msg.Commit = new(cut), new(uint64(2)), new(cut+2)
	msg.Entries = entries
	e.must(m.r.Step(msg))
	both := false
	e.observe = func(_ *member, out Output) {
		both = both || out.Install != nil && out.Save != nil && len(out.Save.Entries) == 2
	}
	e.stabilize(3)
	if !both {
		t.Fatal("snapshot and entries came in two steps")
	}
	if got := m.list.items; !slices.Equal(got, []string{"a"}) {
		t.Errorf("applied %q, want a", got)
	}
}
