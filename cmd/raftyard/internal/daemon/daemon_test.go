package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/config"
	"github.com/raftyard/raftyard/node"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// options returns those of a cluster of one with one group.
func options(t *testing.T, dir string) Options {
	t.Helper()
	http, peer := listen(t), listen(t)
	return Options{
		HTTP: http, Peer: peer,
		Config: config.Config{
			Cluster: "c",
			Node:    config.Node{ID: 1, DataDir: dir},
			Nodes:   []config.Peer{{ID: 1, Peer: peer.Addr().String()}},
			Groups:  []config.Group{{ID: 1, Kind: "kv", Voters: []raftyard.NodeID{1}}},
			Raft:    config.Raft{Tick: 10 * time.Millisecond, ElectionTicks: 10, HeartbeatTicks: 2},
		},
	}
}

// TestCloseEndsEverything: no goroutine and no port is left, also when a client
// holds a connection with half a request.
func TestCloseEndsEverything(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	d, err := Start(t.Context(), options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "PUT /v1/groups/1/kv/k HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Length: 9\r\n\r\nhalf")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := d.Close(t.Context()); err != nil {
		t.Errorf("Close = %v", err)
	}
	if took := time.Since(begun); took > StopLimit {
		t.Errorf("Close took %v, want at most %v", took, StopLimit)
	}
	if ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", d.Addr().String()); err != nil {
		t.Errorf("the port is still taken: %v", err)
	} else if err := ln.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHostOfRequests: a daemon on loopback serves no name that a web page has made
// up, and the one that the address book has for it.
func TestHostOfRequests(t *testing.T) {
	o := options(t, t.TempDir())
	o.Config.Nodes[0].HTTP = "node1.test:8700"
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for host, want := range map[string]int{
		"evil.test": http.StatusForbidden, "localhost:1": http.StatusOK,
		"node1.test": http.StatusOK,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+d.Addr().String()+"/livez", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("host %s = %d, %v, want %d", host, resp.StatusCode, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestStartFailsWhole: a start that fails leaves nothing behind, so that the
// directory can be used at once.
func TestStartFailsWhole(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := filepath.Join(t.TempDir(), "n1")
	bad := options(t, dir)
	bad.Config.Groups[0].Kind = "none"
	if _, err := Start(t.Context(), bad); err == nil {
		t.Fatal("a group of an unknown kind was accepted")
	}
	if _, err := bad.HTTP.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
	d, err := Start(t.Context(), options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), options(t, dir))
	if err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second start on the directory = %v, want it to name the process", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Close(ended); err != nil {
		t.Error(err)
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	l := NewLogger(&out, config.Log{Level: "warn", Format: "json"})
	l.Info("quiet")
	l.With(slog.Int("group", 7)).Warn("loud", slog.Any("why", errors.New("because")))
	if got := out.String(); strings.Contains(got, "quiet") ||
		!strings.Contains(got, `"group":7`) || !strings.Contains(got, `"why":"because"`) {
		t.Errorf("log = %s", got)
	}
}

// TestJoin: a daemon that is not among the founding nodes waits until it is let in, and
// says so; then it serves.
func TestJoin(t *testing.T) {
	first := options(t, t.TempDir())
	d, err := Start(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDaemon(t, d)
	joins := options(t, t.TempDir())
	joins.Config.Node.ID = 2
	joins.Config.Nodes = first.Config.Nodes
	joins.Config.Groups = nil
	joins.Config.Advertise = config.Advertise{
		Peer: joins.Peer.Addr().String(), HTTP: joins.HTTP.Addr().String(),
	}
	j, err := Start(t.Context(), joins)
	if err != nil {
		t.Fatal(err)
	}
	defer closeDaemon(t, j)
	ready := func() (bool, string) { return readyz(t, j) }
	if ok, body := ready(); ok || !strings.Contains(body, "PUT /v1/nodes/2 {") {
		t.Fatalf("readyz of a node that is not let in: %t, %s", ok, body)
	}
	spec := node.NodeSpec{ID: 2, Peer: joins.Config.Advertise.Peer}
	created, err := d.Node().PutNode(t.Context(), spec)
	if err != nil || !created {
		t.Fatalf("PutNode = %t, %v", created, err)
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, body := ready()
		if ok {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the node never became ready: %s", body)
		}
	}
	st, err := d.Node().NodeStatus(t.Context(), 2)
	if err != nil || st.HTTP != joins.Config.Advertise.HTTP {
		t.Errorf("the node is registered as %+v, %v", st, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// readyz returns what a daemon says of whether it is ready.
func readyz(t *testing.T, d *Daemon) (ok bool, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+d.Addr().String()+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode == http.StatusOK, string(b)
}

func closeDaemon(t *testing.T, d *Daemon) {
	t.Helper()
	if err := d.Close(context.Background()); err != nil {
		t.Errorf("Close = %v", err)
	}
}
