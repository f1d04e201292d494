package transport

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// memoryPair runs f in a bubble with two connected nodes.
func memoryPair(
	t *testing.T, f func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(7)
		var nodes [2]*Transport
		var sinks [2]*sink
		for i := range nodes {
			sinks[i] = newSink()
			tr, err := m.Endpoint(Config{
				Identity: testIdentity(raftyard.NodeID(i + 1)), Handler: sinks[i],
			})
			if err != nil {
				t.Fatal(err)
			}
			nodes[i] = tr
		}
		defer closeQuietly(nodes[0])
		defer closeQuietly(nodes[1])
		sendNumbered(t, nodes, 0, 1)
		sendNumbered(t, nodes, 1, 1)
		synctest.Wait()
		if sinks[0].count() != 1 || sinks[1].count() != 1 {
			t.Fatal("the nodes are not connected")
		}
		f(t, m, nodes, sinks)
	})
}

// sendNumbered sends n heartbeats from node from+1 to the other, numbered from 0.
func sendNumbered(t *testing.T, nodes [2]*Transport, from, n int) {
	t.Helper()
	for i := range n {
		env := numbered(t, raftpb.MsgHeartbeat, i)
		env.From.Node, env.To.Node = raftyard.NodeID(from+1), raftyard.NodeID(2-from)
		nodes[from].Send([]Envelope{env})
	}
}

func TestMemoryCutsOneWay(t *testing.T) {
	memoryPair(t, func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink) {
		m.Cut(1, 2)
		time.Sleep(10 * time.Second)
		if sinks[0].isUp(2) || !sinks[1].isUp(1) {
			t.Errorf("after 10 s, 2 is up for 1: %t, 1 is up for 2: %t, want false, true",
				sinks[0].isUp(2), sinks[1].isUp(1))
		}
		sendNumbered(t, nodes, 0, 5)
		sendNumbered(t, nodes, 1, 5)
		synctest.Wait()
		if a, b := sinks[0].count(), sinks[1].count(); a != 6 || b != 1 {
			t.Errorf("1 has got %d and 2 %d, want 6 and 1", a, b)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := nodes[0].Request(ctx, 2, 1, nil)
		if !errors.Is(err, ErrUnreachable) || !NotDelivered(err) {
			t.Errorf("Request over the cut = %v, want ErrUnreachable", err)
		}
		if _, err := nodes[1].Request(t.Context(), 1, 1, nil); err != nil {
			t.Errorf("Request the other way = %v", err)
		}
		m.Heal(1, 2)
		time.Sleep(5 * time.Second)
		sendNumbered(t, nodes, 0, 5)
		synctest.Wait()
		if got := sinks[1].count(); got != 6 {
			t.Errorf("2 has got %d after the cut, want 6", got)
		}
	})
}

// TestMemoryHalfOpen has both ends notice a connection on which nothing passes.
func TestMemoryHalfOpen(t *testing.T) {
	memoryPair(t, func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink) {
		m.Isolate(2)
		began := time.Now()
		for sinks[0].isUp(2) || sinks[1].isUp(1) {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("noticed after %v, want within DeadAfter and two pings", d)
		}
		synctest.Wait()
		for _, tr := range nodes {
			tr.mu.Lock()
			if n := len(tr.conns); n != 0 {
				t.Errorf("node %d still has %d connections of its peer", tr.self.Node, n)
			}
			tr.mu.Unlock()
		}
		m.Rejoin(2)
		time.Sleep(5 * time.Second)
		if !sinks[0].isUp(2) || !sinks[1].isUp(1) {
			t.Error("the nodes do not find each other again")
		}
	})
}

// TestMemoryRequestLostOnTheWay cuts the network while a request is handled.
func TestMemoryRequestLostOnTheWay(t *testing.T) {
	memoryPair(t, func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink) {
		ended := make(chan struct{})
		sinks[1].request = func(ctx context.Context) ([]byte, error) {
			m.CutBoth(1, 2)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		}
		_, err := nodes[0].Request(t.Context(), 2, 1, nil)
		if !errors.Is(err, ErrUnknown) || NotDelivered(err) {
			t.Errorf("Request = %v, want ErrUnknown", err)
		}
		<-ended
	})
}

// TestAnswersAreNotOverwritten keeps a small answer while pongs come in.
func TestAnswersAreNotOverwritten(t *testing.T) {
	memoryPair(t, func(t *testing.T, _ *Memory, nodes [2]*Transport, _ [2]*sink) {
		time.Sleep(5 * time.Second)
		var answers [][]byte
		for n := range 5 {
			got, err := nodes[0].Request(t.Context(), 2, 1, []byte{'#', byte(n)})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, got)
			time.Sleep(2 * time.Second)
		}
		for n, got := range answers {
			if !bytes.Equal(got, []byte{'#', byte(n)}) {
				t.Errorf("answer %d has become %q", n, got)
			}
		}
	})
}

func TestMemoryDelays(t *testing.T) {
	memoryPair(t, func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink) {
		m.SetDelay(1, 2, 300*time.Millisecond, 200*time.Millisecond)
		began := time.Now()
		for range 10 {
			sendNumbered(t, nodes, 0, 10)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if got := sinks[1].count(); got != 101 {
			t.Fatalf("%d have arrived, want 101", got)
		}
		for _, at := range sinks[1].arrived[1:] {
			if d := at.Sub(began); d < 300*time.Millisecond || d > 700*time.Millisecond {
				t.Errorf("arrived after %v, want 300 to 500ms after it was sent", d)
			}
		}
		time.Sleep(2 * time.Second)
		if rtt := nodes[0].Peers()[0].RTT; rtt < 600*time.Millisecond {
			t.Errorf("RTT = %v, want at least 600ms", rtt)
		}
	})
}

func TestMemoryLosesDuplicatesAndReorders(t *testing.T) {
	const total = 1000
	for _, tt := range []struct {
		name        string
		set         func(m *Memory)
		least, most int
		ordered     bool
	}{
		{"nothing", func(*Memory) {}, total, total, true},
		{"loss", func(m *Memory) { m.SetLoss(1, 2, 0.5) }, 400, 600, true},
		{"all lost", func(m *Memory) { m.SetLoss(1, 2, 1) }, 0, 0, true},
		{"duplicate", func(m *Memory) { m.SetDuplicate(1, 2, 0.5) }, 1400, 1600, true},
		{"reorder", func(m *Memory) { m.SetReorder(1, 2, 0.3) }, total, total, false},
		{"other way", func(m *Memory) { m.SetLoss(2, 1, 1) }, total, total, true},
		{"healed", func(m *Memory) { m.SetLoss(1, 2, 1); m.HealAll() }, total, total, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			memoryPair(t, func(t *testing.T, m *Memory, nodes [2]*Transport, sinks [2]*sink) {
				tt.set(m)
				for range total / 10 {
					sendNumbered(t, nodes, 0, 10)
					synctest.Wait()
				}
				time.Sleep(time.Second)
				got := sinks[1].epochs()[1:]
				if len(got) < tt.least || len(got) > tt.most {
					t.Errorf("%d have arrived, want %d to %d", len(got), tt.least, tt.most)
				}
				ordered := true
				for len(got) > 0 { // batches of ten, each in order
					n := 1
					for n < len(got) && got[n] >= got[n-1] {
						n++
					}
					ordered = ordered && n >= 2 && len(slices.Compact(got[:n])) <= 10
					got = got[n:]
				}
				if tt.ordered && tt.least == total && !ordered {
					t.Error("they do not arrive in order")
				}
				if !tt.ordered && ordered {
					t.Error("they arrive in order")
				}
				lost := nodes[0].Stats().DroppedBy["injected_fault"]
				if want := total - min(len(sinks[1].epochs())-1, total); int(lost) < want {
					t.Errorf("%d losses are counted, want at least %d", lost, want)
				}
			})
		})
	}
}

func TestMemoryAddressInUse(t *testing.T) {
	m := NewMemory(1)
	cfg := Config{Identity: testIdentity(1), Handler: newSink()}
	tr, err := m.Endpoint(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = m.Endpoint(cfg); !errors.Is(err, errAddressInUse) {
		t.Errorf("Endpoint = %v, want errAddressInUse", err)
	}
	closeQuietly(tr)
	if tr, err = m.Endpoint(cfg); err != nil {
		t.Errorf("Endpoint after Close = %v", err)
	} else {
		closeQuietly(tr)
	}
	if _, err := m.Endpoint(Config{}); err == nil {
		t.Error("Endpoint takes an empty Config")
	}
}
