package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
	"github.com/raftyard/raftyard/test/sim/internal/simnet"
)

// standing is what a host is in the cluster, as far as somebody has asked for it.
type standing struct {
	guest bool // it is not one of those that the cluster is founded with
	asked bool // somebody has it join
	in    bool // it belongs to the cluster

	drained  bool // it was last asked to lead nothing
	draining int  // so many ask it to, or take that back
	touched  bool // somebody has

	// drainDoubted: that was asked, and may come to pass when something else has been asked.
	drainDoubted bool

	removed bool // it was taken out of the cluster

	moves int // how often its address has changed
}

// members are the hosts that belong to the cluster, in order.
func (w *World) members() []*host {
	var in []*host
	for _, h := range w.hosts {
		if h.in {
			in = append(in, h)
		}
	}
	return in
}

// address is where the host is found.
func (h *host) address() string {
	if h.moves == 0 {
		return simnet.Address(h.id)
	}
	return fmt.Sprintf("%s.%d", simnet.Address(h.id), h.moves)
}

// join has a host that is not in the cluster become a node of it: it is started, and
// somebody is told of it, or the other way round.
func join(w *World, f *Fault) {
	h := w.host(f.Node)
	if !h.guest || h.asked {
		return
	}
	h.asked = true
	w.joining++
	begin := func() {
		h.wanted = true
		h.start()
	}
	if f.N&1 == 0 {
		begin()
	}
	w.clients.Go("join", func() {
		w.clients.Sleep(context.Background(), f.For)
		spec := node.NodeSpec{ID: h.id, Peer: h.address()}
		for w.admin(func(ctx context.Context, n *node.Node) error {
			_, err := n.PutNode(ctx, spec)
			return err
		}) != nil {
			w.clients.Sleep(context.Background(), 50*time.Millisecond)
		}
		h.in = true
		w.counts.Joins++
		w.log(h.id, "has joined", "")
		w.turns.After(0, begin)
		w.joining--
	})
}

// move has nodes come back at other addresses, which they are configured with then: one
// node, or all at the same time, as soon as all are ready. Before, there may be one that
// the others do not know how to reach yet: if they could not reach another one either,
// nobody could tell them any more.
func move(w *World, f *Fault) {
	w.every(50*time.Millisecond, func() bool {
		if !w.working || w.joining > 0 || len(w.unready()) > 0 {
			return !w.working
		}
		var moving []*host
		for _, h := range w.members() {
			if !h.lost && (h.id == f.Node || f.N != 0) {
				moving = append(moving, h)
				h.moves++
				h.log("moves to", h.address())
			}
		}
		w.counts.Moves += len(moving)
		for _, h := range moving {
			w.kill(h.id, f.For)
		}
		return true
	})
}

// drain has a node lead nothing any more, or takes that back.
func drain(w *World, f *Fault) {
	h := w.host(f.Node)
	if !h.in || h.draining > 2 {
		return
	}
	h.draining++
	w.clients.Go(string(f.Kind), func() {
		_ = w.setDrained(h, f.Kind == Drain) // settled after the last fault
		h.draining--
	})
}

func (w *World) setDrained(h *host, drained bool) error {
	h.drained, h.touched = drained, true
	err := w.admin(func(ctx context.Context, n *node.Node) (err error) {
		if drained {
			_, err = n.DrainNode(ctx, h.id)
		} else {
			_, err = n.UndrainNode(ctx, h.id)
		}
		return err
	})
	h.drainDoubted = h.drainDoubted || err != nil && !node.NotApplied(err)
	w.log(h.id, "drained?", fmt.Sprintf("%t: %v", drained, err))
	return err
}

// settleNodes has every node be what it was last asked to be. What somebody has asked
// before, and nobody waits for any more, may have come to pass since.
func (w *World) settleNodes() {
	w.await(func() bool {
		return w.joining == 0 && !slices.ContainsFunc(w.hosts, func(h *host) bool {
			return h.draining > 0
		})
	})
	touched := func(h *host) bool { return h.touched }
	if slices.ContainsFunc(w.hosts, touched) {
		w.clients.Sleep(context.Background(), afterthought)
	}
	for _, h := range w.hosts {
		for h.touched && w.setDrained(h, h.drained) != nil {
			w.clients.Sleep(context.Background(), 100*time.Millisecond)
		}
		w.check.Drained(h.id, h.drained)
	}
	w.settleLeaver()
	w.wantedNodes()
}

// afterthought is how long after the last fault something may be decided that nobody
// waits for any more.
const afterthought = 2 * time.Second

// wantedNodes tells the checker who shall have a replica of the system group: all.
func (w *World) wantedNodes() {
	var in raftyard.Incarnation
	wish := check.Wish{}
	for _, h := range w.hosts {
		if h.isGone() {
			return // it stays a member, and is none
		}
		if r, ok := h.replica(raftyard.SystemGroup); ok {
			in = r.Incarnation
		}
		if h.in {
			wish.Nodes = append(wish.Nodes, h.id)
		}
	}
	if wish.Incarnation = in; in.IsZero() {
		return // no node has come so far yet
	}
	w.check.Wanted(raftyard.SystemGroup, wish)
}

// unready names the nodes that ought to be ready and are not.
func (w *World) unready() (ids []raftyard.NodeID) {
	for _, h := range w.hosts {
		if h == w.leaver {
			continue
		}
		if h.stale || h.wanted && !h.isGone() && (h.lost || h.unready()) {
			ids = append(ids, h.id)
		}
	}
	return ids
}
