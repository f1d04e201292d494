package transport

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// TestGoldenFrames pins every frame, byte by byte. The scripts are the examples
// of docs/formats/transport.md: a diff here is a change of the protocol.
func TestGoldenFrames(t *testing.T) {
	datadriven.Walk(t, "testdata/frames", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return hex.Dump(goldenFrame(t, d))
		})
	})
}

func goldenFrame(t *testing.T, d *datadriven.TestData) []byte {
	t.Helper()
	switch d.Cmd {
	case "hello":
		h := testHello()
		return append([]byte(magic), appendFrame(nil, frameHello, encodeHello(&h))...)
	case "welcome":
		w := testWelcome()
		return append([]byte(magic), appendFrame(nil, frameWelcome, encodeWelcome(&w))...)
	case "refusal":
		ref := refuse(RefusedCluster, "%s", strings.TrimSpace(d.Input))
		return append([]byte(magic), appendFrame(nil, frameRefusal, encodeRefusal(ref))...)
	case "ping", "pong":
		typ := framePing
		if d.Cmd == "pong" {
			typ = framePong
		}
		return appendFrame(nil, typ, append(make([]byte, 7), 5, 0, 0, 0, 0, 0, 0, 1, 0))
	case "envelopes", "snapshot":
		typ := frameEnvelopes
		if d.Cmd == "snapshot" {
			typ = frameSnapshot
		}
		return appendFrame(nil, typ, appendBatch(nil, 1, 2, goldenBatch(t, d)))
	default:
		return goldenAnswer(t, d)
	}
}

func goldenAnswer(t *testing.T, d *datadriven.TestData) []byte {
	t.Helper()
	input := []byte(strings.TrimSpace(d.Input))
	var id, code uint64
	d.MaybeScanArgs(t, "id", &id)
	d.MaybeScanArgs(t, "code", &code)
	outcome := answer{body: input}
	switch {
	case d.HasArg("busy"):
		outcome = answerOf(nil, ErrBusy)
	case d.HasArg("unknown"):
		outcome = answerOf(nil, ErrUnknown)
	case d.HasArg("error"):
		err := &RemoteError{Code: uint16(code), Message: string(input), Body: []byte{9}}
		outcome = answerOf(nil, err)
	}
	switch d.Cmd {
	case "request":
		r := request{id: id, left: 5 * time.Second, kind: 3, body: input}
		return appendFrame(nil, frameRequest, appendRequest(nil, &r))
	case "cancel":
		return appendFrame(nil, frameCancel, appendCancel(nil, id))
	case "answer":
		return appendFrame(nil, frameAnswer, appendAnswer(wire.AppendUvarint(nil, id), &outcome))
	case "accept":
		return appendFrame(nil, frameAccept, nil)
	case "taken":
		return appendFrame(nil, framePing, appendTaken(nil, 256<<10))
	case "chunk":
		return appendFrame(nil, frameChunk, appendChunk(nil, 256<<10, input))
	case "end":
		e := snapshotEnd{size: 300_000, hash: [32]byte{0xaa, 31: 0xbb}}
		return appendFrame(nil, frameEnd, appendEnd(nil, &e))
	case "abort":
		return appendFrame(nil, frameAbort, appendAbort(nil, string(input)))
	case "verdict":
		return appendFrame(nil, frameVerdict, appendAnswer(nil, &outcome))
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return nil
	}
}

// goldenBatch reads envelopes: each line is a message in the text form of
// protobuf, or "notice" and its kind.
func goldenBatch(t *testing.T, d *datadriven.TestData) []Envelope {
	t.Helper()
	var batch []Envelope
	for line := range strings.Lines(d.Input) {
		env := Envelope{
			Group: 300, Incarnation: raftyard.Incarnation(uuid.UUID{0x11, 15: 0x22}), Epoch: 4,
			From: Endpoint{Node: 1, Replica: 11}, To: Endpoint{Node: 2, Replica: 12},
		}
		if kind, ok := strings.CutPrefix(line, "notice"); ok {
			env.Notice = goldenNotice(strings.TrimSpace(kind))
		} else {
			env.Message = new(raftpb.Message)
			if err := prototext.Unmarshal([]byte(line), env.Message); err != nil {
				d.Fatalf(t, "%v", err)
			}
			env.Message.From, env.Message.To = new(uint64(11)), new(uint64(12))
		}
		if why := checkEnvelope(&env, 1, 2); why != dropNothing {
			d.Fatalf(t, "%s is not valid: %s", line, why)
		}
		batch = append(batch, env)
	}
	return batch
}

func goldenNotice(kind string) *Notice {
	switch kind {
	case "behind":
		return &Notice{Kind: NoticeBehind, Epoch: 9, NextReplica: 14, Index: 500, Term: 7}
	case "beat":
		return &Notice{Kind: NoticeBeat, Turn: 3}
	case "sleep":
		return &Notice{Kind: NoticeSleep, Turn: 3, Behind: 4, Index: 500, Term: 7}
	case "asleep":
		return &Notice{Kind: NoticeAsleep, Index: 500, Term: 7}
	case "awake":
		return &Notice{Kind: NoticeAwake, Index: 500, Term: 7}
	default:
		return &Notice{Kind: NoticeRemoved, Epoch: 9, NextReplica: 14}
	}
}

// TestFrameTypesArePinned fails when a frame type changes its number.
func TestFrameTypesArePinned(t *testing.T) {
	for want, typ := range []frameType{
		frameHello, frameWelcome, frameRefusal, framePing, framePong, frameEnvelopes, frameRequest,
		frameCancel, frameAnswer, frameSnapshot, frameAccept, frameChunk, frameEnd, frameAbort,
		frameVerdict,
	} {
		if int(typ) != want+1 {
			t.Errorf("frame type %d, want %d", typ, want+1)
		}
	}
	if RefusedVersion != 1 || RefusedFull != 8 {
		t.Errorf("refusal codes %d to %d, want 1 to 8", RefusedVersion, RefusedFull)
	}
}
