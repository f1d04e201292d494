package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// A receiver tells when as many envelopes have come as were expected.
type receiver struct {
	left atomic.Int64
	done chan struct{}
}

// HandleEnvelopes implements [transport.Handler].
func (r *receiver) HandleEnvelopes(_ transport.Identity, batch []transport.Envelope) {
	if r.left.Add(-int64(len(batch))) == 0 {
		r.done <- struct{}{}
	}
}

// HandleRequest implements [transport.Handler].
func (r *receiver) HandleRequest(
	context.Context, transport.Identity, uint8, []byte,
) ([]byte, error) {
	return nil, nil
}

// HandleSnapshot implements [transport.Handler].
func (r *receiver) HandleSnapshot(
	context.Context, transport.Identity, transport.Envelope, io.Reader,
) error {
	return nil
}

// PeerChanged implements [transport.Handler].
func (r *receiver) PeerChanged(raftyard.NodeID, bool) {}

// HandleUnreachable implements [transport.Handler].
func (r *receiver) HandleUnreachable(raftyard.NodeID, []transport.Dropped) {}

func listen(b *testing.B, id raftyard.NodeID, to string, h transport.Handler) *transport.Transport {
	b.Helper()
	t, err := transport.Listen(transport.Config{
		Identity: transport.Identity{
			Cluster: uuid.UUID{1}, Node: id, Store: uuid.UUID{byte(id)}, Boot: 1,
		},
		Listen: "127.0.0.1:0", Handler: h,
		Resolve: func(raftyard.NodeID, string) []string { return []string{to} },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := t.Close(); err != nil {
			b.Error(err)
		}
	})
	return t
}

// appendMessage is one that carries an entry.
func appendMessage() transport.Envelope {
	return transport.Envelope{
		Group: 1, Incarnation: raftyard.Incarnation{1}, Epoch: 1,
		From: transport.Endpoint{Node: 1, Replica: 1}, To: transport.Endpoint{Node: 2, Replica: 2},
		Message: &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)),
			Term: new(uint64(5)), LogTerm: new(uint64(4)), Index: new(uint64(7)),
			Commit: new(uint64(6)),
			Entries: []*raftpb.Entry{{
				Term: new(uint64(5)), Index: new(uint64(8)), Type: raftpb.EntryNormal.Enum(),
				Data: bytes.Repeat([]byte{1}, payload),
			}},
		},
	}
}

// BenchmarkTransport measures bursts of messages over loopback, from Send until the handler
// has all of them, against as many bytes over a bare connection. The larger the burst, the
// less a message must cost.
func BenchmarkTransport(b *testing.B) {
	for _, burst := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			const times = 200
			r := &receiver{done: make(chan struct{}, 1)}
			to := listen(b, 2, "", r)
			from := listen(b, 1, to.Addr().String(), &receiver{})
			batch := make([]transport.Envelope, burst)
			for i := range batch {
				batch[i] = appendMessage()
			}
			send := func() {
				r.left.Store(int64(burst))
				from.Send(batch)
				<-r.done
			}
			send() // connects
			bare := bareConnection(b, burst*(payload+header))
			versus(b, "messages",
				&side{turn: func() (int, error) {
					for range times {
						send()
					}
					return times * burst, nil
				}},
				&side{turn: func() (int, error) {
					for range times {
						if err := bare(); err != nil {
							return 0, err
						}
					}
					return times * burst, nil
				}},
			)
		})
	}
}

// bareConnection returns a function that sends so many bytes over a connection, and
// returns when the other end has them.
func bareConnection(b *testing.B, size int) func() error {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	out, err := new(net.Dialer).DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	arrived, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, size)
		for {
			if _, err := io.ReadFull(in, buf); err != nil {
				return // the connection is closed
			}
			arrived <- struct{}{}
		}
	}()
	b.Cleanup(func() {
		for _, c := range []io.Closer{out, in, l} {
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		}
		<-ended
	})
	data := make([]byte, size)
	return func() error {
		if _, err := out.Write(data); err != nil {
			return err
		}
		<-arrived
		return nil
	}
}
