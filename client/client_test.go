package client

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
)

func TestAddresses(t *testing.T) {
	good, err := New(Config{Addrs: []string{"h:1", "http://h:2", "https://[::1]:3/"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(good.Addrs(), " "); got != "http://h:1 http://h:2 https://[::1]:3" {
		t.Errorf("addresses = %s", got)
	}
	for _, bad := range []string{
		"", "ftp://h:1", "http://h:1/p", "http://h:1?q=1", "http://u@h:1", "h", "h:", ":1",
	} {
		if _, err := New(Config{Addrs: []string{bad}}); err == nil {
			t.Errorf("New(%q) succeeded, want an error", bad)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New without addresses succeeded, want an error")
	}
}

func TestEscapeKey(t *testing.T) {
	for key, want := range map[string]string{
		"aZ09-_": "aZ09-_", "a/b": "a%2Fb", "..": "%2E%2E", "\x00\xff": "%00%FF", "~": "%7E",
	} {
		if got := escapeKey([]byte(key)); got != want {
			t.Errorf("escapeKey(%q) = %s, want %s", key, got, want)
		}
	}
}

// TestIdleConns: as many calls at a time as there may be idle connections need no new ones.
func TestIdleConns(t *testing.T) {
	const calls = 80 // more than by default
	var conns atomic.Int64
	var together sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			together.Done()
			together.Wait()
			_, _ = io.WriteString(w, "{}")
		}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := newClient(t, Config{Addrs: []string{server.URL}, IdleConns: calls})
	for range 3 {
		together.Add(calls)
		var all errgroup.Group
		for range calls {
			all.Go(func() error {
				_, err := c.Status(t.Context())
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != calls {
		t.Errorf("%d calls at a time have made %d connections", calls, n)
	}
	if _, err := New(Config{Addrs: []string{server.URL}, IdleConns: -1}); err == nil {
		t.Error("New with -1 idle connections succeeded, want an error")
	}
}

// TestOtherServers: what answers without being a node says nothing about what a
// node did.
func TestOtherServers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			return
		}
		http.Error(w, "bad gateway", http.StatusBadGateway)
	}))
	defer server.Close()
	c, err := New(Config{Addrs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Put(t.Context(), 1, []byte("k"), nil, Cond{})
	if p, ok := errors.AsType[*Problem](err); !ok || p.Status != 502 || NotApplied(err) {
		t.Errorf("a put answered 502 by a proxy = %v, want an unknown outcome", err)
	}
	_, err = c.Status(t.Context())
	if _, ok := errors.AsType[*Problem](err); err == nil || ok && !NotApplied(err) {
		t.Errorf("a redirected read = %v, want an error without effect", err)
	}
}

func TestDeadlineOfTheNodeComesFirst(t *testing.T) {
	timeouts := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeouts <- r.URL.Query().Get("timeout")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c, err := New(Config{Addrs: []string{server.URL}, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Group(t.Context(), raftyard.GroupID(7)); err != nil {
		t.Fatal(err)
	}
	if got, err := time.ParseDuration(<-timeouts); err != nil || got > 3500*time.Millisecond {
		t.Errorf("the node was given %v, %v, want less than the client waits", got, err)
	}
}

// TestTimesOfTheNode: what a node may take, and wait, is over before the client
// waits no longer.
func TestTimesOfTheNode(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct{ left, wait, wantTimeout, wantWait time.Duration }{
		{4 * time.Second, 0, 3500 * ms, 0},
		{600 * ms, 0, 300 * ms, 0},
		{10 * ms, 0, 5 * ms, 0},
		{-10 * ms, 0, ms, 0},
		{20 * time.Second, 10 * time.Second, 9500 * ms, 10 * time.Second},
		{10 * time.Second, 10 * time.Second, time.Second, 8500 * ms},
		{time.Second, time.Minute, 250 * ms, 250 * ms},
		{time.Hour, time.Hour, 5 * time.Minute, 5 * time.Minute},
	} {
		r := request{wait: tt.wait, grace: grace}
		timeout, wait := r.times(tt.left)
		if timeout != tt.wantTimeout || wait != tt.wantWait {
			t.Errorf("%v left, wait %v: timeout %v, wait %v, want %v and %v",
				tt.left, tt.wait, timeout, wait, tt.wantTimeout, tt.wantWait)
		}
	}
}
