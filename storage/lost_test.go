package storage

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestFrontOfALongEntryIsLost: an acknowledged entry that takes several records has
// lost the first of them. The log must not come back shorter without a word.
func TestFrontOfALongEntryIsLost(t *testing.T) {
	o := testOptions(t.TempDir())
	o.MemTableSize = 8 << 20
	s := mustOpen(t, o)
	mustCommit(t, s, func(b *Batch) {
		b.Create(testReplica(1), Update{
			Snapshot: snapshotAt(4, 1), Reset: true, HardState: hardStateOf(1, 1, 4),
		})
	})
	long := entriesOf(5, 1, 1)
	long[0].Data = make([]byte, s.recordLimit+100)
	mustCommit(t, s, func(b *Batch) { b.Update(1, Update{Entries: []*raftpb.Entry{long[0]}}) })
	mustClose(t, s)
	editLog(t, o, remove(appendLogKey(nil, 1, 0)))
	s = mustOpen(t, o)
	defer mustClose(t, s)
	if r, _ := s.Replica(1); r.Damage == nil {
		first, last := s.Log(1).Bounds()
		t.Errorf("entry 5 was acknowledged; the log is [%d, %d] now, and not damaged", first, last)
	}
}
