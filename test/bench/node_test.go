package bench

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard/internal/load"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/internal/counter"
	"github.com/raftyard/raftyard/test/internal/device"
)

// parallel has clients do b.N operations together, and reports operations a second and
// percentiles. Operations have numbers.
func parallel(b *testing.B, clients int, do func(client int, n uint64) error) {
	b.Helper()
	var next, failed atomic.Uint64
	var mu sync.Mutex
	var latency load.Histogram
	var failure error
	dir := b.TempDir()
	from, err := device.Taken(dir)
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range clients {
		all.Go(func() {
			var own load.Histogram
			for n := next.Add(1); n <= uint64(b.N) && failed.Load() == 0; n = next.Add(1) {
				begin := time.Now()
				if wrong := do(i, n); wrong != nil {
					failed.Add(1)
					mu.Lock()
					failure = wrong
					mu.Unlock()
					return
				}
				own.Add(time.Since(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			latency.Merge(&own)
		})
	}
	all.Wait()
	b.StopTimer()
	if failure != nil {
		b.Fatal(failure)
	}
	to, err := device.Taken(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(latency.Quantile(0.5).Microseconds()), "p50-us")
	b.ReportMetric(float64(latency.Quantile(0.99).Microseconds()), "p99-us")
	if to > from {
		b.ReportMetric(float64(to-from)/float64(b.N), "written-B/op")
	}
}

// BenchmarkNodePropose measures commands of three nodes over loopback, with synced logs and
// a state machine in memory, asked for at the node that leads. All three nodes share this
// machine and its disk.
func BenchmarkNodePropose(b *testing.B) {
	command := bytes.Repeat([]byte{1}, payload)
	for _, groups := range []int{1, 48, 1000} {
		if groups > 48 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			c := newCluster(b, kindCounter, groups)
			for _, clients := range []int{1, 64, 512} {
				b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
					parallel(b, clients, func(_ int, n uint64) error {
						g := int(n) % groups
						_, err := c.home(g).Propose(b.Context(), groupID(g), command)
						return err
					})
				})
			}
		})
	}
}

// BenchmarkNodeRead measures linearizable reads of the same.
func BenchmarkNodeRead(b *testing.B) {
	for _, groups := range []int{1, 48} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			c := newCluster(b, kindCounter, groups)
			for _, at := range []string{"leader", "follower"} {
				b.Run("at="+at, func(b *testing.B) {
					parallel(b, 64, func(_ int, n uint64) error {
						g := int(n) % groups
						on := c.home(g)
						if at == "follower" {
							on = c.home(g + 1)
						}
						return node.View(b.Context(), on, groupID(g), node.Linearizable,
							func(*counter.Machine) error { return nil })
					})
				})
			}
		})
	}
}
