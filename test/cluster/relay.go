//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

const (
	// pieceSize is how much is carried at a time, and pieces how many may be on
	// their way in one direction of a connection; the sender's own buffers come
	// after that.
	pieceSize = 32 << 10
	pieces    = 64

	helloPatience = 10 * time.Second
	dialPatience  = 2 * time.Second
)

// A relay is one connection, carried in two halves: from the node that has made it,
// and to the one that it is for.
type relay struct {
	forth, back Link
	cancel      context.CancelFunc

	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

// A piece is what was read at once.
type piece struct {
	data []byte
	due  time.Time
}

// relay carries a connection to a node until either end closes it, it is reset, or
// the network is closed.
func (w *Network) relay(c net.Conn, to raftyard.NodeID, listens func() string) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	r := &relay{cancel: cancel}
	r.hold(c)
	defer r.close()
	defer context.AfterFunc(ctx, r.close)()
	from, first, err := readHello(c)
	if err != nil {
		return // a stranger, or a node that has died
	}
	r.forth, r.back = Link{From: from, To: to}, Link{From: to, To: from}
	w.enter(r)
	defer w.leave(r)

	// Nothing of a connection gets there before its begin, and that is answered.
	if w.pass(ctx, r.forth, 1) != nil || w.pass(ctx, r.back, 1) != nil {
		return
	}
	dialer := net.Dialer{Timeout: dialPatience}
	target, err := dialer.DialContext(ctx, "tcp", listens())
	if err != nil || !r.hold(target) {
		return
	}
	var halves sync.WaitGroup
	sent := io.MultiReader(bytes.NewReader(first), c)
	halves.Go(func() { w.carry(ctx, r, half{link: r.forth, from: sent, to: target}) })
	halves.Go(func() { w.carry(ctx, r, half{link: r.back, from: target, to: c}) })
	halves.Wait()
}

// A half is one direction of a connection.
type half struct {
	link Link
	from io.Reader
	to   net.Conn
}

// carry passes on what comes from one end to the other, and at last how it has
// ended: with nothing more to be said, which leaves the other half alone, or broken.
func (w *Network) carry(ctx context.Context, r *relay, h half) {
	queue := make(chan piece, pieces)
	var ending error
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(queue)
		ending = w.read(ctx, h, queue)
	})
	defer reading.Wait()
	gone := false // the receiver; the sender learns of it from the other half
	for p := range queue {
		if !Pause(ctx.Done(), time.Until(p.due)) || w.pass(ctx, h.link, len(p.data)) != nil {
			r.close()
			return
		}
		if !gone {
			_, err := h.to.Write(p.data)
			gone = err != nil
		}
	}
	err := errors.Join(ending, w.pass(ctx, h.link, 1))
	if tcp, ok := h.to.(*net.TCPConn); ok && err == nil {
		err = tcp.CloseWrite()
	}
	if err != nil {
		r.close()
	}
}

// read queues what comes from an end, until there is no more. It returns nil if the
// end has said so.
func (w *Network) read(ctx context.Context, h half, queue chan<- piece) error {
	buf := make([]byte, pieceSize)
	for {
		n, err := h.from.Read(buf)
		if n > 0 {
			s, _ := w.look(h.link)
			due := time.Now().Add(s.Delay)
			if s.Jitter > 0 {
				due = due.Add(rand.N(s.Jitter))
			}
			select {
			case queue <- piece{data: bytes.Clone(buf[:n]), due: due}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// hold makes the relay the owner of a connection. False: the relay has ended, and
// the connection is closed.
func (r *relay) hold(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		_ = c.Close()
		return false
	}
	r.conns = append(r.conns, c)
	return true
}

func (r *relay) close() { r.finish(false) }

// reset ends the relay so that both ends see that something is wrong.
func (r *relay) reset() {
	r.finish(true)
	r.cancel()
}

func (r *relay) finish(reset bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	for _, c := range r.conns {
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // an error: it is closed already
		}
		_ = c.Close()
	}
}

// readHello reads the first frame of a connection and returns who has made it, and
// what was read. docs/formats/transport.md describes it; what comes before the id
// stays as it is in all versions of the protocol.
func readHello(c net.Conn) (raftyard.NodeID, []byte, error) {
	const (
		magicSize  = 8
		headerSize = 12
		maxBody    = 4 << 10
	)
	if err := c.SetReadDeadline(time.Now().Add(helloPatience)); err != nil {
		return 0, nil, err
	}
	got := make([]byte, magicSize+headerSize)
	if _, err := io.ReadFull(c, got); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(got[magicSize:])
	if size > maxBody {
		return 0, nil, fmt.Errorf("a hello of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return 0, nil, err
	}
	r := wire.NewReader(body)
	_, _, _ = r.Uvarint(), r.Uvarint(), r.Byte() // versions, class
	_ = r.ID()                                   // cluster
	id := raftyard.NodeID(r.Uvarint())
	return id, append(got, body...), errors.Join(r.Err(), c.SetReadDeadline(time.Time{}))
}
