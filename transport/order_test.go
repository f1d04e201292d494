package transport

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// heldUp is a handler that is held up with the first batch.
type heldUp struct {
	*sink
	first   chan struct{} // closed when the first batch is there
	release chan struct{}
	once    sync.Once
}

func (h *heldUp) HandleEnvelopes(from Identity, batch []Envelope) {
	h.sink.HandleEnvelopes(from, batch)
	h.once.Do(func() { close(h.first); <-h.release })
}

// TestOutdatedConnectionDeliversNoMore: what the connection that was replaced has
// in its buffer does not come after what is on the new one.
func TestOutdatedConnectionDeliversNoMore(t *testing.T) {
	h := &heldUp{sink: newSink(), first: make(chan struct{}), release: make(chan struct{})}
	tr := listenTCP(t, 2, h, nil)
	released := sync.OnceFunc(func() { close(h.release) })
	t.Cleanup(released) // before Close
	frame := func(epoch uint64) []byte {
		e := appendEnvelopeOf(t, raftpb.MsgApp)
		e.Epoch = epoch
		return appendFrame(nil, frameEnvelopes, appendBatch(nil, 1, 2, []Envelope{e}))
	}
	write := func(p *rawPeer, epochs ...uint64) {
		var all [][]byte
		for _, epoch := range epochs {
			all = append(all, frame(epoch))
		}
		if _, err := p.Write(bytes.Join(all, nil)); err != nil {
			t.Fatal(err)
		}
	}
	write(dialRaw(t, tr.Addr().String(), 1, ClassRaft), 1, 2, 3)
	<-h.first
	fresh := dialRaw(t, tr.Addr().String(), 1, ClassRaft)
	write(fresh, 10, 11)
	released()
	eventually(t, "everything on the new connection comes", func() bool {
		epochs := h.epochs()
		return epochs[len(epochs)-1] == 11
	})
	fresh.answers(t)
	if got := h.epochs(); !slices.Equal(got, []uint64{1, 10, 11}) {
		t.Errorf("1 2 3, then 10 11 on a new connection arrive as %v, want 1 10 11", got)
	}
}
