//go:build unix

package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// patient bounds what must come, brief how long a test looks whether something
// comes that must not.
const (
	patient = 10 * time.Second
	brief   = 100 * time.Millisecond
)

// echoNetwork is a network with an echo in the place of node 2.
func echoNetwork(t *testing.T) (*Network, string) {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		echo(ln)
	}()
	w := newNetwork()
	t.Cleanup(func() {
		w.close()
		_ = ln.Close()
		<-done
		goleak.VerifyNone(t)
	})
	addr, err := w.join(2, ln.Addr().String)
	if err != nil {
		t.Fatal(err)
	}
	return w, addr
}

// echo sends back what comes over connections, until no more are taken.
func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

// hello is the first frame of a node.
func hello(from raftyard.NodeID) []byte {
	body := append(wire.AppendUvarint(wire.AppendUvarint(nil, 1), 1), 1)
	body = wire.AppendUvarint(wire.AppendID(body, [16]byte{9}), uint64(from))
	body = append(body, "and so on"...)
	head := binary.BigEndian.AppendUint32([]byte("raftyard"), uint32(len(body)))
	return append(append(head, make([]byte, 8)...), body...)
}

// dial connects as a node, and waits for the echo of its hello if it is to come.
func dial(t *testing.T, addr string, from raftyard.NodeID, echo bool) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	first := hello(from)
	if _, err := c.Write(first); err != nil {
		t.Fatal(err)
	}
	if echo {
		hear(t, c, string(first))
	}
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// hear reads a text, which must come within the limit.
func hear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patient))
	got := make([]byte, len(text))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("heard %q, %v, want %q", got[:n], err, text)
	}
}

// silent checks that nothing comes for a while, not even an end.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(brief))
	n, err := c.Read(make([]byte, 1))
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want nothing to come", n, err)
	}
}

func ended(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patient))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want the connection ended", n, err)
	}
}

func TestNetworkPasses(t *testing.T) {
	_, addr := echoNetwork(t)
	c := dial(t, addr, 1, true)
	say(t, c, "hello")
	hear(t, c, "hello")
}

// TestNetworkCut cuts each direction, and checks that what was sent waits, that
// others are not touched, and that the end of a connection waits, too.
func TestNetworkCut(t *testing.T) {
	for _, l := range []Link{{From: 1, To: 2}, {From: 2, To: 1}} {
		t.Run(fmt.Sprintf("%d to %d", l.From, l.To), func(t *testing.T) {
			w, addr := echoNetwork(t)
			one, three := dial(t, addr, 1, true), dial(t, addr, 3, true)
			w.Set(Condition{Cut: true}, l)
			say(t, one, "late")
			say(t, three, "at once")
			hear(t, three, "at once")
			silent(t, one)

			fresh := dial(t, addr, 1, false)
			silent(t, fresh)
			w.Heal()
			hear(t, one, "late")
			hear(t, fresh, string(hello(1)))
		})
	}
}

// TestNetworkCutHoldsTheEnd closes a connection behind a link that is cut: the
// other end must not learn of it before the link is mended.
func TestNetworkCutHoldsTheEnd(t *testing.T) {
	w, addr := echoNetwork(t)
	c := dial(t, addr, 1, true)
	w.Set(Condition{Cut: true}, Link{From: 2, To: 1})
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		t.Fatalf("a connection is a %T", c)
	}
	if err := tcp.CloseWrite(); err != nil { // the echo then closes its end
		t.Fatal(err)
	}
	silent(t, c)
	w.Heal()
	ended(t, c)
}

func TestNetworkReset(t *testing.T) {
	w, addr := echoNetwork(t)
	one, three := dial(t, addr, 1, true), dial(t, addr, 3, true)
	w.Set(Condition{Cut: true}, Link{From: 1, To: 2})
	say(t, one, "lost")
	if n := w.Reset(Between([]raftyard.NodeID{1}, []raftyard.NodeID{2})...); n != 1 {
		t.Errorf("%d connections reset, want 1", n)
	}
	ended(t, one)
	w.Heal()
	say(t, three, "still here")
	hear(t, three, "still here")
}

func TestNetworkDelay(t *testing.T) {
	w, addr := echoNetwork(t)
	c := dial(t, addr, 1, true)
	const delay = 150 * time.Millisecond
	w.Set(Condition{Delay: delay, Jitter: delay / 10}, Link{From: 1, To: 2})
	begun := time.Now()
	// Pieces are on their way together: their delays do not add up.
	for range 10 {
		say(t, c, "a piece.")
		silentFor(t, c, 2*time.Millisecond)
	}
	hear(t, c, "a piece.")
	if took := time.Since(begun); took < delay {
		t.Errorf("the first piece came after %v, want at least %v", took, delay)
	}
	for range 9 {
		hear(t, c, "a piece.")
	}
	if took := time.Since(begun); took > 5*delay {
		t.Errorf("all pieces came after %v, want about %v", took, delay)
	}
}

// silentFor lets a little time pass in which nothing may come.
func silentFor(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	if n, _ := c.Read(make([]byte, 1)); n > 0 {
		t.Fatal("something came before its time")
	}
}

func TestNetworkRate(t *testing.T) {
	w, addr := echoNetwork(t)
	c := dial(t, addr, 1, true)
	const perSecond = 200 << 10
	w.Set(Condition{BytesPerSecond: perSecond}, Link{From: 1, To: 2})
	text := make([]byte, 100<<10)
	begun := time.Now()
	say(t, c, string(text))
	hear(t, c, string(text))
	// One piece may pass at once.
	least := time.Duration(len(text)-pieceSize) * time.Second / perSecond
	if took := time.Since(begun); took < least*9/10 {
		t.Errorf("%d bytes took %v, want at least %v", len(text), took, least)
	}
}

// TestNetworkStranger connects with what is no node.
func TestNetworkStranger(t *testing.T) {
	w, addr := echoNetwork(t)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	say(t, c, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")
	ended(t, c)
	// One that says nothing is waited for, and ends with the network.
	idle, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	w.close()
	ended(t, idle)
}
