package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memoryBuffer is how many bytes are under way in one direction of a
// connection before its writer waits.
const memoryBuffer = 256 << 10

// memoryListener takes the connections to one address of a Memory.
type memoryListener struct {
	m       *Memory
	addr    string
	backlog chan *memoryConn
	once    sync.Once
	closed  chan struct{}

	conns map[*memoryConn]struct{} // dialled ends that are open; guarded by m.mu
}

type memoryAddr string

// Network implements [net.Addr].
func (memoryAddr) Network() string { return "memory" }

// String implements [net.Addr].
func (a memoryAddr) String() string { return string(a) }

// Addr implements [net.Listener].
func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.addr) }

// Accept implements [net.Listener].
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		if l.m.listeners[l.addr] == l {
			delete(l.m.listeners, l.addr)
		}
	})
	return nil
}

// connect makes both ends of a connection and hands one to Accept.
func (l *memoryListener) connect(ctx context.Context, r route) (net.Conn, error) {
	pass := func() (bool, time.Duration) {
		open, delay, _ := l.m.passage(r)
		return open, delay
	}
	up, down := newPipe(pass), newPipe(pass)
	dialler := &memoryConn{
		l: l, route: r, local: MemoryAddr(r.from), remote: l.addr,
		in: down, out: up, up: up, down: down,
	}
	acceptor := &memoryConn{
		l: l, route: r, local: l.addr, remote: MemoryAddr(r.from), in: up, out: down,
	}
	select {
	case l.backlog <- acceptor:
	case <-l.closed:
		return nil, fmt.Errorf("memory: %s: %w", l.addr, errRefused)
	case <-ctx.Done():
		return nil, fmt.Errorf("memory: %s: %w", l.addr, context.Cause(ctx))
	}
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.conns[dialler] = struct{}{}
	return dialler, nil
}

// memoryConn is one end of a connection: it reads one pipe and writes another.
type memoryConn struct {
	l             *memoryListener
	route         route // of the node that has dialled
	local, remote string
	in, out       *pipe
	up, down      *pipe // both, at the end that is registered with the listener
}

// Read implements [net.Conn].
func (c *memoryConn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write implements [net.Conn].
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.write(p) }

// LocalAddr implements [net.Conn].
func (c *memoryConn) LocalAddr() net.Addr { return memoryAddr(c.local) }

// RemoteAddr implements [net.Conn].
func (c *memoryConn) RemoteAddr() net.Addr { return memoryAddr(c.remote) }

// Close ends both directions. What was written before still arrives.
func (c *memoryConn) Close() error {
	c.out.closeWriter()
	c.in.closeReader()
	c.l.m.mu.Lock()
	defer c.l.m.mu.Unlock()
	delete(c.l.conns, c)
	return nil
}

// SetDeadline implements [net.Conn].
func (c *memoryConn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline implements [net.Conn].
func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

// pipe is one direction of a connection: segments of bytes, each with the time
// at which it arrives. Nothing arrives while the route is cut.
type pipe struct {
	pass func() (open bool, delay time.Duration)

	mu           sync.Mutex
	changed      chan struct{} // if somebody waits: closed at the next change
	segments     []segment
	size         int
	last         time.Time // when the last segment arrives
	writerClosed bool
	readerClosed bool

	readDeadline, writeDeadline time.Time
}

type segment struct {
	at   time.Time
	data []byte
}

func newPipe(pass func() (bool, time.Duration)) *pipe { return &pipe{pass: pass} }

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

func (p *pipe) wakeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// pause is what a reader or writer waits for that cannot go on: a change of the
// pipe, or a time, unless that is zero.
type pause struct {
	changed <-chan struct{}
	until   time.Time
}

func (p *pipe) pauseLocked(times ...time.Time) pause {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	w := pause{changed: p.changed}
	for _, t := range times {
		if !t.IsZero() && (w.until.IsZero() || t.Before(w.until)) {
			w.until = t
		}
	}
	return w
}

func (w pause) wait() {
	if w.until.IsZero() {
		<-w.changed
		return
	}
	timer := time.NewTimer(time.Until(w.until))
	defer timer.Stop()
	select {
	case <-w.changed:
	case <-timer.C:
	}
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

func (p *pipe) read(b []byte) (int, error) {
	for {
		n, w, err := p.tryRead(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		w.wait()
	}
}

// tryRead reads what has arrived. If nothing has, it returns what to wait for.
func (p *pipe) tryRead(b []byte) (n int, w pause, err error) {
	open, _ := p.pass()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.readerClosed:
		return 0, w, net.ErrClosed
	case expired(p.readDeadline):
		return 0, w, os.ErrDeadlineExceeded
	case !open:
		return 0, p.pauseLocked(p.readDeadline), nil
	case len(p.segments) == 0 && p.writerClosed:
		return 0, w, io.EOF
	case len(p.segments) == 0:
		return 0, p.pauseLocked(p.readDeadline), nil
	}
	s := &p.segments[0]
	if s.at.After(time.Now()) {
		return 0, p.pauseLocked(p.readDeadline, s.at), nil
	}
	n = copy(b, s.data)
	s.data = s.data[n:]
	if len(s.data) == 0 {
		p.segments[0] = segment{}
		p.segments = p.segments[1:]
	}
	p.size -= n
	p.wakeLocked()
	return n, w, nil
}

func (p *pipe) write(b []byte) (written int, err error) {
	for len(b) > 0 {
		n, w, err := p.tryWrite(b)
		if err != nil {
			return written, err
		}
		written += n
		b = b[n:]
		if n == 0 {
			w.wait()
		}
	}
	return written, nil
}

// tryWrite writes what there is room for. If there is none, it returns what to
// wait for.
func (p *pipe) tryWrite(b []byte) (n int, w pause, err error) {
	open, delay := p.pass()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.writerClosed:
		return 0, w, net.ErrClosed
	case p.readerClosed && open:
		return 0, w, fmt.Errorf("memory: %w", io.ErrClosedPipe)
	case expired(p.writeDeadline):
		return 0, w, os.ErrDeadlineExceeded
	}
	n = min(len(b), memoryBuffer-p.size)
	if n <= 0 {
		return 0, p.pauseLocked(p.writeDeadline), nil
	}
	at := time.Now().Add(delay)
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	p.segments = append(p.segments, segment{at: at, data: append([]byte(nil), b[:n]...)})
	p.size += n
	p.wakeLocked()
	return n, w, nil
}

func (p *pipe) closeWriter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writerClosed = true
	p.wakeLocked()
}

func (p *pipe) closeReader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readerClosed = true
	p.wakeLocked()
}

func (p *pipe) setReadDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readDeadline = t
	p.wakeLocked()
}

func (p *pipe) setWriteDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeDeadline = t
	p.wakeLocked()
}
