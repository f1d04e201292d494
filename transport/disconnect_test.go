package transport

import (
	"context"
	"errors"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestDisconnect: a node that is given up is not dialled any more, until something is for
// it again, and what waits for it ends.
func TestDisconnect(t *testing.T) {
	book := make(map[raftyard.NodeID]string)
	here, there := newSink(), newSink()
	asked := make(chan struct{})
	there.request = func(ctx context.Context) ([]byte, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a := listenTCP(t, 1, here, book)
	b := listenTCP(t, 2, there, book)
	book[2] = b.Addr().String()
	a.Disconnect(2) // nothing is there to be given up
	a.Connect(2)
	eventually(t, "node 2 is connected", func() bool { return here.isUp(2) })

	answer := make(chan error, 1)
	go func() {
		_, err := a.Request(t.Context(), 2, 1, nil)
		answer <- err
	}()
	<-asked
	a.Disconnect(2)
	if err := <-answer; !errors.Is(err, ErrUnknown) {
		t.Errorf("the request that was under way ends with %v, want ErrUnknown", err)
	}
	eventually(t, "the handler hears of it", func() bool { return !here.isUp(2) })
	if peers := a.Peers(); len(peers) != 0 {
		t.Errorf("Peers = %+v, want none", peers)
	}
	connects := a.Stats().Connects
	eventually(t, "the other end hears of it", func() bool {
		b.admission.mu.Lock()
		defer b.admission.mu.Unlock()
		return len(b.admission.members[1].conns) == 0
	})
	if now := a.Stats().Connects; now != connects {
		t.Errorf("%d connections were made after that", now-connects)
	}
	a.Connect(2)
	eventually(t, "node 2 is connected again", func() bool { return here.isUp(2) })
}
