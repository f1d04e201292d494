package transport

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func TestCarry(t *testing.T) {
	good := Envelope{
		Group: 7, From: Endpoint{Node: 1, Replica: 3}, To: Endpoint{Node: 2, Replica: 4},
		Message: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(3)), To: new(uint64(4)),
			Term: new(uint64(2)), Index: new(uint64(5)), LogTerm: new(uint64(1)),
			Entries: []*raftpb.Entry{
				{Index: new(uint64(6)), Term: new(uint64(2)), Data: []byte("x")},
			},
		},
	}
	forged := good
	forged.From.Node = 9
	empty := good
	empty.Message = nil

	got, refused, err := Carry(1, 2, []Envelope{good, forged, empty})
	if err != nil || refused != 2 || len(got) != 1 {
		t.Fatalf("Carry = %d envelopes, %d refused, %v, want 1, 2, nil", len(got), refused, err)
	}
	if !proto.Equal(got[0].Message, good.Message) || got[0].From != good.From {
		t.Errorf("Carry made %v of %v", got[0].Message, good.Message)
	}
	good.Message.Entries[0].Data[0] = 'y'
	if string(got[0].Message.GetEntries()[0].GetData()) != "x" {
		t.Error("what arrived shares memory with what was sent")
	}
}
