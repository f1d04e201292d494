//go:build linux

package memory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// ownBound is what docs/memory.md says a node of the daemon has of memory of its own, with
// GOMEMLIMIT as it is by itself: a gigabyte, and a quarter more for what may come before the
// collector has been through.
const ownBound = 1280 * mib

func fixed(size int) func(int) int { return func(int) int { return size } }

const large = 1000 << 10 // a value

// lasts is for how long a scenario goes on.
func lasts() time.Duration { return cluster.Sized(5*time.Second, time.Minute) }

// TestStoppedPeer: a process that is stopped keeps its connections and takes nothing, while
// the others go on at full speed.
func TestStoppedPeer(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := createGroups(t, c, 10)
	working := c.Nodes()[:2]
	c.Node(3).Freeze()
	w := newWatch(t, &watch{nodes: working})
	l := newLoad(t, &load{
		nodes: working, groups: groups, clients: 32, keys: 10, size: fixed(64 << 10),
	})
	w.passedBy(l)
	// The groups that the third led need others first.
	cluster.Pause(t.Context().Done(), lasts()+5*time.Second)
	l.ended(t)
	w.check(t, ownBound)
	if l.passed.Load() == 0 {
		t.Error("nothing was written")
	}
	c.Node(3).Thaw()
	c.AwaitReady(time.Minute)
}

// TestNoQuorum: two of three nodes are gone, and many clients try again and again to write
// large values. Once the two are back, writes are done within seconds.
func TestNoQuorum(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := createGroups(t, c, 10)
	c.Kill(c.Node(2), c.Node(3))
	one := c.Nodes()[:1]
	w := newWatch(t, &watch{nodes: one})
	l := newLoad(t, &load{
		nodes: one, groups: groups, clients: 300, keys: 10, size: fixed(large),
		timeout: 2 * time.Second,
	})
	w.passedBy(l)
	cluster.Pause(t.Context().Done(), cluster.Sized(lasts(), 2*time.Minute))
	cluster.Eventually(t, time.Minute, "some of 300 MB of bodies are refused", func() error {
		if l.answers(client.CodeOverloaded) == 0 {
			return errors.New("nobody is")
		}
		return nil
	})
	c.Node(2).Start()
	c.Node(3).Start()
	back := time.Now()
	before := l.passed.Load()
	cluster.Eventually(t, time.Minute, "writes are done again", func() error {
		if l.passed.Load() == before {
			return fmt.Errorf("none in %v", time.Since(back))
		}
		return nil
	})
	t.Logf("written again %v after the two others were started", time.Since(back))
	l.ended(t)
	w.check(t, ownBound)
}

// TestLargeValues: a megabyte each, from many clients, written and read.
func TestLargeValues(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := createGroups(t, c, 10)
	w := newWatch(t, &watch{nodes: c.Nodes()})
	l := newLoad(t, &load{
		nodes: c.Nodes(), groups: groups, clients: 64, keys: 10, size: fixed(large),
	})
	w.passedBy(l)
	cluster.Pause(t.Context().Done(), lasts())
	l.ended(t)
	w.check(t, ownBound)
	if l.passed.Load() == 0 {
		t.Error("nothing was written")
	}
}

// TestManyConnections: thousands of clients ask for large values and read nothing of the
// answers, others only connect. Probes are answered meanwhile, and so is who comes later.
func TestManyConnections(t *testing.T) {
	c := cluster.New(t, cluster.Config{})
	c.Start()
	groups := createGroups(t, c, 1)
	n := c.Node(1)
	path := cluster.KeyPath(groups[0], "large")
	put := cluster.Request{Method: http.MethodPut, Path: path, Body: noise(large)}
	if err := n.Do(t.Context(), put).Error(); err != nil {
		t.Fatal(err)
	}
	w := newWatch(t, &watch{nodes: c.Nodes()})
	askers, idle := cluster.Sized(500, 3000), cluster.Sized(500, 2500)
	var conns []net.Conn
	dial := func() net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		return conn
	}
	for range idle {
		dial()
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for range askers {
		if _, err := io.WriteString(dial(), request); err != nil {
			t.Fatal(err)
		}
	}
	answered := time.Now()
	a := n.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: "/livez"})
	if err := a.Error(); err != nil {
		t.Errorf("a probe: %v", err)
	}
	t.Logf("a probe beside %d connections took %v", len(conns), time.Since(answered))
	how := firstLines(t.Context(), conns[idle:])
	t.Logf("answers: %v", how)
	if how["200"] == 0 {
		t.Error("nobody gets an answer")
	}
	if cluster.FullScale() && how["429"] == 0 {
		t.Error("there are more connections than may be, and nobody is told")
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	cluster.Eventually(t, time.Minute, "a value is read again", func() error {
		return n.Do(t.Context(), cluster.Request{Method: http.MethodGet, Path: path}).Error()
	})
	w.check(t, ownBound)
}

// firstLines reads the status of each answer, and nothing more.
func firstLines(ctx context.Context, conns []net.Conn) map[string]int {
	how := make(map[string]int)
	deadline := time.Now().Add(10 * time.Second)
	for _, conn := range conns {
		status := "none"
		if err := conn.SetReadDeadline(deadline); err == nil && ctx.Err() == nil {
			line, err := bufio.NewReaderSize(conn, 16).Peek(12)
			if err == nil {
				status = string(line[9:12])
			}
		}
		how[status]++
	}
	return how
}
