package check

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// TestForgets: what all replicas have passed is forgotten, and what one of them
// still needs is not.
func TestForgets(t *testing.T) {
	const keep = 20
	b := newBench(t, Config{Keep: keep})
	g := b.c.group(groupKey{benchGroup, incarnation()})
	for i := range uint64(10 * keep) {
		index := b.write(1)
		b.c.Hashed(b.identity(1), index, i)
		b.ack(index, string([]byte{byte(index)}), "done")
	}
	for what, n := range map[string]int{
		"committed terms": len(g.committed.terms), "applied indexes": len(g.applied.items),
		"hashes": len(g.hashes),
	} {
		if n > 2*keep+1 {
			t.Errorf("%d %s are remembered, want at most %d", n, what, 2*keep+1)
		}
	}
	// A replica that comes back from long ago is not reproached with it.
	b.c.Crashed(3, LostNothing)
	b.c.MachineOpened(b.identity(3), 0)
	b.c.Restored(b.identity(3), 5)
	b.c.Applied(b.identity(3), commands(6), results("done"))
	b.none()

	b = newBench(t, Config{Keep: keep})
	for range 5 * keep {
		index := b.replicate(1, 2, 3)
		b.commit(1, index)
		b.commit(2, index)
	}
	b.commit(3, 4) // it still knows what comes next
	batch := commands(5)
	batch[0].Data = []byte("other")
	b.c.Applied(b.identity(3), batch, results("done"))
	b.want(AppliedOnce)
}

func TestRecent(t *testing.T) {
	var r recent[uint64]
	for term := uint64(1); term <= 40; term++ {
		r.put(term, 100+term)
	}
	r.put(40, 7)
	r.put(1, 5) // too old to be remembered
	for _, tt := range []struct {
		term, want uint64
		known      bool
	}{
		{40, 7, true},
		{39, 139, true},
		{29, 129, true},
		{28, 0, false},
		{1, 0, false},
		{41, 0, true},
	} {
		if got, known := r.get(tt.term); got != tt.want || known != tt.known {
			t.Errorf("get(%d) = %d, %t, want %d, %t", tt.term, got, known, tt.want, tt.known)
		}
	}
}

func TestReigns(t *testing.T) {
	g := newGroup(groupKey{})
	for term := range uint64(3 * maxReigns) {
		g.reignOf(term).leader = raftyard.ReplicaID(1)
	}
	if len(g.reigns) > maxReigns+1 || g.reigns[3*maxReigns-1] == nil {
		t.Errorf("%d terms are remembered", len(g.reigns))
	}
	var r reign
	for _, tt := range []struct {
		run  run
		want bool
	}{
		{run{3, 10, 12}, true},
		{run{1, 1, 4}, true},
		{run{2, 6, 7}, true},
		{run{3, 13, 20}, true},
		{run{2, 5, 5}, true},
		{run{2, 4, 4}, false},
		{run{4, 20, 20}, false},
	} {
		if got := r.noteRun(tt.run); got != tt.want {
			t.Errorf("noteRun(%v) = %t, want %t", tt.run, got, tt.want)
		}
	}
}

// An early message is examined when the node is shown, and promises at once.
func TestEarly(t *testing.T) {
	b := newBench(t, Config{})
	b.c.Crashed(2, LostNothing)
	b.send(2, 1, message(raftpb.MsgAppResp, 2, 4))
	b.none()
	b.reopen(2)
	b.want(DurableFirst)

	b = newBench(t, Config{})
	b.c.Crashed(2, LostNothing)
	b.send(2, 3, message(raftpb.MsgVoteResp, 5, 0))
	b.c.Crashed(2, LostNothing)
	b.reopen(2)
	b.want(NoRegress)
}

// BenchmarkStepped is the price of a step after which nothing has changed.
func BenchmarkStepped(b *testing.B) {
	c := New(Config{})
	seen := &Examined{Node: 1}
	log := &fakeLog{term: 1, start: 1, terms: []uint64{1}}
	c.logOf = func(*Replica) Log { return log }
	for i := range raftyard.GroupID(20) {
		st := threeVoters()
		st.Descriptor.Group = i
		seen.Replicas = append(seen.Replicas, Replica{
			Group: i, Incarnation: incarnation(), ID: 1, Serving: true,
			Term: 1, Commit: 1, First: 2, Last: 1, HandedTo: 1, Applied: 1, State: st,
		})
		seen.Stored = append(seen.Stored, (&bench{}).stored(1))
	}
	c.Opened(1, seen)
	b.ReportAllocs()
	for b.Loop() {
		c.Stepped(1, seen)
	}
}
