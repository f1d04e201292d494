package storage

import (
	"flag"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
)

var (
	testCluster     = uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	testIncarnation = raftyard.Incarnation{1, 2, 3, 15: 4}
)

func testOptions(dir string) Options {
	return Options{
		Dir: dir, Cluster: testCluster, Node: 1,
		MemTableSize: badgerdb.MinMemTableSize, CacheBytes: 1 << 20,
	}
}

func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t testing.TB, s *Store, fill func(*Batch)) {
	t.Helper()
	if err := commit(s, fill); err != nil {
		t.Fatal(err)
	}
}

func commit(s *Store, fill func(*Batch)) error {
	b := s.NewBatch()
	fill(b)
	return b.Commit()
}

func testReplica(g raftyard.GroupID) Replica {
	return Replica{Group: g, Incarnation: testIncarnation, ID: 1}
}

func hardStateOf(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// entriesOf returns n entries of one term from index first, with data of their own.
func entriesOf(first, n, term uint64) []*raftpb.Entry {
	entries := make([]*raftpb.Entry, n)
	for i := range entries {
		index := first + uint64(i)
		entries[i] = &raftpb.Entry{
			Index: &index, Term: new(term), Data: fmt.Appendf(nil, "entry %d.%d", term, index),
		}
	}
	return entries
}

func snapshotAt(index, term uint64) *raftpb.Snapshot {
	cs := raftpb.EnsureConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	return &raftpb.Snapshot{
		Data:     fmt.Appendf(nil, "manifest %d.%d", term, index),
		Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: cs},
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	checks := "20" // a check opens and closes many stores; rapid's own default is 100
	if testing.Short() {
		checks = "8"
	}
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "rapid.checks" {
			checks = f.Value.String()
		}
	})
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestReopen(t *testing.T) {
	o := testOptions(t.TempDir())
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(7), Update{Snapshot: snapshotAt(1, 1), Reset: true, Meta: []byte("m")})
		b.Update(7, Update{Entries: entriesOf(2, 5, 1), HardState: hardStateOf(1, 1, 3)})
		b.Create(testReplica(8), Update{})
	})
	mustCommit(t, s, func(b *Batch) { b.Update(7, Update{Entries: entriesOf(5, 1, 2)}) })
	mustClose(t, s)

	s = mustOpen(t, o)
	defer mustClose(t, s)
	if got := s.Identity().Boot; got != 2 {
		t.Errorf("boot = %d, want 2", got)
	}
	for _, r := range s.Replicas() {
		t.Logf("%+v", r)
		if r.Damage != nil {
			t.Error(r.Damage)
		}
	}
	l := s.Log(7)
	first, last := l.Bounds()
	entries, err := l.Entries(first, last+1, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(first, last, entries, l.HardState())
}
