package transport

import (
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

func TestCheckAcceptsWhatRaftSends(t *testing.T) {
	for _, typ := range sentTypes {
		env := appendEnvelopeOf(t, typ)
		if got := checkEnvelope(&env, 1, 2); got != dropNothing {
			t.Errorf("checkEnvelope(%s) = %s, want none", typ, got)
		}
	}
}

func TestCheckWhitelistsTypes(t *testing.T) {
	allowed := make(map[raftpb.MessageType]bool)
	for _, typ := range sentTypes {
		allowed[typ] = true
	}
	for n := range raftpb.MessageType_name {
		typ := raftpb.MessageType(n)
		if got := sentBetweenNodes(typ); got != allowed[typ] {
			t.Errorf("sentBetweenNodes(%s) = %t, want %t", typ, got, allowed[typ])
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	const app, beat, vote = raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgVote
	setReplicas := func(env *Envelope, from, to uint64) {
		env.From.Replica, env.To.Replica = raftyard.ReplicaID(from), raftyard.ReplicaID(to)
		env.Message.From, env.Message.To = &from, &to
	}
	tests := []struct {
		name   string
		typ    raftpb.MessageType
		change func(env *Envelope)
		want   Reason
	}{
		{"another sender", app, func(e *Envelope) { e.From.Node = 3 }, DropWrongNode},
		{"another receiver", app, func(e *Envelope) { e.To.Node = 3 }, DropWrongNode},
		{"from replica 0", app, func(e *Envelope) { setReplicas(e, 0, 12) }, DropReplica},
		{"to replica 0", app, func(e *Envelope) { setReplicas(e, 11, 0) }, DropReplica},
		{
			"from the append thread", app,
			func(e *Envelope) { setReplicas(e, math.MaxUint64, 12) }, DropReplica,
		},
		{
			"from the apply thread", app,
			func(e *Envelope) { setReplicas(e, math.MaxUint64-1, 12) }, DropReplica,
		},
		{
			"to the append thread", app,
			func(e *Envelope) { setReplicas(e, 11, math.MaxUint64) }, DropReplica,
		},
		{
			"other from inside", app,
			func(e *Envelope) { e.Message.From = new(uint64(13)) }, DropMismatch,
		},
		{"no to inside", app, func(e *Envelope) { e.Message.To = nil }, DropMismatch},
		{"empty", app, func(e *Envelope) { e.Message = nil }, DropContent},
		{"both", app, func(e *Envelope) { e.Notice = &Notice{Kind: NoticeRemoved} }, DropContent},
		{
			"sleep without an index", app,
			func(e *Envelope) { e.Message, e.Notice = nil, &Notice{Kind: NoticeSleep} },
			DropContent,
		},
		{
			"unknown notice", app,
			func(e *Envelope) { e.Message, e.Notice = nil, &Notice{Kind: 77} }, DropType,
		},
		{"no type", app, func(e *Envelope) { e.Message.Type = nil }, DropType},
		{
			"storage ack", app,
			func(e *Envelope) { e.Message.Type = raftpb.MsgStorageAppendResp.Enum() }, DropType,
		},
		{"proposal", app, func(e *Envelope) { e.Message.Type = raftpb.MsgProp.Enum() }, DropType},
		{
			"forget leader", app,
			func(e *Envelope) { e.Message.Type = raftpb.MsgForgetLeader.Enum() }, DropType,
		},
		{
			"responses", app,
			func(e *Envelope) { e.Message.Responses = []*raftpb.Message{{}} }, DropType,
		},
		{"no term", app, func(e *Envelope) { e.Message.Term = nil }, DropTerm},
		{
			"term of a read", raftpb.MsgReadIndex,
			func(e *Envelope) { e.Message.Term = new(uint64(1)) }, DropTerm,
		},
		{
			"heartbeat answer with 3 bytes of context", raftpb.MsgHeartbeatResp,
			func(e *Envelope) { e.Message.Context = make([]byte, 3) }, DropContext,
		},
		{
			"9 bytes of context", beat,
			func(e *Envelope) { e.Message.Context = make([]byte, 9) }, DropContext,
		},
		{
			"65 bytes of context", vote,
			func(e *Envelope) { e.Message.Context = make([]byte, 65) }, DropContext,
		},
		{
			"read with 65 bytes of context", raftpb.MsgReadIndex,
			func(e *Envelope) { e.Message.Entries[0].Data = make([]byte, 65) }, DropContext,
		},
		{
			"read without entry", raftpb.MsgReadIndex,
			func(e *Envelope) { e.Message.Entries = nil }, DropContent,
		},
		{
			"vote with entries", vote,
			func(e *Envelope) { e.Message.Entries = []*raftpb.Entry{{}} }, DropContent,
		},
		{
			"nil entry", app,
			func(e *Envelope) { e.Message.Entries = []*raftpb.Entry{nil} }, DropType,
		},
		{
			"gap", app,
			func(e *Envelope) { e.Message.Entries[0].Index = new(uint64(9)) }, DropContent,
		},
		{
			"falling term", app,
			func(e *Envelope) { e.Message.Entries[0].Term = new(uint64(3)) }, DropContent,
		},
		{
			"term from the future", app,
			func(e *Envelope) { e.Message.Entries[0].Term = new(uint64(6)) }, DropContent,
		},
		{
			"unknown entry type", app,
			func(e *Envelope) { e.Message.Entries[0].Type = raftpb.EntryType(3).Enum() },
			DropContent,
		},
		{
			"append with snapshot", app,
			func(e *Envelope) { e.Message.Snapshot = &raftpb.Snapshot{} }, DropContent,
		},
		{
			"snapshot without one", raftpb.MsgSnap,
			func(e *Envelope) { e.Message.Snapshot = nil }, DropContent,
		},
		{
			"snapshot at 0", raftpb.MsgSnap,
			func(e *Envelope) { e.Message.Snapshot.Metadata.Index = new(uint64(0)) }, DropContent,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := appendEnvelopeOf(t, tt.typ)
			tt.change(&env)
			if got := checkEnvelope(&env, 1, 2); got != tt.want {
				t.Errorf("checkEnvelope = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestEveryReasonHasAName(t *testing.T) {
	seen := make(map[string]Reason)
	for r := range numReasons {
		if other, ok := seen[r.String()]; ok || r.String() == "" {
			t.Errorf("reason %d is called %q, as reason %d is", r, r, other)
		}
		seen[r.String()] = r
	}
}
