package group

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
)

// TestStepRefusesWhatRaftTrusts gives a follower and a leader what no replica
// sends. Each message had some effect on raft v3.7 that it must not have: a panic, an
// acknowledgement of nothing, a second leader.
func TestStepRefusesWhatRaftTrusts(t *testing.T) {
	snapshot := func(change func(*raftpb.Snapshot)) *raftpb.Snapshot {
		d := testDescriptor(voters(3)...)
		s := NewSnapshot(9, 2, Manifest{State: State{Descriptor: d, Index: 1}})
		change(s)
		return s
	}
	entry := func(term, index uint64) *raftpb.Entry {
		return &raftpb.Entry{Term: new(term), Index: new(index)}
	}
	tests := []struct {
		name    string
		to      int // 1 leads, 2 follows
		msg     *raftpb.Message
		wantErr error
	}{
		{name: "for another", to: 2, msg: &raftpb.Message{To: new(uint64(3))}},
		{name: "from nobody", to: 2, msg: &raftpb.Message{From: new(uint64(0))}},
		{name: "from ourselves", to: 2, msg: &raftpb.Message{From: new(uint64(2))}},
		{name: "from the disk", to: 1, msg: &raftpb.Message{
			Type: raftpb.MsgStorageAppendResp.Enum(), From: new(raft.LocalAppendThread),
		}},
		{name: "without a term", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Term: new(uint64(0)), Index: new(uint64(2)),
			LogTerm: new(uint64(2)),
		}},
		{name: "local type", to: 2, msg: &raftpb.Message{Type: raftpb.MsgHup.Enum()}},
		{name: "forget leader", to: 2, msg: &raftpb.Message{Type: raftpb.MsgForgetLeader.Enum()}},
		{name: "unknown type", to: 2, msg: &raftpb.Message{Type: raftpb.MessageType(99).Enum()}},
		{name: "proposal", to: 1, msg: &raftpb.Message{Type: raftpb.MsgProp.Enum()}},
		{name: "transfer", to: 1, msg: &raftpb.Message{Type: raftpb.MsgTransferLeader.Enum()}},
		{name: "responses", to: 1, msg: &raftpb.Message{Responses: []*raftpb.Message{{}}}},
		{name: "long context", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgVote.Enum(), Context: make([]byte, 65),
		}},
		{name: "second leader", to: 1, msg: &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum()}},
		{name: "second leader's entries", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(3)), Index: new(uint64(2)),
		}},
		{name: "lost log", to: 2, wantErr: ErrDamaged, msg: &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), Commit: new(uint64(9)),
		}},
		{name: "odd heartbeat context", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), Context: []byte{1, 2, 3},
		}},
		{name: "odd heartbeat answer", to: 1, msg: &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), Context: []byte{1, 2, 3},
		}},
		{name: "answer to nothing", to: 1, msg: &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), Context: []byte{9, 0, 0, 0, 0, 0, 0, 0},
		}},
		{name: "acknowledges what is not there", to: 1, msg: &raftpb.Message{
			Type: raftpb.MsgAppResp.Enum(), Index: new(uint64(50)),
		}},
		{name: "stranger's answer", to: 1, wantErr: ErrNotMember, msg: &raftpb.Message{
			Type: raftpb.MsgAppResp.Enum(), From: new(uint64(9)),
		}},
		{name: "gap", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{entry(2, 4)},
		}},
		{name: "terms go back", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{entry(1, 3)},
		}},
		{name: "future term", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{entry(7, 3)},
		}},
		{name: "unreadable change", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{{
				Term: new(uint64(2)), Index: new(uint64(3)),
				Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte{0xff},
			}},
		}},
		{name: "change of the old form", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{{
				Term: new(uint64(2)), Index: new(uint64(3)), Type: raftpb.EntryConfChange.Enum(),
			}},
		}},
		{name: "batch of another version", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), Index: new(uint64(2)), LogTerm: new(uint64(2)),
			Entries: []*raftpb.Entry{{
				Term: new(uint64(2)), Index: new(uint64(3)), Data: []byte{9, 1},
			}},
		}},
		{name: "no question", to: 1, msg: &raftpb.Message{
			Type: raftpb.MsgReadIndex.Enum(), Term: new(uint64(0)),
		}},
		{name: "no answer", to: 2, msg: &raftpb.Message{Type: raftpb.MsgReadIndexResp.Enum()}},
		{name: "no snapshot", to: 2, msg: &raftpb.Message{Type: raftpb.MsgSnap.Enum()}},
		{name: "snapshot without metadata", to: 2, msg: &raftpb.Message{
			Type:     raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) { s.Metadata = nil }),
		}},
		{name: "snapshot without manifest", to: 2, msg: &raftpb.Message{
			Type:     raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) { s.Data = nil }),
		}},
		{name: "snapshot of the future", to: 2, msg: &raftpb.Message{
			Type:     raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) { s.Metadata.Term = new(uint64(8)) }),
		}},
		{name: "snapshot with other members", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) {
				s.Metadata.ConfState.Voters = []uint64{2}
			}),
		}},
		{name: "snapshot of another group", to: 2, msg: &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) {
				d := testDescriptor(voters(3)...)
				d.Group = 8
				s.Data = Manifest{State: State{Descriptor: d, Index: 1}}.Encode()
			}),
		}},
		{name: "snapshot without us", to: 2, wantErr: ErrNotMember, msg: &raftpb.Message{
			Type: raftpb.MsgSnap.Enum(),
			Snapshot: snapshot(func(s *raftpb.Snapshot) {
				d := testDescriptor(voters(1)...)
				n := NewSnapshot(9, 2, Manifest{State: State{Descriptor: d, Index: 1}})
				s.Data, s.Metadata = n.Data, n.Metadata
			}),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.found(testDescriptor(voters(3)...))
			e.must(e.member(1).r.Campaign())
			e.stabilize()
			m := e.member(tt.to)
			msg := &raftpb.Message{
				Type: raftpb.MsgAppResp.Enum(),
				To:   new(uint64(tt.to)), From: new(uint64(3 - tt.to)),
				Term: new(uint64(2)), Commit: new(uint64(2)),
			}
			if tt.msg.Type != nil && tt.msg.Commit == nil {
				msg.Commit = nil
			}
			proto.Merge(msg, tt.msg)
			before := m.r.Status()
			want := tt.wantErr
			if want == nil {
				want = ErrMessage
			}
			if err := m.r.Step(msg); !errors.Is(err, want) {
				t.Fatalf("Step = %v, want %v", err, want)
			}
			if m.r.HasReady() {
				t.Errorf("the message had an effect: %+v", m.r.Ready())
			}
			if after := m.r.Status(); after.Term != before.Term || after.Last != before.Last {
				t.Errorf("status %+v, was %+v", after, before)
			}
		})
	}
}

// TestStepClampsAHeartbeatIntoACutLog: between two steps a message may have cut the
// log; a heartbeat that counts on what was cut must not reach raft as it is.
func TestStepClampsAHeartbeatIntoACutLog(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	m := e.member(2)
	app := func(term uint64, entries ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), To: new(uint64(2)), From: new(2*term - 3), Term: new(term),
			Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: entries,
		}
	}
	entries := func(term, last uint64) (list []*raftpb.Entry) {
		for i := uint64(2); i <= last; i++ {
			list = append(list, &raftpb.Entry{Term: new(term), Index: new(i)})
		}
		return list
	}
	e.must(m.r.Step(app(2, entries(2, 6)...)))
	e.stabilize(2)
	e.must(m.r.Step(app(3, entries(3, 3)...))) // cuts 4 to 6
	e.must(m.r.Step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2)), From: new(uint64(3)),
		Term: new(uint64(3)), Commit: new(uint64(6)),
	}))
	e.stabilize(2)
	if got := m.r.Status(); got.Commit != 3 || got.Last != 3 {
		t.Errorf("commit %d, last %d, want 3 and 3", got.Commit, got.Last)
	}
}

// TestUninitialisedReplicaDoesNothing until a snapshot arrives: it keeps its term and
// vote, and refuses the rest.
func TestUninitialisedReplicaDoesNothing(t *testing.T) {
	e := newEnv(t)
	e.join(4, 4)
	r := e.member(4).r
	for range 100 {
		r.Tick()
	}
	if r.HasReady() {
		t.Errorf("Ready = %+v", r.Ready())
	}
	for name, err := range map[string]error{
		"Campaign": r.Campaign(), "Propose": r.Propose(Proposal{}), "Read": r.Read("x"),
		"ChangeMembers":  r.ChangeMembers(testDescriptor(Voter), "x"),
		"TransferLeader": r.TransferLeader(1), "ForgetLeader": r.ForgetLeader(),
	} {
		if !errors.Is(err, ErrUninitialised) {
			t.Errorf("%s = %v, want ErrUninitialised", name, err)
		}
	}
	err := r.Step(&raftpb.Message{
		Type: raftpb.MsgApp.Enum(), To: new(uint64(4)), From: new(uint64(1)), Term: new(uint64(2)),
		Entries: []*raftpb.Entry{{Term: new(uint64(1)), Index: new(uint64(1))}},
	})
	if !errors.Is(err, ErrMessage) {
		t.Errorf("a log without a state: Step = %v, want ErrMessage", err)
	}
}

// TestReplicaWithoutAStateVouchesForNothing lets the third of three lose its directory
// after it has followed another leader. In its new one it neither votes nor confirms to
// the old leader that nobody else leads, and takes no state that was not given to it.
func TestReplicaWithoutAStateVouchesForNothing(t *testing.T) {
	e := newEnv(t)
	first := raftyard.StoreID{1}
	d := testDescriptor(voters(3)...)
	d.Members[2].Store = first
	e.found(d)
	one, two, three := e.member(1), e.member(2), e.member(3)
	e.must(one.r.Campaign())
	e.stabilize(1, 2) // the leader has not heard of the third
	e.network = nil
	e.must(two.r.ForgetLeader())
	e.must(two.r.Campaign())
	e.stabilize(2, 3) // without the old leader
	if got := two.r.Status().Role; got != Leader {
		t.Fatalf("replica 2 is a %s", got)
	}

	e.crash(three)
	*three = *e.newMember(3, 3)
	three.store = raftyard.StoreID{2}
	e.start(three)
	e.network = nil
	var confirmed []any
	e.answered = func(_ *member, token any, _ uint64, err error) {
		if err == nil {
			confirmed = append(confirmed, token)
		}
	}
	e.must(one.r.Read("old leader's"))
	e.stabilize(1, 3)
	one.r.Tick()
	e.stabilize(1, 3)
	if len(confirmed) != 0 {
		t.Errorf("a replica that has forgotten its leader confirmed %v to another", confirmed)
	}

	for _, typ := range []raftpb.MessageType{
		raftpb.MsgPreVote, raftpb.MsgVote, raftpb.MsgTimeoutNow,
	} {
		err := three.r.Step(&raftpb.Message{
			Type: typ.Enum(), To: new(uint64(3)), From: new(uint64(1)), Term: new(uint64(9)),
			Index: new(uint64(99)), LogTerm: new(uint64(8)),
		})
		if !errors.Is(err, ErrUninitialised) || three.r.HasReady() {
			t.Errorf("%s = %v, want it refused", typ, err)
		}
	}
	snap, err := one.log.Snapshot()
	e.must(err)
	give := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), To: new(uint64(3)), From: new(uint64(1)),
		Term: new(uint64(9)), Snapshot: snap,
	}
	if err := three.r.Step(give); !errors.Is(err, ErrNotMember) {
		t.Errorf("a state that is for another directory = %v, want ErrNotMember", err)
	}
	three.r.cfg.Store = first
	if err := three.r.Step(give); err != nil {
		t.Errorf("its own state = %v", err)
	}
}

// TestLeaderThatCountsOnALostReplica: the leader believes that the replica has entries,
// which it had in another directory. That is no damage here.
func TestLeaderThatCountsOnALostReplica(t *testing.T) {
	e := newEnv(t)
	e.join(4, 4)
	err := e.member(4).r.Step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(4)), From: new(uint64(1)),
		Term: new(uint64(3)), Commit: new(uint64(7)),
	})
	if !errors.Is(err, ErrMessage) || errors.Is(err, ErrDamaged) {
		t.Errorf("Step = %v, want ErrMessage", err)
	}
}

// TestLeaderThatContradictsWhatIsCommitted: one of the two has lost what it had
// acknowledged. A deposed leader's message proves nothing.
func TestLeaderThatContradictsWhatIsCommitted(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(voters(3)...))
	one := e.member(1)
	e.must(e.member(2).r.Campaign())
	e.stabilize()
	commit, term := one.r.view.settled, one.r.view.hard.term
	if commit < 2 {
		t.Fatalf("only %d is committed", commit)
	}
	app := func(inTerm, logTerm uint64) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)),
			Term: new(inTerm), Index: new(commit), LogTerm: new(logTerm), Commit: new(commit),
		}
	}
	if err := one.r.Step(app(term+1, term+1)); !errors.Is(err, ErrDamaged) {
		t.Errorf("another term at a committed index = %v, want ErrDamaged", err)
	}
	if err := one.r.Step(app(term, term)); err != nil {
		t.Errorf("the same term = %v", err)
	}
	if err := one.r.Step(app(term-1, 1)); errors.Is(err, ErrDamaged) {
		t.Errorf("a deposed leader's message = %v, want it ignored", err)
	}
}

// FuzzStep feeds arbitrary messages to a leader and a follower: they are refused or
// taken, and nothing panics.
func FuzzStep(f *testing.F) {
	for _, m := range []*raftpb.Message{
		{
			Type: raftpb.MsgApp.Enum(), Term: new(uint64(3)),
			Index: new(uint64(2)), LogTerm: new(uint64(2)),
		},
		{Type: raftpb.MsgHeartbeatResp.Enum(), Term: new(uint64(2)), Context: make([]byte, 8)},
		{Type: raftpb.MsgSnap.Enum(), Term: new(uint64(3)), Snapshot: &raftpb.Snapshot{}},
		{Type: raftpb.MsgReadIndex.Enum(), Entries: []*raftpb.Entry{{Data: []byte("q")}}},
		{
			Type: raftpb.MsgVote.Enum(), Term: new(uint64(9)),
			Index: new(uint64(9)), LogTerm: new(uint64(9)),
		},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(raftpb.Message)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		e := newEnv(t)
		e.found(testDescriptor(voters(3)...))
		e.must(e.member(1).r.Campaign())
		e.stabilize()
		for _, to := range []int{1, 2} {
			msg := proto.CloneOf(m)
			msg.To = new(uint64(to))
			err := e.member(to).r.Step(msg)
			if err != nil && !isAny(err, ErrMessage, ErrNotMember, ErrDamaged) {
				t.Fatalf("Step = %v", err)
			}
		}
		e.network = nil
		e.stabilize(1)
		e.stabilize(2)
	})
}
