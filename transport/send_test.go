package transport

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// counter is a handler that tells when enough envelopes have come.
type counter struct {
	Handler
	left atomic.Int64 // still to come
	done chan struct{}
}

func (c *counter) HandleEnvelopes(_ Identity, batch []Envelope) {
	if c.left.Add(-int64(len(batch))) == 0 {
		c.done <- struct{}{}
	}
}

func resolveIn(book map[raftyard.NodeID]string) func(raftyard.NodeID, string) []string {
	return func(n raftyard.NodeID, told string) []string { return []string{told, book[n]} }
}

// BenchmarkSend measures messages from Send at one node to the handler of
// another over loopback. The cost of a message must fall with the size of the
// bursts that it comes in, since those share frames and writes.
func BenchmarkSend(b *testing.B) {
	for _, burst := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			h := &counter{Handler: newSink(), done: make(chan struct{}, 1)}
			book := make(map[raftyard.NodeID]string)
			start := func(node raftyard.NodeID, h Handler) *Transport {
				tr, err := Listen(Config{
					Identity: testIdentity(node), Listen: "127.0.0.1:0", Handler: h,
					Resolve: resolveIn(book),
				})
				if err != nil {
					b.Fatal(err)
				}
				return tr
			}
			h.left.Store(1)
			tr2 := start(2, h)
			defer closeQuietly(tr2)
			book[2] = tr2.Addr().String()
			tr := start(1, newSink())
			defer closeQuietly(tr)
			batch := make([]Envelope, burst)
			for i := range batch {
				batch[i] = appendEnvelopeOf(b, raftpb.MsgApp)
			}
			tr.Send(batch[:1])
			<-h.done
			b.ReportAllocs()
			for b.Loop() {
				h.left.Store(int64(burst))
				tr.Send(batch)
				<-h.done
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/message")
		})
	}
}

// BenchmarkRequest measures a round trip of a small request over loopback.
func BenchmarkRequest(b *testing.B) {
	book := make(map[raftyard.NodeID]string)
	var nodes []*Transport
	for node := range raftyard.NodeID(2) {
		tr, err := Listen(Config{
			Identity: testIdentity(node + 1), Listen: "127.0.0.1:0", Handler: newSink(),
			Resolve:        resolveIn(book),
			RequestTimeout: 10 * time.Second,
		})
		if err != nil {
			b.Fatal(err)
		}
		defer closeQuietly(tr) //nolint:gocritic // two of them, at the end of the benchmark
		nodes = append(nodes, tr)
		book[node+1] = tr.Addr().String()
	}
	body := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nodes[0].Request(b.Context(), 2, 1, body); err != nil {
			b.Fatal(err)
		}
	}
}
