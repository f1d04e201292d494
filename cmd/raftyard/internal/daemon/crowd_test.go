package daemon

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/raftyard/raftyard/node/admin"
)

// TestCrowd: over the bound a connection is marked, far over it is closed, and what goes
// away makes room.
func TestCrowd(t *testing.T) {
	c := newCrowd(listen(t), 2)
	server := &http.Server{ConnContext: connContext, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			text := "room"
			if admin.IsCrowded(r.Context()) {
				text = "crowded"
			}
			_, _ = io.WriteString(w, text)
		})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(c) }()
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if n := c.connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	}()
	var conns []net.Conn
	ask := func() string {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err != nil {
			return "closed"
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return "closed"
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if most, refused := c.limit(); most != 2 || refused != 0 {
		t.Errorf("there may be %d, and %d were too many", most, refused)
	}
	var got []string
	for range 2 + vitalConnections + 2 {
		got = append(got, ask())
	}
	want := strings.Repeat("room ", 2) + strings.Repeat("crowded ", vitalConnections) +
		strings.Repeat("closed ", 2)
	if text := strings.Join(got, " ") + " "; text != want {
		t.Errorf("connections are answered\n%s, want\n%s", text, want)
	}
	if _, refused := c.limit(); refused != vitalConnections+2 {
		t.Errorf("%d are counted as too many, want %d", refused, vitalConnections+2)
	}
	leave := func() {
		for _, conn := range conns {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		conns = nil
	}
	leave()
	for ask() != "room" { // the server notices by and by
		leave()
	}
	leave()
}
