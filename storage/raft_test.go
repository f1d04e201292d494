package storage

import (
	"fmt"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// drive does what a node does: it saves, and advances, until nothing is left.
func drive(t *testing.T, s *Store, n *raft.RawNode) (applied []string) {
	t.Helper()
	for n.HasReady() {
		rd := n.Ready()
		mustCommit(t, s, func(b *Batch) {
			b.Update(1, Update{HardState: rd.HardState, Entries: rd.Entries})
		})
		for _, e := range rd.CommittedEntries {
			if len(e.GetData()) > 0 {
				applied = append(applied, string(e.GetData()))
			}
		}
		n.Advance(rd)
	}
	return applied
}

// TestRaftRunsOnTheStore starts raft on a log, again and again after a restart,
// as a group of one.
func TestRaftRunsOnTheStore(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	defer func() { mustClose(t, s) }()
	birth := snapshotAt(1, 1)
	birth.Metadata.ConfState.Voters = []uint64{1}
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{
			Snapshot: birth, Reset: true, HardState: hardStateOf(1, 0, 1),
		})
	})
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	var applied uint64 = 1
	for round := range 3 {
		n, err := raft.NewRawNode(&raft.Config{
			ID: 1, Applied: applied, ElectionTick: 10, HeartbeatTick: 1,
			Storage: s.Log(1), MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16,
			Logger: &raft.DefaultLogger{Logger: quiet},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err = n.Campaign(); err != nil {
			t.Fatal(err)
		}
		drive(t, s, n)
		for i := range 20 {
			want := fmt.Sprintf("round %d command %d", round, i)
			if err = n.Propose([]byte(want)); err != nil {
				t.Fatal(err)
			}
			if got := drive(t, s, n); len(got) != 1 || got[0] != want {
				t.Fatalf("applied %q, want %q", got, want)
			}
		}
		_, applied = s.Log(1).Bounds()
		term, err := s.Log(1).Term(applied)
		if err != nil {
			t.Fatal(err)
		}
		snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &applied, Term: &term, ConfState: birth.GetMetadata().GetConfState(),
		}}
		mustCommit(t, s, func(b *Batch) {
			b.Update(1, Update{Snapshot: snap, CompactTo: applied - 3})
		})
		mustClose(t, s)
		s = mustOpen(t, o)
	}
}
