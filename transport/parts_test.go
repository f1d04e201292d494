package transport

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
)

// numbered returns an envelope that carries a number.
func numbered(tb testing.TB, typ raftpb.MessageType, n int) Envelope {
	tb.Helper()
	env := appendEnvelopeOf(tb, typ)
	env.Epoch = uint64(n)
	return env
}

func TestQueueDropsTheCheapestFirst(t *testing.T) {
	q := newQueue(1<<20, 4)
	var dropped []uint64
	push := func(typ raftpb.MessageType, n int) {
		q.push([]Envelope{numbered(t, typ, n)}, func(env *Envelope, why Reason) {
			if why != DropQueueFull {
				t.Errorf("dropped for %s", why)
			}
			dropped = append(dropped, env.Epoch)
		})
	}
	push(raftpb.MsgApp, 1)
	push(raftpb.MsgAppResp, 2)
	push(raftpb.MsgApp, 3)
	push(raftpb.MsgVote, 4)
	push(raftpb.MsgApp, 5)       // full: it has to go itself
	push(raftpb.MsgHeartbeat, 6) // instead of 3, the last of the cheapest
	push(raftpb.MsgAppResp, 7)   // instead of 1
	push(raftpb.MsgHeartbeat, 8) // instead of 7
	push(raftpb.MsgHeartbeat, 9) // instead of 2
	push(raftpb.MsgVote, 10)     // nothing is cheaper
	if want := []uint64{5, 3, 1, 7, 2, 10}; !equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
	var got []uint64
	for _, env := range q.take(nil, 1<<20) {
		got = append(got, env.Epoch)
	}
	if want := []uint64{4, 6, 8, 9}; !equal(got, want) {
		t.Errorf("taken %v, want %v", got, want)
	}
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestQueueKeepsOrderAndBounds pushes and takes at random, and demands of the
// queue that what comes out is in order, what is lost is told, and the bounds hold.
func TestQueueKeepsOrderAndBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const maxBytes, maxCount = 4000, 20
		q := newQueue(maxBytes, maxCount)
		types := rapid.SampledFrom(sentTypes)
		next, out, lost := 1, 0, 0
		last := uint64(0)
		take := func() {
			for _, env := range q.take(nil, rapid.IntRange(0, 2000).Draw(rt, "size")) {
				if env.Epoch <= last {
					rt.Fatalf("%d comes out after %d", env.Epoch, last)
				}
				last = env.Epoch
				out++
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				var batch []Envelope
				for range rapid.IntRange(1, 8).Draw(rt, "n") {
					batch = append(batch, numbered(t, types.Draw(rt, "type"), next))
					next++
				}
				q.push(batch, func(*Envelope, Reason) { lost++ })
			},
			"take": func(*rapid.T) { take() },
			"close": func(*rapid.T) {
				q.close(DropUnreachable, func(*Envelope, Reason) { lost++ })
			},
			"open": func(*rapid.T) { q.open() },
			"": func(rt *rapid.T) {
				count, bytes := q.length()
				if count > maxCount || bytes > maxBytes || (count == 0) != (bytes == 0) {
					rt.Fatalf("%d envelopes of %d bytes", count, bytes)
				}
				if next-1 != out+lost+count {
					rt.Fatalf("%d pushed, %d out, %d lost, %d inside", next-1, out, lost, count)
				}
			},
		})
	})
}

func TestBackoff(t *testing.T) {
	b := newBackoff(50*time.Millisecond, time.Second)
	for _, ms := range []int{50, 100, 200, 400, 800, 1000, 1000} {
		want := time.Duration(ms) * time.Millisecond
		if got := b.pause(); got > want || got < want/2 {
			t.Errorf("pause = %v, want %v to %v", got, want/2, want)
		}
	}
	b.reset()
	if got := b.pause(); got > 50*time.Millisecond {
		t.Errorf("pause after reset = %v, want at most 50ms", got)
	}
}

func TestUnackedIsWhatNoPongCovers(t *testing.T) {
	var u unacked
	write := func(typ raftpb.MessageType, to raftyard.ReplicaID) {
		env := appendEnvelopeOf(t, typ)
		env.To.Replica = to
		u.wrote([]Envelope{env})
	}
	write(raftpb.MsgApp, 1)
	write(raftpb.MsgHeartbeat, 2)
	u.pinging(100)
	write(raftpb.MsgSnap, 3)
	u.pinging(200) // the first ping is not answered yet: its mark stays
	u.acked(100)
	write(raftpb.MsgApp, 3)
	u.pinging(300)
	write(raftpb.MsgApp, 4)
	u.acked(200) // says nothing of what came before 300
	lost := u.lost()
	snapshot, known := lost[pair{3, 11, 3}]
	if _, four := lost[pair{3, 11, 4}]; len(lost) != 2 || !snapshot || !known || !four {
		t.Errorf("lost = %v, want a snapshot for 3, and 4", lost)
	}
	if again := u.lost(); len(again) != 0 {
		t.Errorf("lost again = %v", again)
	}
}

func TestReporterLimitsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			node    raftyard.NodeID
			dropped int
			at      time.Duration
		}
		var calls []call
		began := time.Now()
		r := newReporter(time.Second, func(node raftyard.NodeID, dropped []Dropped) {
			calls = append(calls, call{node, len(dropped), time.Since(began)})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.run(ctx) }()
		add := func(to raftyard.ReplicaID) {
			env := appendEnvelopeOf(t, raftpb.MsgApp)
			env.To.Replica = to
			r.add(&env)
		}
		add(1)
		synctest.Wait()
		for range 1000 {
			add(1)
			add(2)
		}
		notice := Envelope{To: Endpoint{Node: 2}, Notice: &Notice{Kind: NoticeRemoved}}
		r.add(&notice)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		cancel()
		<-done
		want := []call{{2, 1, 0}, {2, 2, time.Second}}
		if len(calls) != 2 || calls[0] != want[0] || calls[1] != want[1] {
			t.Errorf("calls = %v, want %v", calls, want)
		}
	})
}

func TestLimitedLogCountsWhatItKeepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLimitedLog(slog.New(slog.NewTextHandler(&out, nil)), time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		for range 10 {
			l.warn("trouble", 1)
			l.warn("trouble", 2)
		}
		time.Sleep(time.Minute)
		l.warn("trouble", 1)
		synctest.Wait()
		got := out.String()
		if n := strings.Count(got, "trouble"); n != 3 || !strings.Contains(got, "suppressed=9") {
			t.Errorf("logged %q, want 3 lines, the last with suppressed=9", got)
		}
		for n := range uint64(2 * maxLogKeys) {
			l.warn("flood", n)
		}
		if len(l.seen) > maxLogKeys {
			t.Errorf("%d keys are kept, want at most %d", len(l.seen), maxLogKeys)
		}
		cancel()
		synctest.Wait()
	})
}

// TestLoggerThatBlocks holds up nobody, and is told how much it has missed.
func TestLoggerThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimitedLog(slog.New(slog.DiscardHandler), time.Minute)
		release := make(chan struct{})
		var last logRecord
		l.log = func(r *logRecord) {
			<-release
			last = *r
		}
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		l.warn("trouble", 0)
		synctest.Wait() // the logger has that one
		for n := range uint64(maxLogRecords + 7) {
			l.warn("flood", n)
		}
		close(release)
		synctest.Wait()
		l.warn("trouble", 1)
		cancel()
		synctest.Wait()
		if last.event != "trouble" || len(last.attrs) != 1 || last.attrs[0].Value.Int64() != 7 {
			t.Errorf("the last record is %v, want 7 dropped ones in it", last)
		}
	})
}

func TestConfigReportsEveryProblem(t *testing.T) {
	err := Config{
		MaxFrameBytes: 1, MaxQueueBytes: 1 << 10, MaxRequests: -1,
		PingInterval: time.Second, DeadAfter: time.Second, MinBackoff: time.Hour,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		"Node", "Cluster", "Store", "Listen", "Resolve", "Handler", "MaxFrameBytes",
		"MaxRequests", "DeadAfter", "MaxBackoff",
	} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if _, err := Listen(Config{}); err == nil {
		t.Error("Listen takes an empty Config")
	}
}
