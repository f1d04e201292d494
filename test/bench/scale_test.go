//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard/test/internal/device"
)

// BenchmarkScale has three nodes in this process with as many groups each as its name says, a
// replica of each on every node. It measures how fast they are created while others are
// loaded, what they cost while they sleep, how long a third of them is without a leader when
// a node is killed, and how long that node takes to come back.
func BenchmarkScale(b *testing.B) {
	for _, groups := range []int{150, 2_000, 10_000} {
		if groups > 150 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			for range b.N {
				benchScale(b, groups)
			}
			b.ReportMetric(0, "ns/op") // the sum of all that says nothing
		})
	}
}

func benchScale(b *testing.B, groups int) {
	b.Helper()
	f := openFleet(b)
	empty := heap()
	scaleCreate(b, f, groups)
	f.awaitSleep(b, hosts*groups)
	b.ReportMetric(float64(heap()-empty)/float64(hosts*groups), "heap-B/replica")
	saveHeap(b)
	scaleIdle(b, f, groups)
	scaleRestart(b, f, groups, scaleFailover(b, f, groups))
}

// scaleCreate makes a tenth of the groups, and the others while those are loaded.
func scaleCreate(b *testing.B, f *fleet, groups int) {
	b.Helper()
	loaded := groups / 10
	f.create(b, 0, loaded)
	stop := f.load(b, loaded)
	begin := time.Now()
	f.create(b, loaded, groups)
	took := time.Since(begin).Seconds()
	b.ReportMetric(float64(groups-loaded)/took, "created/s")
	b.ReportMetric(float64(stop())/took, "commands/s")
}

// load has clients propose, one command after the other each, to groups in turn, until stop
// returns how many commands that were.
func (f *fleet) load(b *testing.B, groups int) (stop func() uint64) {
	b.Helper()
	const clients = 16
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	var next, done, late atomic.Uint64
	command := make([]byte, payload)
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				g := int(next.Add(1)) % groups
				_, err := f.nodes[g%hosts].Propose(ctx, groupID(g), command)
				switch {
				case err == nil:
					done.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
				case ctx.Err() == nil:
					b.Error(err)
					return
				}
			}
		})
	}
	return func() uint64 {
		cancel()
		all.Wait()
		if n := late.Load(); n > 0 {
			b.Logf("%d commands took more than ten seconds", n)
		}
		return done.Load()
	}
}

// scaleIdle measures what nodes do of which nobody wants anything.
func scaleIdle(b *testing.B, f *fleet, groups int) {
	b.Helper()
	lasts := 30 * time.Second
	if groups < 1_000 {
		lasts = time.Second
	}
	wrote, err := device.Taken(f.dir)
	if err != nil {
		b.Fatal(err)
	}
	used, logs := cpu(b), f.appended()
	pause(b, lasts)
	used = cpu(b) - used
	now, err := device.Taken(f.dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(100*used.Seconds()/lasts.Seconds()/hosts, "idle-%core/node")
	b.ReportMetric(float64(now-wrote)/lasts.Seconds()/hosts, "idle-disk-B/s/node")
	b.ReportMetric(float64(f.appended()-logs), "idle-log-B")
}

// scaleFailover kills a node. It returns who has led what before, as the first of the others
// knew it.
func scaleFailover(b *testing.B, f *fleet, groups int) (before []leading) {
	b.Helper()
	const dead = hosts - 1
	before = f.leaders(b, f.nodes[0], groups)
	var lost []int
	for g, l := range before {
		if l.node == f.peers[dead].ID {
			lost = append(lost, g)
		}
	}
	begin := time.Now()
	done := f.kill(dead)
	asked := f.asked()
	ledAgain := func(most int) func() bool {
		return func() bool {
			for _, g := range lost {
				at, ok := f.nodes[0].Leader(groupID(g))
				if !ok || at == f.peers[dead].ID {
					if most--; most < 0 {
						return false
					}
				}
			}
			return true
		}
	}
	f.await(b, "almost all have a leader", ledAgain(len(lost)/100))
	b.ReportMetric(time.Since(begin).Seconds(), "failover-99%-s")
	f.await(b, "all have a leader", ledAgain(0))
	b.ReportMetric(time.Since(begin).Seconds(), "failover-s")
	if err := done(); err != nil {
		b.Fatal(err)
	}
	f.awaitSleep(b, (hosts-1)*groups)
	b.ReportMetric(float64(len(lost)), "lost-leaders")
	b.ReportMetric(float64(f.asked()-asked)/float64(len(lost)), "prevotes/lost-leader")
	after := f.leaders(b, f.nodes[0], groups)
	changed := 0
	for g := range after {
		if before[g].node != f.peers[dead].ID && before[g] != after[g] {
			changed++
		}
	}
	b.ReportMetric(float64(changed), "failover-others-changed")
	return after
}

// scaleRestart starts the node again that was killed.
func scaleRestart(b *testing.B, f *fleet, groups int, before []leading) {
	b.Helper()
	const dead = hosts - 1
	asked := f.asked()
	begin := time.Now()
	if err := f.open(b.Context(), dead, nil); err != nil {
		b.Fatal(err)
	}
	f.await(b, "it is ready", func() bool { ready, _ := f.nodes[dead].Ready(); return ready })
	b.ReportMetric(time.Since(begin).Seconds(), "restart-ready-s")
	f.awaitSleep(b, hosts*groups)
	b.ReportMetric(time.Since(begin).Seconds(), "restart-asleep-s")
	b.ReportMetric(float64(f.asked()-asked), "restart-prevotes")
	changed := 0
	for g, l := range f.leaders(b, f.nodes[0], groups) {
		if l != before[g] {
			changed++
		}
	}
	b.ReportMetric(float64(changed), "restart-changed")
}

// pause lets time pass.
func pause(b *testing.B, lasts time.Duration) {
	b.Helper()
	timer := time.NewTimer(lasts)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
		b.Fatal(context.Cause(b.Context()))
	}
}

// saveHeap writes a profile of the heap where HeapVariable says, for go tool pprof.
func saveHeap(b *testing.B) {
	b.Helper()
	name := os.Getenv(HeapVariable)
	if name == "" {
		return
	}
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := pprof.WriteHeapProfile(file); err != nil {
		b.Fatal(err)
	}
}
