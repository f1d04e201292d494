package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// leaderless is a store whose group has no leader: each change waits for one until its time
// is over, and its refusal takes a while to come through.
type leaderless struct {
	*fakeKV
	late time.Duration
}

func (f *leaderless) Put(
	ctx context.Context, id raftyard.GroupID, _, _ []byte, _ kv.Cond,
) (uint64, bool, error) {
	<-ctx.Done()
	time.Sleep(f.late) // no real time
	return 0, false, fmt.Errorf("group %d: %w: %w", id, node.ErrNoLeader, ctx.Err())
}

// TestClientHearsWhatTheNodeKnows: a node that says at the end of its time that nothing
// was applied is heard by a client that waits for longer. A client that has not listened
// for so long would have to take the outcome for unknown.
func TestClientHearsWhatTheNodeKnows(t *testing.T) {
	for _, tt := range []struct{ timeout, late time.Duration }{
		{100 * time.Millisecond, 20 * time.Millisecond},
		{time.Second, 200 * time.Millisecond},
		{10 * time.Second, 400 * time.Millisecond},
		{10 * time.Second, 10 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(tt.timeout, tt.late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { putWithoutLeader(t, tt.timeout, tt.late) })
		})
	}
}

func putWithoutLeader(t *testing.T, timeout, late time.Duration) {
	h, err := New(Config{
		Node: &fakeNode{kind: "kv", ready: true}, KV: &leaderless{fakeKV: &fakeKV{}, late: late},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c, err := client.New(client.Config{
		Addrs: []string{"node:1"}, Timeout: timeout,
		HTTP: &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				l.conns <- theirs
				return ours, nil
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = c.Put(t.Context(), 7, []byte("k"), nil, client.Cond{})
	if !client.NotApplied(err) || !client.IsCode(err, client.CodeNoLeader) {
		t.Errorf("a put without a leader = %v, want %s, not applied", err, client.CodeNoLeader)
	}
	if took := time.Since(began); took > timeout || took < timeout/2 {
		t.Errorf("it took %v of %v", took, timeout)
	}
	c.Close()
	if err = server.Shutdown(t.Context()); err != nil { // with the request, if nobody hears it
		t.Error(err)
	}
	if err = <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
