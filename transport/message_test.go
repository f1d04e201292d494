package transport

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// sentTypes are the types that the whitelist lets through.
var sentTypes = []raftpb.MessageType{
	raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp,
	raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
	raftpb.MsgSnap, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp,
}

func drawNumber(t *rapid.T, name string) *uint64 {
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
		return nil
	case 1:
		return new(rapid.Uint64Range(0, 3).Draw(t, name))
	default:
		return new(rapid.Uint64().Draw(t, name))
	}
}

func drawBytes(t *rapid.T, name string, most int) []byte {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, name)
}

func drawBool(t *rapid.T, name string) *bool {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return new(rapid.Bool().Draw(t, name))
}

// drawEntry draws an entry, which often follows the one before.
func drawEntry(t *rapid.T, term, index uint64) *raftpb.Entry {
	e := &raftpb.Entry{Data: drawBytes(t, "data", 40)}
	if rapid.Bool().Draw(t, "has type") {
		e.Type = raftpb.EntryType(rapid.IntRange(0, 2).Draw(t, "entry type")).Enum()
	}
	if rapid.Bool().Draw(t, "follows") {
		e.Term, e.Index = &term, new(index+1)
		return e
	}
	e.Term, e.Index = drawNumber(t, "entry term"), drawNumber(t, "entry index")
	return e
}

func drawSnapshot(t *rapid.T) *raftpb.Snapshot {
	s := &raftpb.Snapshot{Data: drawBytes(t, "manifest", 40)}
	if rapid.Bool().Draw(t, "no metadata") {
		return s
	}
	s.Metadata = &raftpb.SnapshotMetadata{
		Index: drawNumber(t, "snapshot index"), Term: drawNumber(t, "snapshot term"),
	}
	if rapid.Bool().Draw(t, "no conf state") {
		return s
	}
	ids := rapid.SliceOfN(rapid.Uint64(), 0, 4)
	s.Metadata.ConfState = &raftpb.ConfState{
		Voters:         ids.Draw(t, "voters"),
		Learners:       ids.Draw(t, "learners"),
		VotersOutgoing: ids.Draw(t, "outgoing"),
		LearnersNext:   ids.Draw(t, "next"),
		AutoLeave:      drawBool(t, "auto leave"),
	}
	return s
}

// drawMessage draws any message that can be written, whether or not it would
// pass the checks.
func drawMessage(t *rapid.T) *raftpb.Message {
	m := &raftpb.Message{
		Type:       rapid.SampledFrom(sentTypes).Draw(t, "type").Enum(),
		From:       new(rapid.Uint64().Draw(t, "from")),
		To:         new(rapid.Uint64().Draw(t, "to")),
		Term:       drawNumber(t, "term"),
		LogTerm:    drawNumber(t, "log term"),
		Index:      drawNumber(t, "index"),
		Commit:     drawNumber(t, "commit"),
		Vote:       drawNumber(t, "vote"),
		Reject:     drawBool(t, "reject"),
		RejectHint: drawNumber(t, "hint"),
		Context:    drawBytes(t, "context", 70),
	}
	term, index := m.GetLogTerm(), m.GetIndex()
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		e := drawEntry(t, term, index)
		term, index = e.GetTerm(), e.GetIndex()
		m.Entries = append(m.Entries, e)
	}
	if rapid.Bool().Draw(t, "has snapshot") {
		m.Snapshot = drawSnapshot(t)
	}
	return m
}

func drawEnvelope(t *rapid.T) Envelope {
	env := Envelope{
		Group: raftyard.GroupID(rapid.Uint64().Draw(t, "group")),
		Epoch: rapid.Uint64().Draw(t, "epoch"),
		From:  Endpoint{Node: 1}, To: Endpoint{Node: 2},
	}
	copy(env.Incarnation[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "incarnation"))
	if rapid.IntRange(0, 5).Draw(t, "notice") == 0 {
		env.From.Replica = raftyard.ReplicaID(rapid.Uint64().Draw(t, "from"))
		env.To.Replica = raftyard.ReplicaID(rapid.Uint64().Draw(t, "to"))
		n := &Notice{Kind: NoticeKind(rapid.Byte().Draw(t, "kind"))}
		first, second := rapid.Uint64().Draw(t, "first"), rapid.Uint64().Draw(t, "second")
		if n.Kind.isOfSleep() {
			n.Turn, n.Behind = first, second
		} else {
			n.Epoch, n.NextReplica = first, raftyard.ReplicaID(second)
		}
		env.Notice = n
		return env
	}
	env.Message = drawMessage(t)
	env.From.Replica = raftyard.ReplicaID(env.Message.GetFrom())
	env.To.Replica = raftyard.ReplicaID(env.Message.GetTo())
	return env
}

// diffEnvelopes returns what differs, or nothing.
func diffEnvelopes(a, b *Envelope) string {
	x, y := *a, *b
	x.Message, y.Message, x.Notice, y.Notice = nil, nil, nil, nil
	switch {
	case x != y:
		return fmt.Sprintf("%+v is not %+v", x, y)
	case (a.Notice == nil) != (b.Notice == nil), a.Notice != nil && *a.Notice != *b.Notice:
		return fmt.Sprintf("notice %+v is not %+v", a.Notice, b.Notice)
	case !proto.Equal(a.Message, b.Message):
		return fmt.Sprintf("message %s is not %s",
			prototext.Format(a.Message), prototext.Format(b.Message))
	}
	return ""
}

func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.SliceOfN(rapid.Custom(drawEnvelope), 1, 4).Draw(t, "batch")
		size := batchOverhead
		for i := range batch {
			size += sizeEnvelope(&batch[i])
		}
		body := appendBatch(nil, 1, 2, batch)
		if len(body) > size {
			t.Fatalf("%d bytes, more than the bound of %d", len(body), size)
		}
		got, err := decodeBatch(nil, body)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(batch) {
			t.Fatalf("%d envelopes, want %d", len(got), len(batch))
		}
		for i := range batch {
			if d := diffEnvelopes(&got[i], &batch[i]); d != "" {
				t.Fatalf("envelope %d: %s", i, d)
			}
		}
		// Every message says itself whether payloads point into the frame.
		for cut := range min(len(body), 100) {
			if _, err := decodeBatch(nil, body[:cut]); err == nil {
				t.Fatalf("the first %d of %d bytes are accepted", cut, len(body))
			}
		}
	})
}

// TestFramesAndBatchesAreUsedAgain: nothing that was decoded is a part of the frame, and
// nothing is left in a batch that is used for another frame.
func TestFramesAndBatchesAreUsedAgain(t *testing.T) {
	var batch []Envelope
	for _, typ := range append(slices.Clone(sentTypes), sentTypes...) {
		sent := appendEnvelopeOf(t, typ)
		body := appendBatch(nil, 1, 2, []Envelope{sent, sent})
		got, err := decodeBatch(batch, body)
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		for i := range body {
			body[i] = '#'
		}
		for i := range got {
			if d := diffEnvelopes(&got[i], &sent); d != "" {
				t.Errorf("%s: the frame is used again, and %s", typ, d)
			}
		}
		if batch != nil && &got[0] != &batch[:1][0] {
			t.Errorf("%s: the memory of the batch is not used again", typ)
		}
		batch = got[:0]
	}
	notice := Envelope{
		Group: 1, From: Endpoint{1, 1}, To: Endpoint{2, 2},
		Notice: &Notice{Kind: NoticeRemoved, Epoch: 9, NextReplica: 4},
	}
	got, err := decodeBatch(batch, appendBatch(nil, 1, 2, []Envelope{notice}))
	if err != nil || got[0].Message != nil {
		t.Errorf("a notice has the message %v of the batch before, %v", got[0].Message, err)
	}
}

// appendEnvelopeOf returns a valid envelope of a type, from node 1 to node 2.
func appendEnvelopeOf(tb testing.TB, typ raftpb.MessageType) Envelope {
	tb.Helper()
	m := &raftpb.Message{
		Type: typ.Enum(), From: new(uint64(11)), To: new(uint64(12)), Term: new(uint64(5)),
	}
	switch typ {
	case raftpb.MsgApp:
		m.Index, m.LogTerm, m.Commit = new(uint64(7)), new(uint64(4)), new(uint64(6))
		m.Entries = []*raftpb.Entry{
			{
				Term: new(uint64(5)), Index: new(uint64(8)), Data: []byte("data"),
				Type: raftpb.EntryNormal.Enum(),
			},
		}
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		m.Commit, m.Context = new(uint64(6)), make([]byte, 8)
	case raftpb.MsgSnap:
		m.Snapshot = &raftpb.Snapshot{
			Data: []byte("manifest"),
			Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(9)), Term: new(uint64(5)),
				ConfState: &raftpb.ConfState{Voters: []uint64{11, 12}},
			},
		}
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		m.Entries = []*raftpb.Entry{{Data: []byte("context")}}
		if typ == raftpb.MsgReadIndex {
			m.Term = nil
		}
	default:
		m.Index, m.LogTerm = new(uint64(7)), new(uint64(4))
	}
	return Envelope{
		Group: 3, Incarnation: raftyard.Incarnation{1, 2, 3}, Epoch: 4,
		From: Endpoint{Node: 1, Replica: 11}, To: Endpoint{Node: 2, Replica: 12},
		Message: m,
	}
}

func TestDecoderBoundsWhatItAllocates(t *testing.T) {
	head := func(n uint64) []byte {
		b := wire.AppendUvarint(nil, 1)
		b = wire.AppendUvarint(b, 2)
		return wire.AppendUvarint(b, n)
	}
	env := appendEnvelope(nil, new(appendEnvelopeOf(t, raftpb.MsgHeartbeat)))
	many := head(maxEnvelopes + 1)
	for range maxEnvelopes + 1 {
		many = append(many, env...)
	}
	app := appendEnvelopeOf(t, raftpb.MsgApp)
	app.Message.Entries = make([]*raftpb.Entry, maxEntries+1)
	for i := range app.Message.Entries {
		app.Message.Entries[i] = &raftpb.Entry{}
	}
	snaps := func(envelopes, ids int) []byte {
		snap := appendEnvelopeOf(t, raftpb.MsgSnap)
		snap.Message.Snapshot.Metadata.ConfState.LearnersNext = make([]uint64, ids)
		return appendBatch(nil, 1, 2, slices.Repeat([]Envelope{snap}, envelopes))
	}
	if _, err := decodeBatch(nil, snaps(maxIDs/maxConfIDs-1, maxConfIDs)); err != nil {
		t.Errorf("as many ids as are allowed: %v", err)
	}
	for name, body := range map[string][]byte{
		"too many ids":              snaps(1, maxConfIDs+1),
		"far too many ids":          snaps(1, 15<<20),
		"too many ids together":     snaps(maxIDs/maxConfIDs, maxConfIDs),
		"more envelopes than bytes": head(1 << 40),
		"too many envelopes":        many,
		"too many entries":          appendBatch(nil, 1, 2, []Envelope{app}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decodeBatch(nil, body); err == nil {
			t.Errorf("%s: no error", name)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 32<<20 {
			t.Errorf("%s: %d MiB are allocated", name, got>>20)
		}
	}
}

func FuzzBatch(f *testing.F) {
	for _, typ := range sentTypes {
		f.Add(appendBatch(nil, 1, 2, []Envelope{appendEnvelopeOf(f, typ)}))
	}
	f.Add(appendBatch(nil, 1, 2, []Envelope{{
		Group: 1, From: Endpoint{1, 1}, To: Endpoint{2, 2},
		Notice: &Notice{Kind: NoticeRemoved, Epoch: 9, NextReplica: 4},
	}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		batch, err := decodeBatch(nil, body)
		if err != nil || len(batch) == 0 {
			return
		}
		for i := range batch {
			checkEnvelope(&batch[i], batch[i].From.Node, batch[i].To.Node)
			if m := batch[i].Message; m != nil && !encodable(m) {
				return // such as a type beyond 127
			}
		}
		again := appendBatch(nil, batch[0].From.Node, batch[0].To.Node, batch)
		second, err := decodeBatch(nil, again)
		if err != nil {
			t.Fatalf("what was decoded and encoded again is refused: %v", err)
		}
		for i := range batch {
			if d := diffEnvelopes(&batch[i], &second[i]); d != "" {
				t.Fatal(d)
			}
		}
	})
}

// benchmarkMessage returns a MsgApp with n entries of 128 bytes, or a heartbeat.
func benchmarkMessage(b *testing.B, n int) Envelope {
	b.Helper()
	if n == 0 {
		return appendEnvelopeOf(b, raftpb.MsgHeartbeat)
	}
	env := appendEnvelopeOf(b, raftpb.MsgApp)
	env.Message.Entries = nil
	for i := range n {
		env.Message.Entries = append(env.Message.Entries, &raftpb.Entry{
			Term: new(uint64(5)), Index: new(uint64(8 + i)),
			Type: raftpb.EntryNormal.Enum(), Data: make([]byte, 128),
		})
	}
	return env
}

// BenchmarkEncode compares the codec with protobuf's on one message: it must
// not allocate, and cost a fraction.
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{0, 1, 64} {
		env := benchmarkMessage(b, n)
		buf := make([]byte, 0, 64<<10)
		b.Run(fmt.Sprintf("entries=%d/codec=own", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = appendEnvelope(buf[:0], &env)
			}
		})
		b.Run(fmt.Sprintf("entries=%d/codec=proto", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := proto.MarshalOptions{}.MarshalAppend(buf[:0], env.Message)
				if err != nil {
					b.Fatal(err)
				}
				buf = out
			}
		})
	}
}

// BenchmarkDecode compares the codec with protobuf's on one message: its
// allocations must not grow with the number of entries.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{0, 1, 64} {
		env := benchmarkMessage(b, n)
		body := appendBatch(nil, 1, 2, []Envelope{env})
		b.Run(fmt.Sprintf("entries=%d/codec=own", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeBatch(nil, body); err != nil {
					b.Fatal(err)
				}
			}
		})
		raw, err := proto.Marshal(env.Message)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("entries=%d/codec=proto", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(raw, new(raftpb.Message)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
