package admin

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/raftyard/raftyard/client"
)

// pipes is a listener of connections in memory, so that time can be synctest's.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestUnreadScrapesEnd: who asks for metrics and reads nothing keeps a place for a
// while only, at most [vitalSlots] of them, and none of the probes'.
func TestUnreadScrapesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := newHandler(t, Config{MaxInFlight: 1})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		var conns []net.Conn
		for range vitalSlots {
			ours, theirs := net.Pipe()
			conns = append(conns, ours)
			l.conns <- theirs
			_, err := io.WriteString(ours, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if p := problemOf(t, ask(h, "GET", "/metrics", "")); p.Code != client.CodeOverloaded {
			t.Errorf("one more scrape = %s, want %s", p.Code, client.CodeOverloaded)
		}
		for _, path := range []string{"/livez", "/readyz", "/v1/status"} {
			if got := ask(h, "GET", path, ""); got.StatusCode != http.StatusOK {
				t.Errorf("GET %s beside unread scrapes = %d", path, got.StatusCode)
			}
		}
		time.Sleep(10*time.Second + linger + time.Second) // no real time
		if got := ask(h, "GET", "/metrics", ""); got.StatusCode != http.StatusOK {
			t.Errorf("a scrape after the others' time = %d", got.StatusCode)
		}
		for _, c := range conns {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
