package inspect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/storage"
)

// TestVerifyFindsWhatDoesNotDecode: an entry is whole and says nothing. Verify tells it,
// also when another question has read the log before.
func TestVerifyFindsWhatDoesNotDecode(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(storage.Options{Dir: dir, Cluster: uuid.New(), Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	b.Create(storage.Replica{Group: 7, ID: 1, Incarnation: raftyard.Incarnation{1}},
		storage.Update{
			HardState: &raftpb.HardState{Term: proto.Uint64(1)},
			Entries: []*raftpb.Entry{
				{Index: proto.Uint64(1), Term: proto.Uint64(1)},
				{Index: proto.Uint64(2), Term: proto.Uint64(1), Data: []byte("\xffnonsense")},
				{Index: proto.Uint64(3), Term: proto.Uint64(1)},
			},
		})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{true, false} {
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !first {
			if _, err = d.Groups(); err != nil {
				t.Error(err)
			}
		}
		report, err := d.Verify()
		told := slices.ContainsFunc(report.Findings, func(f Finding) bool {
			return f.Damage && f.Group != nil && *f.Group == 7 &&
				strings.Contains(f.What, "entry 2")
		})
		if err != nil || !told || report.Sound {
			t.Errorf("Verify, asked first: %t: %v, sound: %t, found %+v",
				first, err, report.Sound, report.Findings)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
