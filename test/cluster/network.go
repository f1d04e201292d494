//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/raftyard/raftyard"
)

// A Link is one direction between two nodes: what From sends to To, whoever has
// made the connection.
type Link struct{ From, To raftyard.NodeID }

// A Condition is what a link does to what is sent over it. The zero value passes
// everything on at once.
type Condition struct {
	// Cut: nothing arrives. What is sent waits, first here and then at the sender,
	// and so does the end of a connection; it arrives when the link is mended,
	// unless the connection is reset. New connections are accepted, and nothing
	// comes of them.
	Cut bool
	// Delay is how long everything is on its way, and Jitter bounds a random part
	// that is added. The order stays.
	Delay, Jitter time.Duration
	// BytesPerSecond bounds what all connections may carry together. Zero: no bound.
	BytesPerSecond int
}

// A Network is what the nodes of a cluster reach each other through: a relay in
// front of each of them. It knows by the first frame of a connection who has made
// it, so each pair of nodes can be treated differently, and each direction. Its
// methods are safe for concurrent use.
type Network struct {
	ctx context.Context // ends with the network
	end context.CancelFunc
	wg  sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	links     map[Link]*linkState
	relays    map[*relay]struct{}
	changed   chan struct{} // closed, and replaced, when a link has another condition
}

// linkState is the condition of a link, and what it has carried of late.
type linkState struct {
	Condition
	limiter *rate.Limiter // nil: no bound
}

// newNetwork makes a network for nobody; close ends it.
func newNetwork() *Network {
	ctx, cancel := context.WithCancel(context.Background())
	return &Network{
		ctx: ctx, end: cancel,
		links: make(map[Link]*linkState), relays: make(map[*relay]struct{}),
		changed: make(chan struct{}),
	}
}

// join puts a relay in front of a node and returns its address. Where the node
// itself listens is asked for each connection.
func (w *Network) join(id raftyard.NodeID, listens func() string) (string, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(w.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("relay for node %d: %w", id, err)
	}
	w.mu.Lock()
	w.listeners = append(w.listeners, ln)
	w.mu.Unlock()
	w.wg.Go(func() { w.accept(ln, id, listens) })
	return ln.Addr().String(), nil
}

// accept takes connections to a node until the network is closed.
func (w *Network) accept(ln net.Listener, to raftyard.NodeID, listens func() string) {
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			w.wg.Go(func() { w.relay(c, to, listens) })
		case errors.Is(err, net.ErrClosed):
			return
		case !Pause(w.ctx.Done(), pollEvery): // such as: too many open files
			return
		}
	}
}

// close ends every connection, and waits until nothing is left of the network.
func (w *Network) close() {
	w.end()
	w.mu.Lock()
	for _, ln := range w.listeners {
		_ = ln.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// Set gives links a condition.
func (w *Network) Set(c Condition, links ...Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range links {
		s := &linkState{Condition: c}
		if c.BytesPerSecond > 0 {
			s.limiter = rate.NewLimiter(rate.Limit(c.BytesPerSecond), pieceSize)
		}
		w.links[l] = s
	}
	w.tellLocked()
}

// Heal gives every link the zero condition.
func (w *Network) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.links)
	w.tellLocked()
}

func (w *Network) tellLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Reset ends all connections that use one of the links, as a firewall does that has
// lost its memory: both ends are told, and what was on its way is lost. It returns
// how many connections that were.
func (w *Network) Reset(links ...Link) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for r := range w.relays {
		for _, l := range links {
			if l == r.forth || l == r.back {
				r.reset()
				n++
				break
			}
		}
	}
	return n
}

// Between returns the links between nodes of the one list and nodes of the other,
// in both directions.
func Between(some, others []raftyard.NodeID) []Link {
	return append(Towards(some, others), Towards(others, some)...)
}

// Towards returns the links from nodes of the one list to nodes of the other.
func Towards(some, others []raftyard.NodeID) []Link {
	var links []Link
	for _, a := range some {
		for _, b := range others {
			if a != b {
				links = append(links, Link{From: a, To: b})
			}
		}
	}
	return links
}

// look returns the state of a link, and what is closed when that may have changed.
func (w *Network) look(l Link) (linkState, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.links[l]; s != nil {
		return *s, w.changed
	}
	return linkState{}, w.changed
}

// pass waits until so many bytes may arrive over a link. It returns an error when
// ctx ends before.
func (w *Network) pass(ctx context.Context, l Link, size int) error {
	for {
		s, changed := w.look(l)
		switch {
		case s.Cut:
		case s.limiter != nil:
			return s.limiter.WaitN(ctx, size)
		default:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter makes a relay known, and leave makes it forgotten.
func (w *Network) enter(r *relay) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relays[r] = struct{}{}
}

func (w *Network) leave(r *relay) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.relays, r)
}
