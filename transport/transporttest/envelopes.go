package transporttest

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/raftyard/raftyard/transport"
)

func testEnvelopesArrive(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	var sent []transport.Envelope
	for _, typ := range []raftpb.MessageType{
		raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp,
		raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgSnap, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp,
	} {
		sent = append(sent, message(typ, 1, 2, 8))
	}
	notice := message(raftpb.MsgApp, 1, 2, 8)
	notice.Message = nil
	notice.Notice = &transport.Notice{Kind: transport.NoticeRemoved, Epoch: 9, NextReplica: 14}
	sent = append(sent, notice)
	a.Send(sent)
	eventually(t, "all arrive", func() bool { return len(b.got()) >= len(sent) })
	for i, got := range b.got() {
		want := sent[i]
		if !proto.Equal(got.Message, want.Message) {
			t.Errorf("message %d is %v, want %v", i, got.Message, want.Message)
		}
		if want.Notice != nil && (got.Notice == nil || *got.Notice != *want.Notice) {
			t.Errorf("notice is %+v, want %+v", got.Notice, want.Notice)
		}
		got.Message, got.Notice, want.Message, want.Notice = nil, nil, nil, nil
		if got != want {
			t.Errorf("envelope %d is %+v, want %+v", i, got, want)
		}
	}
	if up := a.Peers(); len(up) != 1 || !up[0].Up || up[0].Node != 2 || up[0].LastError != nil {
		t.Errorf("Peers = %+v, want node 2 up", up)
	}
	if got := a.Stats().Sent["MsgApp"]; got != 1 {
		t.Errorf("%d MsgApp are counted as sent, want 1", got)
	}
	if got := b.Stats().Received["Notice"]; got != 1 {
		t.Errorf("%d notices are counted as received, want 1", got)
	}
	eventually(t, "a round trip is measured", func() bool { return a.Peers()[0].RTT > 0 })
}

func testOrderIsKept(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	const total, batch = 5000, 50
	types := []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgAppResp}
	for i := 0; i < total; i += batch {
		var envs []transport.Envelope
		for j := range batch {
			envs = append(envs, message(types[(i+j)%len(types)], 1, 2, uint64(i+j)))
		}
		a.Send(envs)
	}
	eventually(t, "all arrive", func() bool { return len(b.got()) >= total })
	for i, env := range b.got() {
		if got := env.Message.GetIndex(); got != uint64(i) {
			t.Fatalf("message %d arrives as number %d", got, i)
		}
	}
}

func testWrongEnvelopes(t *testing.T, c *cluster) {
	a, b := c.add(1, func(cfg *transport.Config) { cfg.MaxFrameBytes = 64 << 10 }), c.add(2)
	proposal := message(raftpb.MsgApp, 1, 2, 1)
	proposal.Message.Type = raftpb.MsgProp.Enum()
	forged := message(raftpb.MsgApp, 3, 2, 1)
	self := message(raftpb.MsgApp, 1, 1, 1)
	context := message(raftpb.MsgHeartbeatResp, 1, 2, 1)
	context.Message.Context = []byte{1}
	large := message(raftpb.MsgApp, 1, 2, 1)
	large.Message.Entries[0].Data = make([]byte, 64<<10)
	a.Send([]transport.Envelope{
		message(raftpb.MsgHeartbeat, 1, 2, 1), proposal, forged, self, context,
		{},
		large,
		message(raftpb.MsgHeartbeat, 1, 2, 2),
	})
	eventually(t, "the good ones arrive", func() bool { return len(b.got()) == 2 })
	by := a.Stats().DroppedBy
	for reason, want := range map[string]uint64{
		"message_type": 1, "wrong_node": 3, "context": 1, "oversized": 1,
	} {
		if by[reason] != want {
			t.Errorf("%d are dropped for %s, want %d", by[reason], reason, want)
		}
	}
	err := a.SendSnapshot(t.Context(), message(raftpb.MsgApp, 1, 2, 1), nil)
	if !errors.Is(err, transport.ErrInvalid) || !transport.NotDelivered(err) {
		t.Errorf("SendSnapshot of a MsgApp = %v, want ErrInvalid", err)
	}
}

func testUnreachableReported(t *testing.T, c *cluster) {
	a, gone := c.add(1), c.add(2)
	gone.stop()
	eventually(t, "losses are reported", func() bool {
		a.Send([]transport.Envelope{
			message(raftpb.MsgApp, 1, 2, 1), message(raftpb.MsgApp, 1, 2, 2),
			message(raftpb.MsgSnap, 1, 2, 3),
		})
		return len(a.reported(2)) > 0
	})
	want := transport.Dropped{Group: 7, From: 11, To: 12, Snapshot: true}
	if got := a.reported(2); got[0] != want {
		t.Errorf("reported %+v, want %+v once", got, want)
	}
	if st := a.Peers()[0]; st.Up || st.LastError == nil || st.Dropped == 0 {
		t.Errorf("status = %+v, want down, with an error and drops", st)
	}
	// No address at all is reported just as well.
	a.Send([]transport.Envelope{message(raftpb.MsgApp, 1, 9, 1)})
	eventually(t, "a node without address is reported", func() bool {
		return len(a.reported(9)) > 0
	})
}

func testPeerComesAndGoes(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	connectRaft(t, a, b)
	b.stop()
	eventually(t, "the loss is noticed", func() bool { return len(a.changed()) == 2 })
	again := c.add(2, func(cfg *transport.Config) { cfg.Boot = 2 })
	eventually(t, "the return is noticed", func() bool { return len(a.changed()) == 3 })
	connectRaft(t, a, again)
	for i, got := range a.changed() {
		if want := (peerChange{node: 2, up: i%2 == 0}); got != want {
			t.Errorf("change %d is %+v, want %+v", i, got, want)
		}
	}
	if st := a.Peers()[0]; st.Identity.Boot != 2 || st.Connects != 2 {
		t.Errorf("status = %+v, want start 2 and 2 connections", st)
	}
}

func testCloseIsFinal(t *testing.T, c *cluster) {
	a, b := c.add(1), c.add(2)
	connectRaft(t, a, b)
	for range 2 {
		if err := a.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	a.Send([]transport.Envelope{message(raftpb.MsgApp, 1, 2, 1)})
	if got := a.Stats().DroppedBy["closed"]; got != 1 {
		t.Errorf("%d are dropped because of Close, want 1", got)
	}
	_, err := a.Request(t.Context(), 2, 1, nil)
	if !errors.Is(err, transport.ErrClosed) || !errors.Is(err, transport.ErrUnreachable) {
		t.Errorf("Request = %v, want ErrUnreachable and ErrClosed", err)
	}
	err = a.SendSnapshot(t.Context(), message(raftpb.MsgSnap, 1, 2, 1), nil)
	if !errors.Is(err, transport.ErrClosed) || !errors.Is(err, transport.ErrUnreachable) {
		t.Errorf("SendSnapshot = %v, want ErrUnreachable and ErrClosed", err)
	}
	for _, env := range b.got() { // heartbeats from before may still come in
		if env.Message.GetType() == raftpb.MsgApp {
			t.Error("an envelope that was sent after Close has arrived")
		}
	}
}
