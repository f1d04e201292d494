package group

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
)

// changeEntry is the log entry of a membership change.
func changeEntry(t *testing.T, index uint64, d, next Descriptor) *raftpb.Entry {
	t.Helper()
	cc := d.confChange(next)
	cc.Context = encodeChange(d.Epoch, next)
	data, err := proto.Marshal(cc)
	if err != nil {
		t.Fatal(err)
	}
	return &raftpb.Entry{
		Index: new(index), Term: new(uint64(2)), Type: raftpb.EntryConfChangeV2.Enum(), Data: data,
	}
}

func TestAhead(t *testing.T) {
	d := testDescriptor(voters(3)...)
	apply := func(from Descriptor, c Change) Descriptor {
		next, err := from.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	grown := apply(d, Change{AddLearners: []raftyard.NodeID{4}})
	joint := apply(grown, Change{Promote: []raftyard.ReplicaID{4}, Remove: []raftyard.ReplicaID{1}})
	left := joint.LeaveJoint()
	plain := func(index uint64) *raftpb.Entry {
		return &raftpb.Entry{
			Index: new(index), Term: new(uint64(2)), Data: make([]byte, aheadBytes),
		}
	}
	log := raft.NewMemoryStorage()
	snap, _ := Genesis(d)
	if err := log.ApplySnapshot(snap); err != nil {
		t.Fatal(err)
	}
	at := snap.GetMetadata().GetIndex()
	entries := []*raftpb.Entry{
		plain(at + 1),
		changeEntry(t, at+2, d, grown),
		changeEntry(t, at+3, d, grown), // refused: the group is not at that epoch any more
		plain(at + 4),
		changeEntry(t, at+5, grown, joint),
		plain(at + 6),
		changeEntry(t, at+7, joint, left),
	}
	if err := log.Append(entries); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		state State
		from  uint64
		want  []Descriptor
	}{
		{"nothing applied", State{d, at}, 0, []Descriptor{grown, joint, left}},
		{"the first change applied", State{grown, at + 2}, at + 4, []Descriptor{joint, left}},
		{"joint", State{joint, at + 5}, at + 5, []Descriptor{left}},
		{"everything applied", State{left, at + 7}, at + 7, nil},
		{"of another epoch", State{left, at + 1}, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Ahead(log, tt.state, tt.from)
			if err != nil || len(got) != len(tt.want) {
				t.Fatalf("Ahead = %v, %v; want %v", got, err, tt.want)
			}
			for i := range got {
				if !got[i].Equal(tt.want[i]) {
					t.Errorf("descriptor %d is %v, want %v", i, got[i], tt.want[i])
				}
			}
		})
	}
}
