package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// hung returns the address of a server that takes requests and never answers.
func hung(t *testing.T) string {
	t.Helper()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	return server.URL
}

// answering returns a server that answers every request with {}.
func answering(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestHungNodeLeavesTime: an address that takes a connection and no more costs a
// read its share of the time. A change that was sent there must not be repeated.
func TestHungNodeLeavesTime(t *testing.T) {
	c := newClient(t, Config{
		Addrs: []string{hung(t), answering(t)}, Timeout: 600 * time.Millisecond,
	})
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("a read with one node of two hung = %v", err)
	}
	c.last.Store(0)
	_, err := c.Put(t.Context(), 1, []byte("k"), nil, Cond{})
	if _, ok := errors.AsType[*UnknownError](err); !ok ||
		!strings.HasSuffix(err.Error(), "the outcome is unknown: no answer in time") {
		t.Errorf("a put that a hung node has = %v, want an unknown outcome", err)
	}
	alone := newClient(t, Config{Addrs: []string{hung(t)}, Timeout: 50 * time.Millisecond})
	_, err = alone.Status(t.Context())
	if e, ok := errors.AsType[*UnreachableError](err); !ok || !NotApplied(err) ||
		!strings.HasSuffix(e.Error(), ": no answer in time") {
		t.Errorf("a read with all nodes hung = %v", err)
	}
}

// TestDialThatHangsLeavesTime: what was certainly not sent goes to the next
// address, also a change.
func TestDialThatHangsLeavesTime(t *testing.T) {
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "192.0.2.1:1" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dialer.DialContext(ctx, network, addr)
		},
	}
	c := newClient(t, Config{
		Addrs:   []string{"192.0.2.1:1", answering(t)},
		Timeout: 600 * time.Millisecond,
		HTTP:    &http.Client{Transport: transport},
	})
	if _, err := c.Put(t.Context(), 1, []byte("k"), nil, Cond{}); err != nil {
		t.Errorf("a put with one node of two out of reach = %v", err)
	}
	nobody := newClient(t, Config{
		Addrs: []string{"192.0.2.1:1"}, Timeout: 50 * time.Millisecond,
		HTTP: &http.Client{Transport: transport},
	})
	_, err := nobody.Put(t.Context(), 1, []byte("k"), nil, Cond{})
	if _, ok := errors.AsType[*UnreachableError](err); !ok ||
		!strings.HasSuffix(err.Error(), "http://192.0.2.1:1: no answer in time") {
		t.Errorf("a put that was not sent = %v, want nobody reached", err)
	}
}

// TestWhatIsRetried: only what gets better by itself and has not happened.
func TestWhatIsRetried(t *testing.T) {
	retried := map[string]bool{
		CodeNoLeader: true, CodeNotLeader: true, CodeNotReady: true, CodeOverloaded: true,
		CodeClosing: true, CodeTimeout: true, CodeNoState: true,
	}
	for _, code := range Codes() {
		t.Run(code, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					asked++
					if asked > 1 {
						_, _ = w.Write([]byte("{}"))
						return
					}
					w.Header().Set("Content-Type", ProblemType)
					w.WriteHeader(http.StatusServiceUnavailable)
					_ = json.NewEncoder(w).Encode(Problem{
						Status: 503, Code: code, RetryAfterMS: 1, Outcome: OutcomeNotApplied,
					})
				}))
			defer server.Close()
			c := newClient(t, Config{Addrs: []string{server.URL}})
			_, err := c.SetMembers(t.Context(), raftyard.GroupID(7), Members{}, 0)
			if retried[code] != (err == nil) || retried[code] != (asked == 2) {
				t.Errorf("%d requests, then %v, want a retry: %t", asked, err, retried[code])
			}
		})
	}
}

// TestOutsideNode: one that takes no part in its cluster for good is not asked again; if others
// are known, they are, also for a change.
func TestOutsideNode(t *testing.T) {
	var asked atomic.Int64
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", ProblemType)
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(Problem{
			Status: 503, Code: CodeNotReady, Detail: "removed", Outcome: OutcomeNotApplied,
		})
	}))
	defer gone.Close()
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	defer there.Close()
	alone := newClient(t, Config{Addrs: []string{gone.URL}})
	_, err := alone.SetMembers(t.Context(), 7, Members{}, 0)
	if !IsCode(err, CodeNotReady) || asked.Load() != 1 {
		t.Errorf("%d requests, then %v, want one that is not repeated", asked.Load(), err)
	}
	both := newClient(t, Config{Addrs: []string{gone.URL, there.URL}})
	for range 2 { // the second time it begins with who has answered
		if _, err = both.SetMembers(t.Context(), 7, Members{}, 0); err != nil {
			t.Errorf("with another node: %v", err)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("%d requests to the node that is no part of it, want 2", asked.Load())
	}
}

// TestUnknownIsNotRetried: a problem that leaves the outcome open ends the call,
// whatever its code. One that says nothing of a change leaves it open.
func TestUnknownIsNotRetried(t *testing.T) {
	for _, outcome := range []string{OutcomeUnknown, ""} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Content-Type", ProblemType)
				w.WriteHeader(http.StatusServiceUnavailable)
				_ = json.NewEncoder(w).Encode(Problem{Code: CodeNoLeader, Outcome: outcome})
			}))
		c := newClient(t, Config{Addrs: []string{server.URL}})
		_, err := c.Put(t.Context(), 1, []byte("k"), nil, Cond{})
		if err == nil || NotApplied(err) || asked != 1 {
			t.Errorf("outcome %q: %v after %d requests, want unknown after 1", outcome, err, asked)
		}
		server.Close()
	}
}

func TestProblemText(t *testing.T) {
	for want, p := range map[string]Problem{
		"no leader":          {Title: "No leader", Code: "no_leader"},
		"no leader: group 7": {Title: "No leader", Code: "no_leader", Detail: "group 7"},
		"bad gateway: why":   {Title: "Bad gateway", Detail: "why"},
		"too large: 9 bytes (x_large)": {
			Title: "Too large", Code: "x_large", Detail: "9 bytes",
		},
	} {
		if got := p.Error(); got != want {
			t.Errorf("%+v reads %q, want %q", p, got, want)
		}
	}
}
