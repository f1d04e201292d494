package group

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// logOf returns the log of a replica of three that has entries 2 to last, of term 2.
func logOf(t *testing.T, last, commit uint64) *raft.MemoryStorage {
	t.Helper()
	log := raft.NewMemoryStorage()
	snap, hs := Genesis(testDescriptor(voters(3)...))
	if err := log.ApplySnapshot(snap); err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); i <= last; i++ {
		e := &raftpb.Entry{Term: new(uint64(2)), Index: new(i), Type: raftpb.EntryNormal.Enum()}
		if err := log.Append([]*raftpb.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	hs.Term, hs.Commit = new(uint64(2)), new(commit)
	if err := log.SetHardState(hs); err != nil {
		t.Fatal(err)
	}
	return log
}

func testConfig(log raft.Storage) Config {
	return Config{
		Group: 7, Incarnation: testIncarnation, Node: 1, Replica: 1, Storage: log,
		State: State{Descriptor: testDescriptor(voters(3)...), Index: 1}, Applied: 1,
	}
}

func TestNewMakesTheStartConsistent(t *testing.T) {
	tests := []struct {
		name       string
		last       uint64
		commit     uint64
		applied    uint64
		compact    uint64
		change     func(c *Config)
		wantCommit uint64
		wantErr    error
	}{
		{name: "as it was", last: 5, commit: 3, applied: 2, wantCommit: 3},
		{name: "applied ahead of commit", last: 5, commit: 3, applied: 5, wantCommit: 5},
		{name: "nothing applied yet", last: 5, commit: 3, applied: 0, wantCommit: 3},
		{name: "log cut beyond commit", last: 5, commit: 1, applied: 4, compact: 4, wantCommit: 4},
		{name: "applied beyond the log", last: 5, commit: 3, applied: 6, wantErr: ErrDamaged},
		{name: "commit beyond the log", last: 5, commit: 6, applied: 2, wantErr: ErrDamaged},
		{
			name: "state machine behind the log", last: 5, commit: 5, applied: 2, compact: 4,
			wantErr: ErrDamaged,
		},
		{
			name: "another incarnation", last: 2, commit: 2, wantErr: ErrDamaged,
			change: func(c *Config) { c.Incarnation[3]++ },
		},
		{
			name: "another node", last: 2, commit: 2, wantErr: ErrDamaged,
			change: func(c *Config) { c.Node = 2 },
		},
		{
			name: "no member any more", last: 2, commit: 2, wantErr: ErrRemoved,
			change: func(c *Config) { c.Replica, c.Node = 4, 4 },
		},
		{
			name: "no state", last: 2, commit: 2, wantErr: ErrDamaged,
			change: func(c *Config) { c.State = State{} },
		},
		{
			name: "a term that was forgotten", last: 2, commit: 2, wantErr: ErrDamaged,
			change: func(c *Config) {
				hs := &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(2))}
				log := logOf(t, 2, 2)
				if err := log.SetHardState(hs); err != nil {
					t.Fatal(err)
				}
				c.Storage = log
			},
		},
		{
			name: "wrong settings", last: 2, commit: 2, wantErr: ErrInvalid,
			change: func(c *Config) { c.ElectionTicks = 1 },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log := logOf(t, tt.last, tt.commit)
			if tt.compact != 0 {
				if err := log.Compact(tt.compact); err != nil {
					t.Fatal(err)
				}
			}
			c := testConfig(log)
			c.Applied = tt.applied
			if tt.change != nil {
				tt.change(&c)
			}
			r, err := New(c)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("New = %v, want %v", err, tt.wantErr)
			}
			if err != nil {
				return
			}
			if got := r.Status().Commit; got != tt.wantCommit {
				t.Errorf("commit = %d, want %d", got, tt.wantCommit)
			}
		})
	}
}

// brokenLog fails where it is told to.
type brokenLog struct {
	raft.Storage
	err error
}

func (b *brokenLog) Term(uint64) (uint64, error) { return 0, b.err }

func TestNewReportsABrokenStorage(t *testing.T) {
	broken := errors.New("broken")
	_, err := New(testConfig(&brokenLog{Storage: logOf(t, 3, 3), err: broken}))
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, broken) {
		t.Errorf("New = %v, want ErrDamaged for %v", err, broken)
	}
}

func TestFinishInstall(t *testing.T) {
	d := testDescriptor(voters(3)...)
	snap := NewSnapshot(9, 4, Manifest{State: State{Descriptor: d, Index: 1}})
	hs := &raftpb.HardState{Term: new(uint64(3)), Vote: new(uint64(2)), Commit: new(uint64(5))}
	s, err := FinishInstall(hs, snap)
	if err != nil {
		t.Fatal(err)
	}
	got := hardStateOf(s.HardState)
	if want := (hardState{term: 4, commit: 9}); got != want || !s.Reset || s.State == nil {
		t.Errorf("FinishInstall = %+v with %+v", s, got)
	}
	log := logOf(t, 5, 5)
	err = errors.Join(log.ApplySnapshot(s.Snapshot), log.SetHardState(s.HardState))
	if err != nil {
		t.Fatal(err)
	}
	c := testConfig(log)
	c.State, c.Applied = *s.State, 9
	if _, err := New(c); err != nil {
		t.Errorf("New after FinishInstall = %v", err)
	}
	hs.Commit = new(uint64(9))
	if _, err := FinishInstall(hs, snap); !errors.Is(err, ErrInvalid) {
		t.Errorf("FinishInstall of what is committed = %v, want ErrInvalid", err)
	}
}

func TestLimitsReportEveryProblem(t *testing.T) {
	err := Limits{
		MaxEntryBytes: 4 << 20, MaxQueuedBytes: 1, MaxInflightBytes: 10, MaxInflightBatches: 9,
		MaxReads: -1,
	}.Validate()
	for _, name := range []string{
		"MaxQueuedBytes", "MaxSizePerMsg", "MaxInflightBytes", "MaxUncommittedBytes", "MaxReads",
	} {
		if !strings.Contains(err.Error(), name+" is") {
			t.Errorf("Validate does not mention %s: %v", name, err)
		}
	}
	if err = (Limits{}).Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	err = Config{ElectionTicks: 1, Limits: Limits{MaxReads: -1}}.Validate()
	for _, name := range []string{
		"Incarnation", "Node", "Replica", "Storage", "ElectionTicks", "MaxReads",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("Config.Validate does not mention %s: %v", name, err)
		}
	}
}

// TestFaultIsAPanicWithAType shows what a driver recovers when raft finds its log
// broken, and that the replica still gives up what it owes.
func TestFaultIsAPanicWithAType(t *testing.T) {
	e := newEnv(t)
	e.found(testDescriptor(Voter))
	m := e.member(1)
	e.must(m.r.Campaign())
	e.stabilize()
	e.must(m.r.Propose(Proposal{Data: []byte("a"), Token: "a"}))
	e.take(m)
	m.r.rn.Advance(raft.Ready{})
	// The committed entry is handed out again, with a hole before it.
	m.r.ready = false
	m.r.view.applied -= 1
	defer func() {
		fault, ok := recover().(*FaultError)
		if !ok || fault.Group != 7 || fault.Replica != 1 {
			t.Fatalf("recovered %v", fault)
		}
		out := m.r.Close()
		if len(out) != 1 || out[0].Token != "a" || !errors.Is(out[0].Err, ErrUnknown) {
			t.Errorf("Close = %v, want an unknown outcome of a", out)
		}
	}()
	m.r.Ready()
}

func TestRaftLogsThroughSlog(t *testing.T) {
	var buf bytes.Buffer
	c := testConfig(logOf(t, 2, 2))
	c.Logger = slog.New(slog.NewTextHandler(&buf, nil))
	l := newRaftLogger(c)
	l.Infof("elected %d", 1)
	l.Warningf("slow %d", 2)
	l.Error("bad", 3)
	want := `level=WARN msg=raft group=7 replica=1 text="slow 2"`
	if got := buf.String(); strings.Contains(got, "elected") || !strings.Contains(got, want) ||
		!strings.Contains(got, "level=ERROR") {
		t.Errorf("logged %q", got)
	}
	defer func() {
		if f, ok := recover().(*FaultError); !ok || f.Reason != "raft: gone 4" {
			t.Errorf("recovered %v", f)
		}
	}()
	l.Panicf("gone %d", 4)
}

func TestNotApplied(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, ErrUnknown: false, errors.New("x"): false, ErrDamaged: false,
		ErrDropped: true, ErrOverloaded: true, ErrStopped: true,
		&NotLeaderError{Group: 1, Leader: raftyard.ReplicaID(2)}: true,
	} {
		if got := NotApplied(err); got != want {
			t.Errorf("NotApplied(%v) = %t, want %t", err, got, want)
		}
	}
}
