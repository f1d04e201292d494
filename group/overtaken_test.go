package group

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestDropOvertaken: an append goes if a later one to the same replica says all of it, and
// nothing else does.
func TestDropOvertaken(t *testing.T) {
	app := func(to, index, commit uint64, entries ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), To: &to, Term: new(uint64(3)), Index: &index,
			LogTerm: new(uint64(3)), Commit: &commit, Entries: entries,
		}
	}
	beat := &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2)), Term: new(uint64(3)),
		Index: new(uint64(7)), Commit: new(uint64(9)),
	}
	older := app(2, 7, 9)
	older.Term = new(uint64(4))
	entry := &raftpb.Entry{Index: new(uint64(8))}
	type list []*raftpb.Message
	tests := map[string]struct {
		msgs list
		kept []int
	}{
		"entries follow":    {list{app(2, 7, 7), app(2, 7, 7, entry)}, []int{1}},
		"more is committed": {list{app(2, 7, 6), app(2, 7, 7)}, []int{1}},
		"several":           {list{app(2, 7, 5), app(2, 7, 6), app(2, 7, 7)}, []int{2}},
		"for two": {
			list{app(2, 7, 7), app(3, 7, 7), app(2, 7, 7, entry)}, []int{1, 2},
		},
		"less is committed":       {list{app(2, 7, 7), app(2, 7, 6)}, []int{0, 1}},
		"behind another entry":    {list{app(2, 7, 7), app(2, 6, 7, entry)}, []int{0, 1}},
		"with entries":            {list{app(2, 7, 7, entry), app(2, 7, 7)}, []int{0, 1}},
		"a heartbeat follows":     {list{app(2, 7, 7), beat}, []int{0, 1}},
		"a heartbeat goes before": {list{beat, app(2, 7, 7)}, []int{0, 1}},
		"of another term":         {list{app(2, 7, 7), older}, []int{0, 1}},
		"entries both times":      {list{app(2, 7, 7, entry), app(2, 8, 7, entry)}, []int{0, 1}},
	}
	for name, tt := range tests {
		var want []*raftpb.Message
		for _, i := range tt.kept {
			want = append(want, tt.msgs[i])
		}
		if got := dropOvertaken(tt.msgs); !slices.Equal(got, want) {
			t.Errorf("%s: %d messages are left, want those at %d", name, len(got), tt.kept)
		}
	}
}
