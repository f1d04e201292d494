package simnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
	"github.com/raftyard/raftyard/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a network of two nodes.
type rig struct {
	t    *testing.T
	s    *turns.Scheduler
	n    *Network
	st   map[raftyard.NodeID]*turns.Station
	end  map[raftyard.NodeID]*Endpoint
	hear map[raftyard.NodeID]*listener
}

// listener is a handler that writes down what it hears.
type listener struct {
	st       *turns.Station
	got      []uint64 // indexes of messages
	messages []*raftpb.Message
	peers    []string
	dropped  []transport.Dropped
	request  func(ctx context.Context, body []byte) ([]byte, error)
	body     []byte
	bodyErr  error
	snapshot func() error
}

func (l *listener) HandleEnvelopes(_ transport.Identity, batch []transport.Envelope) {
	for i := range batch {
		l.got = append(l.got, batch[i].Message.GetIndex())
		l.messages = append(l.messages, batch[i].Message)
	}
}

func (l *listener) HandleRequest(
	ctx context.Context, _ transport.Identity, _ uint8, body []byte,
) ([]byte, error) {
	return l.request(ctx, body)
}

func (l *listener) HandleSnapshot(
	_ context.Context, _ transport.Identity, _ transport.Envelope, body io.Reader,
) error {
	l.body, l.bodyErr = io.ReadAll(body)
	if l.bodyErr != nil || l.snapshot == nil {
		return l.bodyErr
	}
	return l.snapshot()
}

func (l *listener) PeerChanged(id raftyard.NodeID, isUp bool) {
	l.peers = append(l.peers, fmt.Sprintf("%d %t", id, isUp))
}

func (l *listener) HandleUnreachable(_ raftyard.NodeID, dropped []transport.Dropped) {
	l.dropped = append(l.dropped, dropped...)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := turns.New(turns.Config{Dice: rand.New(rand.NewPCG(1, 2))})
	t.Cleanup(s.Close)
	r := &rig{
		t: t, s: s, n: New(Config{Scheduler: s, Dice: rand.New(rand.NewPCG(3, 4))}),
		st: map[raftyard.NodeID]*turns.Station{}, end: map[raftyard.NodeID]*Endpoint{},
		hear: map[raftyard.NodeID]*listener{},
	}
	r.start(1, 1, 1)
	r.start(2, 2, 1)
	r.end[1].Connect(2)
	r.end[2].Connect(1)
	r.until(func() bool { return r.up(1, 2) && r.up(2, 1) })
	return r
}

func (r *rig) start(id raftyard.NodeID, store byte, boot uint64) {
	st := r.s.NewStation(id.String(), time.Unix(0, 0), 1)
	l := &listener{st: st}
	r.st[id], r.hear[id] = st, l
	r.end[id] = r.n.Listen(st, transport.Config{
		Identity: transport.Identity{Node: id, Store: uuid.UUID{store}, Boot: boot}, Handler: l,
	})
}

// crash ends node 2.
func (r *rig) crash() {
	r.n.Crash(2)
	r.st[2].Kill()
}

func (r *rig) up(from, to raftyard.NodeID) bool {
	peers := r.end[from].Peers()
	i := slices.IndexFunc(peers, func(p transport.PeerStatus) bool { return p.Node == to })
	return i >= 0 && peers[i].Up
}

func (r *rig) until(ready func() bool) {
	r.t.Helper()
	limit := r.s.Time() + time.Minute
	r.s.At(int64(limit), func() {})
	if !r.s.Until(func() bool { return ready() || r.s.Time() >= limit }) || !ready() {
		r.t.Fatalf("not within a minute: %v", r.s.Err())
	}
}

func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.s.Time() + d
	r.s.At(int64(end), func() {})
	r.until(func() bool { return r.s.Time() >= end })
}

func envelope(index uint64) transport.Envelope {
	return transport.Envelope{
		Group: 1, Incarnation: raftyard.Incarnation{1}, Epoch: 1,
		From: transport.Endpoint{Node: 1, Replica: 1}, To: transport.Endpoint{Node: 2, Replica: 2},
		Message: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
			Term: new(uint64(3)), Index: &index, LogTerm: new(uint64(2)), Commit: new(uint64(1)),
			Entries: []*raftpb.Entry{{
				Type: raftpb.EntryNormal.Enum(), Term: new(uint64(3)), Index: new(index + 1),
				Data: []byte("data"),
			}},
		},
	}
}

func (r *rig) send(indexes ...uint64) {
	for _, i := range indexes {
		r.end[1].Send([]transport.Envelope{envelope(i)})
	}
}

func (r *rig) set(change func(*Faults)) { r.n.SetFaults(Route{1, 2}, change) }

func TestDeliversInOrderAndSharesNothing(t *testing.T) {
	r := newRig(t)
	env := envelope(1)
	r.end[1].Send([]transport.Envelope{env, envelope(2), envelope(3)})
	r.send(4, 5)
	r.until(func() bool { return len(r.hear[2].got) == 5 })
	if want := []uint64{1, 2, 3, 4, 5}; !slices.Equal(r.hear[2].got, want) {
		t.Errorf("got %v, want %v", r.hear[2].got, want)
	}
	env.Message.Entries[0].Data[0] = 'X'
	data := r.hear[2].messages[0].GetEntries()[0].GetData()
	if !bytes.Equal(data, []byte("data")) {
		t.Errorf("the receiver sees what the sender does: %q", data)
	}
	if len(r.hear[1].dropped) > 0 {
		t.Errorf("dropped %v", r.hear[1].dropped)
	}
}

func TestLossIsReported(t *testing.T) {
	r := newRig(t)
	r.set(func(f *Faults) { f.Loss = 1 })
	r.send(1, 2)
	r.until(func() bool { return len(r.hear[1].dropped) > 0 })
	if d := r.hear[1].dropped; len(d) != 1 || d[0].From != 1 || d[0].To != 2 || d[0].Snapshot {
		t.Errorf("dropped %+v, want the pair once", d)
	}
	if len(r.hear[2].got) > 0 {
		t.Errorf("got %v", r.hear[2].got)
	}
}

func TestDuplicatesAndReorders(t *testing.T) {
	r := newRig(t)
	r.set(func(f *Faults) { f.Duplicate, f.Reorder = 0.5, 0.5 })
	for i := range uint64(50) {
		r.send(i + 1)
	}
	r.pass(time.Second)
	got := r.hear[2].got
	if slices.IsSorted(got) || len(got) <= 50 {
		t.Errorf("%d envelopes of 50, in order: %t", len(got), slices.IsSorted(got))
	}
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 50 {
		t.Errorf("%d of 50 have come", n)
	}
}

func TestCutIsOneWayAndHeals(t *testing.T) {
	r := newRig(t)
	r.set(func(f *Faults) { f.Cut = true })
	r.send(1, 2)
	back := envelope(7)
	back.From, back.To = back.To, back.From
	back.Message.From, back.Message.To = back.Message.To, back.Message.From
	r.end[2].Send([]transport.Envelope{back})
	r.pass(300 * time.Millisecond)
	if len(r.hear[2].got) != 0 || len(r.hear[1].got) != 1 {
		t.Fatalf("got %v and %v, want nothing one way and one message the other",
			r.hear[2].got, r.hear[1].got)
	}
	r.set(func(f *Faults) { f.Cut = false })
	r.until(func() bool { return len(r.hear[2].got) == 2 })
	if !slices.Equal(r.hear[2].got, []uint64{1, 2}) {
		t.Errorf("got %v after the cut", r.hear[2].got)
	}
}

func TestLongCutBreaksTheConnection(t *testing.T) {
	r := newRig(t)
	r.set(func(f *Faults) { f.Cut = true })
	r.send(1)
	r.until(func() bool { return !r.up(1, 2) })
	r.until(func() bool { return len(r.hear[1].dropped) == 1 })
	if !slices.Contains(r.hear[1].peers, "2 false") {
		t.Errorf("the handler has heard %q", r.hear[1].peers)
	}
	r.set(func(f *Faults) { f.Cut = false })
	r.until(func() bool { return r.up(1, 2) })
	r.pass(time.Second)
	if len(r.hear[2].got) > 0 {
		t.Errorf("got %v, which was lost with the connection", r.hear[2].got)
	}
}

// ask sends a request from node 1 and returns what comes of it.
func (r *rig) ask(patience time.Duration) (answer []byte, err error) {
	r.t.Helper()
	done := false
	r.st[1].Go("ask", func() {
		defer func() { done = true }()
		ctx, cancel := r.st[1].WithTimeout(r.t.Context(), patience)
		defer cancel()
		answer, err = r.end[1].Request(ctx, 2, 1, []byte("q"))
	})
	r.until(func() bool { return done })
	return answer, err
}

func TestRequests(t *testing.T) {
	remote := &transport.RemoteError{Code: 7, Message: "no", Body: []byte("b")}
	fault := func(change func(*Faults)) func(r *rig) { return func(r *rig) { r.set(change) } }
	tests := []struct {
		name    string
		prepare func(r *rig)
		answer  func(r *rig, ctx context.Context, body []byte) ([]byte, error)
		want    error
		isSafe  bool // certainly not handled
	}{
		{name: "answered", answer: echo},
		{name: "refused", answer: func(*rig, context.Context, []byte) ([]byte, error) {
			return nil, remote
		}, want: remote},
		{
			name: "busy", prepare: fault(func(f *Faults) { f.Busy = 1 }),
			answer: echo, want: transport.ErrBusy, isSafe: true,
		},
		{
			name: "request lost", prepare: fault(func(f *Faults) { f.LoseRequest = 1 }),
			answer: echo, want: transport.ErrUnknown,
		},
		{
			name: "answer lost", prepare: fault(func(f *Faults) { f.LoseAnswer = 1 }),
			answer: echo, want: transport.ErrUnknown,
		},
		{name: "peer gone", prepare: func(r *rig) {
			r.crash()
			r.until(func() bool { return !r.up(1, 2) })
		}, answer: echo, want: transport.ErrUnreachable, isSafe: true},
		{
			name: "cut", prepare: fault(func(f *Faults) { f.Cut = true }),
			answer: echo, want: transport.ErrUnknown,
		},
		{name: "peer dies", answer: func(r *rig, _ context.Context, _ []byte) ([]byte, error) {
			r.s.After(0, func() { r.crash() })
			r.st[2].Until(func() bool { return false })
			return nil, nil
		}, want: transport.ErrUnknown},
		{name: "too slow", answer: func(r *rig, ctx context.Context, _ []byte) ([]byte, error) {
			r.st[2].Sleep(ctx, time.Hour)
			return nil, ctx.Err()
		}, want: transport.ErrUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.hear[2].request = func(ctx context.Context, body []byte) ([]byte, error) {
				return tt.answer(r, ctx, body)
			}
			if tt.prepare != nil {
				tt.prepare(r)
			}
			answer, err := r.ask(3 * time.Second)
			if tt.want == nil && (err != nil || string(answer) != "q") {
				t.Fatalf("%q, %v", answer, err)
			}
			if errors.Is(tt.want, remote) {
				got, ok := errors.AsType[*transport.RemoteError](err)
				if !ok || got.Code != 7 || string(got.Body) != "b" {
					t.Fatalf("error is %v, want the handler's", err)
				}
			} else if !errors.Is(err, tt.want) {
				t.Fatalf("error is %v, want %v", err, tt.want)
			}
			if transport.NotDelivered(err) != tt.isSafe {
				t.Errorf("NotDelivered(%v) is %t", err, !tt.isSafe)
			}
		})
	}
}

func echo(_ *rig, _ context.Context, body []byte) ([]byte, error) { return body, nil }

// content is a state that takes several chunks.
type content []byte

func (c content) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(c)
	return int64(n), err
}

func snapshotEnvelope() transport.Envelope {
	env := envelope(0)
	env.Message = &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(3)),
		Snapshot: &raftpb.Snapshot{
			Data: []byte("manifest"),
			Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(9)), Term: new(uint64(2)),
				ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}},
			},
		},
	}
	return env
}

func TestSnapshots(t *testing.T) {
	refusal := errors.New("not wanted")
	tests := []struct {
		name    string
		prepare func(r *rig)
		whole   bool // the receiver has got everything
		want    error
	}{
		{name: "taken", whole: true},
		{name: "refused", prepare: func(r *rig) {
			r.hear[2].snapshot = func() error { return refusal }
		}, whole: true, want: &transport.RemoteError{}},
		{name: "breaks", prepare: func(r *rig) {
			r.set(func(f *Faults) { f.BreakSnapshot = 0.3 })
		}, want: transport.ErrUnknown},
		{name: "cut", prepare: func(r *rig) {
			r.set(func(f *Faults) { f.ChunkDelay = 50 * time.Millisecond })
			r.s.After(100*time.Millisecond, func() { r.set(func(f *Faults) { f.Cut = true }) })
		}, want: transport.ErrUnknown},
		{name: "cut for moments", prepare: func(r *rig) {
			r.set(func(f *Faults) { f.Jitter = 50 * time.Millisecond })
			for at := 110 * time.Millisecond; at < time.Second; at += 7 * time.Millisecond {
				r.s.After(at, func() { r.set(func(f *Faults) { f.Cut = !f.Cut }) })
			}
		}, whole: true},
		{name: "receiver dies", prepare: func(r *rig) {
			r.set(func(f *Faults) { f.ChunkDelay = 50 * time.Millisecond })
			r.s.After(100*time.Millisecond, func() { r.crash() })
		}, want: transport.ErrUnknown},
		{name: "nobody there", prepare: (*rig).crash, want: transport.ErrUnreachable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			if tt.prepare != nil {
				tt.prepare(r)
			}
			sent := content(bytes.Repeat([]byte("0123456789abcdef"), 400))
			var err error
			done := false
			r.st[1].Go("send", func() {
				defer func() { done = true }()
				err = r.end[1].SendSnapshot(t.Context(), snapshotEnvelope(), sent)
			})
			r.until(func() bool { return done })
			r.pass(time.Second) // the receiver ends, too
			l := r.hear[2]
			if whole := l.bodyErr == nil && bytes.Equal(l.body, sent); whole != tt.whole {
				t.Errorf("the receiver has %d bytes and %v", len(l.body), l.bodyErr)
			}
			if _, remote := tt.want.(*transport.RemoteError); remote { //nolint:errorlint // a mark
				_, ok := errors.AsType[*transport.RemoteError](err)
				if !ok {
					t.Errorf("error is %v, want the receiver's", err)
				}
			} else if !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOldStartIsRefused(t *testing.T) {
	r := newRig(t)
	r.crash()
	r.until(func() bool { return !r.up(1, 2) })
	r.start(2, 2, 5)
	r.until(func() bool { return r.up(1, 2) })
	r.crash()
	r.until(func() bool { return !r.up(1, 2) })
	r.start(2, 2, 4) // an older copy of the directory
	r.end[2].Connect(1)
	r.pass(10 * time.Second)
	if r.up(1, 2) || r.up(2, 1) {
		t.Error("an older start is connected")
	}
	r.crash()
	r.start(2, 2, 6)
	r.until(func() bool { return r.up(1, 2) })
}

func TestInterceptor(t *testing.T) {
	r := newRig(t)
	r.n.Intercept(func(env *transport.Envelope) Verdict {
		switch env.Message.GetIndex() {
		case 1:
			return Verdict{Drop: true}
		case 2, 3:
			return Verdict{Hold: "held"}
		case 4:
			return Verdict{Delay: time.Second}
		}
		return Verdict{}
	})
	r.send(1, 2, 3, 4, 5)
	r.pass(100 * time.Millisecond)
	if got := r.hear[2].got; !slices.Equal(got, []uint64{5}) || r.n.Held("held") != 2 {
		t.Fatalf("got %v, %d held", got, r.n.Held("held"))
	}
	r.n.Release("held", true)
	r.pass(2 * time.Second)
	if want := []uint64{5, 3, 2, 4}; !slices.Equal(r.hear[2].got, want) {
		t.Errorf("got %v, want %v", r.hear[2].got, want)
	}
}

func TestCloseWaitsForHandlers(t *testing.T) {
	r := newRig(t)
	released, closed, handled := false, false, false
	r.hear[2].request = func(ctx context.Context, _ []byte) ([]byte, error) {
		r.st[2].Until(func() bool { return ctx.Err() != nil && released })
		handled = true
		return nil, ctx.Err()
	}
	r.st[1].Go("ask", func() { _, _ = r.end[1].Request(t.Context(), 2, 1, nil) })
	r.until(func() bool { return r.end[2].serving == 1 })
	r.st[2].Go("close", func() {
		if err := r.end[2].Close(); err != nil {
			t.Error(err)
		}
		closed = true
	})
	r.pass(time.Second)
	if closed {
		t.Error("Close has returned while a handler works")
	}
	released = true
	r.st[2].Touch()
	r.until(func() bool { return closed })
	if !handled {
		t.Error("the handler was not waited for")
	}
}

// TestMoved: a node that listens elsewhere is found only by those who know where.
func TestMoved(t *testing.T) {
	r := newRig(t)
	where := "elsewhere"
	at := func(addr string) func(raftyard.NodeID, string) []string {
		return func(raftyard.NodeID, string) []string { return []string{addr} }
	}
	r.crash()
	st := r.s.NewStation("2", time.Unix(0, 0), 1)
	r.end[2] = r.n.Listen(st, transport.Config{
		Identity: transport.Identity{Node: 2, Store: uuid.UUID{2}, Boot: 2},
		Handler:  &listener{st: st}, Listen: where,
	})
	r.s.At(int64(r.s.Time()+10*time.Second), func() {})
	limit := r.s.Time() + 10*time.Second
	r.until(func() bool { return r.s.Time() >= limit })
	if r.up(1, 2) {
		t.Error("it is found where it was")
	}
	r.end[1].cfg.Resolve = at(where)
	r.until(func() bool { return r.up(1, 2) })
	r.end[1].cfg.Resolve = at(Address(1))
	r.end[1].known(2).fail(errBroken)
	limit = r.s.Time() + 10*time.Second
	r.s.At(int64(limit), func() {})
	r.until(func() bool { return r.s.Time() >= limit })
	if r.up(1, 2) {
		t.Error("another node is taken for it")
	}
}

// TestConnected: a connection is of both of its ends, and came up at some moment.
func TestConnected(t *testing.T) {
	r := newRig(t)
	for _, id := range []raftyard.NodeID{1, 2} {
		if got := r.n.Connected(id, 0); !slices.Equal(got, []raftyard.NodeID{3 - id}) {
			t.Errorf("node %d is connected with %v, want the other one", id, got)
		}
	}
	now := r.s.Time()
	if got := r.n.Connected(1, now); len(got) > 0 {
		t.Errorf("connections with %v have come up after %v, want none", got, now)
	}
	r.crash()
	r.until(func() bool { return !r.up(1, 2) })
	if got := r.n.Connected(1, 0); len(got) > 0 {
		t.Errorf("node 1 is connected with %v, which has crashed", got)
	}
	r.start(2, 2, 5)
	r.until(func() bool { return r.up(1, 2) })
	if got := r.n.Connected(2, now); !slices.Equal(got, []raftyard.NodeID{1}) {
		t.Errorf("connections with %v have come up after %v, want node 1", got, now)
	}
}

// TestRefusedLater: a node that has dialled loses its connection when it is not admitted
// any more, and gets none again before it is.
func TestRefusedLater(t *testing.T) {
	r := newRig(t)
	refuses := true
	r.end[2].cfg.Admit = func(transport.Identity) *transport.RefusalError {
		if refuses {
			return &transport.RefusalError{Code: transport.RefusedRemoved, Text: "removed"}
		}
		return nil
	}
	r.pass(2 * pingEvery)
	if r.up(1, 2) {
		t.Error("a node that is not admitted any more is connected")
	}
	refuses = false
	r.until(func() bool { return r.up(1, 2) })
}
