//go:build linux

package memory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// TestFewConnections: with a limit of four connections whoever has one of them is served, the
// next is told that there are too many, and that nothing was done, probes and metrics are
// answered nevertheless, and when somebody leaves there is room again.
func TestFewConnections(t *testing.T) {
	const most = 4
	c := cluster.New(t, cluster.Config{Nodes: 1})
	n := c.Node(1)
	n.Configure("listen:\n", fmt.Sprintf("limits:\n  http_connections: %d\nlisten:\n", most))
	c.Start()
	var conns []*conn
	leave := func() {
		for _, x := range conns {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
		conns = nil
	}
	defer leave()
	join := func(request string) string {
		x := dialHTTP(t, n)
		conns = append(conns, x)
		return x.ask(t, request)
	}
	// Those of the test that has started the node go away by themselves.
	n.CloseConnections()
	cluster.Eventually(t, time.Minute, "as many as there may be are served", func() error {
		leave()
		for range most {
			if answer := join("GET /v1/status"); !strings.HasPrefix(answer, "200 ") {
				return errors.New(answer)
			}
		}
		return nil
	})
	for range 3 {
		answer := join("PUT /v1/groups/1/kv/k")
		if !strings.HasPrefix(answer, "429 ") || !strings.Contains(answer, client.CodeOverloaded) ||
			!strings.Contains(answer, client.OutcomeNotApplied) {
			t.Errorf("one connection too many is answered %s", answer)
		}
	}
	if answer := join("GET /livez"); !strings.HasPrefix(answer, "200 ") {
		t.Errorf("a probe is answered %s", answer)
	}
	answer := join("GET /metrics")
	for _, want := range []string{
		fmt.Sprintf("raftyard_limit{limit=\"http_connections\"} %d\n", most),
		`raftyard_limit_used{limit="http_connections"} `,
		`raftyard_limit_refusals_total{limit="http_connections"} `,
	} {
		if !strings.Contains(answer, want) {
			t.Errorf("the metrics have no %q", want)
		}
	}
	if strings.Contains(answer, `raftyard_limit_refusals_total{limit="http_connections"} 0`) {
		t.Error("nobody is counted as refused")
	}
	for _, x := range conns[:most] {
		if got := x.ask(t, "GET /v1/status"); !strings.HasPrefix(got, "200 ") {
			t.Errorf("one of those who were there before is answered %s", got)
		}
	}
	leave()
	cluster.Eventually(t, time.Minute, "there is room again", func() error {
		defer leave()
		if got := join("GET /v1/status"); !strings.HasPrefix(got, "200 ") {
			return errors.New(got)
		}
		return nil
	})
}

// A conn is a connection of one's own to the HTTP port of a node.
type conn struct {
	net.Conn

	answers *bufio.Reader
}

func dialHTTP(t *testing.T, n *cluster.Node) *conn {
	t.Helper()
	x, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.HTTPAddr())
	if err == nil {
		err = x.SetDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &conn{Conn: x, answers: bufio.NewReader(x)}
}

// ask sends a request without a body and returns the code of its answer, and what that holds.
func (c *conn) ask(t *testing.T, request string) string {
	t.Helper()
	text := request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(c, text); err != nil {
		return err.Error()
	}
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}
