package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard/internal/world"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// byForce is a bit of the N of a fault that deletes a group: it is deleted by force, also
// while its voters cannot be told and go on.
const byForce = 16

// remove has a group deleted, for as long as it takes. It is deleted by force if somebody
// wants that, or if it can never begin: then there is nobody who could be told.
//
// Unless it was by force, nobody acknowledges a write of the group afterwards. If the
// answer is that the deletion is decided, but that voters may go on, whoever creates the
// group again has to wait until they do not.
func (w *World) remove(g *groupInfo, force bool) {
	for {
		err := w.admin(func(ctx context.Context, n *node.Node) error {
			return n.DeleteGroup(ctx, g.id)
		})
		if errors.Is(err, node.ErrNoQuorum) && (force || w.neverBegins(g)) {
			err = w.removeByForce(g)
		}
		if err == nil || errors.Is(err, node.ErrGroupNotFound) ||
			errors.Is(err, node.ErrNotReached) && (g.forced || !w.anywhere(g)) {
			break
		}
		w.clients.Sleep(context.Background(), 50*time.Millisecond)
	}
	w.log(0, "deleted", fmt.Sprintf("group %d, which was %v", g.id, g.incarnation))
	w.check.Wanted(g.id, check.Wish{Incarnation: g.incarnation, Deleted: true})
	w.counts.Recreate++
}

// removeByForce has the group deleted whatever its voters do.
func (w *World) removeByForce(g *groupInfo) error {
	rec, err := w.record(g)
	if err != nil {
		return err
	}
	err = w.admin(func(ctx context.Context, n *node.Node) error {
		return n.ForceDeleteGroup(ctx, g.id, rec.Incarnation)
	})
	if err == nil || errors.Is(err, node.ErrNotReached) {
		g.forced = true
		w.counts.Forced++
	}
	return err
}

// learned says what the registry knows of the group.
func (g *groupInfo) learned(rec *record) {
	g.incarnation, g.seed, g.stillborn = rec.Incarnation, rec.Seed, rec.lostSeed
}

// neverBeginsAs learns what the registry knows of a group, and reports whether it can
// never begin.
func (w *World) neverBeginsAs(g *groupInfo, rec *record) bool {
	g.learned(rec)
	return w.neverBegins(g)
}

// neverBegins reports whether the directory in which a group was to begin is lost, and
// nobody else has any of it.
func (w *World) neverBegins(g *groupInfo) bool {
	return (g.stillborn || w.host(g.seed).lost) && !w.seen(func(r *world.Replica) bool {
		return r.Group == g.id && r.Incarnation == g.incarnation
	})
}

// anywhere reports whether there is anything of any incarnation of the group, also on
// nodes that are down.
func (w *World) anywhere(g *groupInfo) bool {
	return w.seen(func(r *world.Replica) bool { return r.Group == g.id })
}

// lingers reports whether there is anything of an earlier incarnation of the group.
func (w *World) lingers(g *groupInfo) bool {
	return w.seen(func(r *world.Replica) bool {
		return r.Group == g.id && r.Incarnation != g.incarnation
	})
}

// seen reports whether any disk that is not lost has such a replica, as far as was seen
// of it last. That of a node that is removed counts no more: nobody listens to it, and what
// it has stays as it is.
func (w *World) seen(is func(*world.Replica) bool) bool {
	return slices.ContainsFunc(w.hosts, func(h *host) bool {
		if h.lost || h.removed {
			return false
		}
		for i := range h.seen.Replicas {
			if is(&h.seen.Replicas[i]) {
				return true
			}
		}
		return false
	})
}

// reviveStillborn has a group made anew that can never begin: the directory in which it
// was to was given up when the registry had just decided that.
func (w *World) reviveStillborn(g *groupInfo) {
	if g.gone || !w.learn(g) || !w.neverBegins(g) {
		return
	}
	w.remove(g, false)
	g.renewed()
	w.create(g)
}
