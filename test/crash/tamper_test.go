//go:build unix

package crash

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Of frames, this is what the relay has to know; see docs/formats/transport.md.
const (
	relayGreeting  = 8
	relayHeader    = 12
	relayEnvelopes = 6       // raft messages: they may be lost, come twice or late
	relayLimit     = 1 << 26 // of a frame
)

// A relay stands before a node: others reach the node through it. While it
// tampers it flips bits in what passes, cuts connections within a frame, and
// loses, doubles and swaps frames of raft messages.
type relay struct {
	listener net.Listener
	target   atomic.Pointer[string] // nil: the node is down
	tamper   atomic.Bool
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu    sync.Mutex
	dice  *rand.Rand
	conns map[net.Conn]bool

	flipped, cut, lost, doubled, swapped atomic.Int64
}

func newRelay(t *testing.T, seed uint64) *relay {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{
		listener: l, dice: rand.New(rand.NewPCG(seed, 43)), conns: make(map[net.Conn]bool),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// close ends all connections, and waits.
func (r *relay) close() {
	r.cancel()
	_ = r.listener.Close() // nobody listens any more, whatever it says
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c) })
	}
}

// keep notes a connection, to be closed at the end, and reports whether it is not
// too late for that.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_ = c.Close() // it may be closed already
}

// serve relays one connection until one of its ends is closed.
func (r *relay) serve(from net.Conn) {
	defer r.drop(from)
	target := r.target.Load()
	if target == nil || !r.keep(from) {
		return
	}
	to, err := new(net.Dialer).DialContext(r.ctx, "tcp", *target)
	if err != nil {
		return
	}
	defer r.drop(to)
	if !r.keep(to) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_ = r.pump(from, to) // how it ended makes no difference
		_ = from.Close()
	})
	_ = r.pump(to, from)
	_ = to.Close()
	back.Wait()
}

// chance is true so many times out of a thousand, while the relay tampers.
func (r *relay) chance(perMille int) bool { return r.tamper.Load() && r.roll(1000) < perMille }

func (r *relay) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

// pump copies one direction, frame by frame.
func (r *relay) pump(to io.Writer, from io.Reader) error {
	in := bufio.NewReader(from)
	if _, err := io.CopyN(to, in, relayGreeting); err != nil {
		return err
	}
	var held []byte // comes after the next one
	for {
		frame, err := readFrame(in)
		if err != nil {
			return err
		}
		frames := [][]byte{frame}
		if frame[4] == relayEnvelopes {
			frames, held = r.shuffle(frame, held)
		}
		for _, f := range frames {
			if f, err = r.damage(f); err != nil {
				_, werr := to.Write(f)
				return errors.Join(err, werr)
			}
			if _, err = to.Write(f); err != nil {
				return err
			}
		}
	}
}

// shuffle returns what is sent now, and what is held back until the next frame.
func (r *relay) shuffle(frame, held []byte) (now [][]byte, _ []byte) {
	if held != nil {
		r.swapped.Add(1)
		return [][]byte{frame, held}, nil
	}
	if !r.tamper.Load() {
		return [][]byte{frame}, nil
	}
	switch n := r.roll(1000); {
	case n < 50:
		return nil, frame
	case n < 100:
		r.lost.Add(1)
		return nil, nil
	case n < 200:
		r.doubled.Add(1)
		return [][]byte{frame, frame}, nil
	}
	return [][]byte{frame}, nil
}

var errCut = errors.New("cut within a frame")

// damage flips a bit of a frame, or returns its beginning and errCut.
func (r *relay) damage(frame []byte) ([]byte, error) {
	if r.chance(3) {
		r.flipped.Add(1)
		frame = append([]byte(nil), frame...)
		frame[r.roll(len(frame))] ^= 1 << r.roll(8)
	}
	if r.chance(3) {
		r.cut.Add(1)
		return frame[:r.roll(len(frame))], errCut
	}
	return frame, nil
}

func readFrame(in *bufio.Reader) ([]byte, error) {
	frame := make([]byte, relayHeader)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(frame)
	if n > relayLimit {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame = append(frame, make([]byte, n)...)
	_, err := io.ReadFull(in, frame[relayHeader:])
	return frame, err
}
