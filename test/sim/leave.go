package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/registry"
)

// leave takes a node out of the cluster for ever: one in a run, and none where disks are
// lost, which might need it. By force it is dead meanwhile, and comes back later on.
func leave(w *World, f *Fault) {
	h := w.host(f.Node)
	lost := func(h *host) bool { return h.lost || h.wiped }
	if w.leaver != nil || !h.in || w.joining > 0 || len(w.members()) < 3 ||
		slices.ContainsFunc(w.hosts, lost) || len(w.unready()) > 0 {
		return
	}
	w.leaver, h.in, h.touched = h, false, false
	h.drainDoubted = h.drainDoubted || h.draining > 0
	force := f.N&1 != 0
	if force {
		h.wanted = false
		w.kill(h.id, 0)
	}
	w.clients.Go("leave", func() {
		// A node that is back is drained. One that is removed was so by an earlier attempt, of
		// which nobody knew.
		for w.leaveOnce(h, force && !h.wanted) != nil && !w.hasLeft(h) {
			w.stillHere(h)
		}
		for !w.hasLeft(h) {
			w.stillHere(h)
			if h.drainDoubted && !w.working && w.isTakenBack(h) {
				_ = w.leaveOnce(h, false) // it is asked again
			}
		}
		w.counts.Leaves++
		w.log(h.id, "has left", "")
		h.wanted, h.removed = true, true
		h.later()
	})
}

// stillHere lets time pass in which a node that leaves is still a member. In the end it comes
// back: it may be needed, as one of two voters of the system group without whom nothing can
// be decided, or as the only voter of a group.
func (w *World) stillHere(h *host) {
	if !w.working {
		h.wanted = true
		h.later()
	}
	w.clients.Sleep(context.Background(), 50*time.Millisecond)
}

// leaveOnce asks once to have a node leave.
func (w *World) leaveOnce(h *host, force bool) error {
	err := w.admin(func(ctx context.Context, n *node.Node) error {
		if !force {
			if _, err := n.DrainNode(ctx, h.id); err != nil {
				return err
			}
		}
		_, err := n.RemoveNode(ctx, h.id, force)
		return err
	})
	w.log(h.id, "leaves?", fmt.Sprintf("force %t: %v", force, err))
	return err
}

// isTakenBack reports whether somebody has taken back that a node leaves: one who had asked to
// have it drained before, of whom nobody knew, may have been heard after that.
func (w *World) isTakenBack(h *host) bool {
	state := w.registered(h)
	return state == registry.NodeActive || state == registry.NodeDrained
}

// hasLeft reports whether the registry says that a node is removed.
func (w *World) hasLeft(h *host) bool { return w.registered(h) == registry.NodeRemoved }

// unregistered is the state of a node of which the registry knows nothing, or cannot be asked.
const unregistered registry.NodeState = 255

// registered returns what the registry says of a node.
func (w *World) registered(h *host) registry.NodeState {
	state := unregistered
	err := w.admin(func(ctx context.Context, n *node.Node) (err error) {
		state, err = stateOf(ctx, n, h.id)
		return err
	})
	if err != nil {
		return unregistered
	}
	return state
}

// stateOf returns what a node knows of the state of another one.
func stateOf(
	ctx context.Context, n *node.Node, id raftyard.NodeID,
) (state registry.NodeState, err error) {
	state = unregistered
	err = node.View(ctx, n, raftyard.SystemGroup, node.Linearizable,
		func(reg *registry.Registry) error {
			if rec, ok := reg.Node(id); ok {
				state = rec.State
			}
			return nil
		})
	return state, err
}

// allKnow reports whether all others know that a node is removed. Who was cut off does not,
// and may connect with it until then.
func (w *World) allKnow(h *host) bool {
	return !slices.ContainsFunc(w.members(), func(o *host) bool {
		if o.isGone() {
			return false
		}
		if o.state != running {
			return true
		}
		knows := false
		err := w.call(o, "look", time.Second, func(ctx context.Context, n *node.Node) error {
			state, err := stateOf(ctx, n, h.id)
			knows = state == registry.NodeRemoved
			return err
		})
		return err != nil || !knows
	})
}

// settleLeaver waits until a node that leaves is removed, and nobody is connected to it any
// more, though it runs. Then it is of no further use.
func (w *World) settleLeaver() {
	h := w.leaver
	if h == nil {
		return
	}
	for !h.removed || !w.allKnow(h) ||
		h.state == running && len(w.net.Connected(h.id, 0)) > 0 {
		w.clients.Sleep(context.Background(), 50*time.Millisecond)
	}
	w.clients.Sleep(context.Background(), afterthought)
	if len(w.net.Connected(h.id, 0)) > 0 {
		w.fail("rule 16 (tidy)", fmt.Errorf("node %d is removed, and is connected again", h.id))
	}
	h.wanted = false
	if h.state != down {
		h.stop()
	}
}

// stay has a group that was to be on a node alone that leaves be on others.
func (w *World) stay(g *groupInfo) {
	if !g.gone && len(w.staying(g.wish).Voters) == 0 {
		g.wish = w.someMembers(uint64(g.id), 0)
	}
}

// staying takes the node that leaves out of the members that a group shall have.
func (w *World) staying(m node.Members) node.Members {
	leaves := func(id raftyard.NodeID) bool { return w.host(id) == w.leaver }
	m.Voters = slices.DeleteFunc(slices.Clone(m.Voters), leaves)
	m.Learners = slices.DeleteFunc(slices.Clone(m.Learners), leaves)
	return m
}
