package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/test/sim/internal/check"
)

// Groups that come and go. The others are there from the beginning to the end.
const (
	// ownGroup is the first of those that one at a time creates and deletes.
	ownGroup raftyard.GroupID = 100
	// contested is one that several create and delete at the same time.
	contested raftyard.GroupID = 200
)

// ownGroups is how many there are from ownGroup on.
const ownGroups = 3

// transient returns a group that comes and goes, which is known from now on.
func (w *World) transient(id raftyard.GroupID) *groupInfo {
	i := slices.IndexFunc(w.groups, func(g *groupInfo) bool { return g.id == id })
	if i < 0 {
		g := &groupInfo{id: id, own: true, gone: true, last: make(map[string]string)}
		w.groups = append(w.groups, g)
		return g
	}
	return w.groups[i]
}

// renew creates a group that comes and goes, deletes it, or both. Whoever comes while
// somebody is at it leaves it alone.
func renew(w *World, f *Fault) {
	g := w.transient(cmp.Or(f.Group, ownGroup))
	if g.dying || f.Kind == Create && g.created || f.Kind == Delete && !g.created {
		return
	}
	g.dying = true
	w.clients.Go(string(f.Kind), func() {
		if g.created {
			w.remove(g, f.N&byForce != 0)
			g.renewed()
			g.created, g.gone = false, true
		}
		if f.Kind == Delete {
			g.dying = false
			return
		}
		g.wish, g.gone, g.forget = w.someMembers(f.N, f.M), false, false
		w.create(g)
	})
}

// contest has somebody create and delete a group in turn, whoever else does.
func contest(w *World, f *Fault) {
	g := w.transient(contested)
	g.dying = true
	g.contests++
	w.clients.Go("contest", func() {
		for i := range f.M {
			bits := f.N >> (i % 32)
			_ = w.admin(func(ctx context.Context, n *node.Node) error { // it may lose
				if bits&1 != 0 {
					return n.DeleteGroup(ctx, g.id)
				}
				_, err := n.CreateGroup(ctx, w.spec(g, w.someMembers(bits, bits>>2)))
				return err
			})
		}
		g.contests--
		w.conclude(g)
	})
}

// conclude finds out what has become of a group when nobody contests it any more.
func (w *World) conclude(g *groupInfo) {
	for g.contests == 0 && g.dying {
		rec, err := w.record(g)
		switch {
		case g.contests > 0:
			return // somebody else will find out
		case err == nil && w.neverBeginsAs(g, &rec):
			w.remove(g, false)
		case err == nil && w.lingers(g):
			w.clients.Sleep(context.Background(), 50*time.Millisecond)
		case err == nil:
			g.wish = node.Members{Voters: rec.Voters, Learners: rec.Learners}
			g.renewed()
			g.begin()
			w.wanted(g)
			w.log(0, "concluded", fmt.Sprintf("group %d is %v", g.id, g.incarnation))
		case errors.Is(err, node.ErrGroupNotFound):
			g.renewed()
			g.created, g.gone, g.dying = false, true, false
			w.check.Wanted(g.id, check.Wish{Incarnation: g.incarnation, Deleted: true})
			w.log(0, "concluded", fmt.Sprintf("group %d is deleted", g.id))
		default:
			w.clients.Sleep(context.Background(), 50*time.Millisecond)
		}
	}
}

// reconsider concludes about a group once more after the last fault, if it is contested or
// deleted: a creation that somebody had asked for before, and nobody waited for any more, may
// have come to pass.
func (w *World) reconsider(g *groupInfo) {
	w.clients.Sleep(context.Background(), afterthought)
	g.dying = true
	w.conclude(g)
}

// renewed says that the group is another than it was.
func (g *groupInfo) renewed() {
	g.generation++
	clear(g.last)
}

// record is what the registry knows of a group.
type record struct {
	registry.Group

	// lostSeed: the directory in which it was to begin is not the node's any more.
	lostSeed bool
}

// record asks the registry for the record of a group. The error wraps
// [node.ErrGroupNotFound] if there is no such group.
func (w *World) record(g *groupInfo) (rec record, err error) {
	err = w.admin(func(ctx context.Context, n *node.Node) error {
		return node.View(ctx, n, raftyard.SystemGroup, node.Linearizable,
			func(reg *registry.Registry) error {
				var ok bool
				if rec.Group, ok = reg.Group(g.id); !ok || rec.Deleted {
					return node.ErrGroupNotFound
				}
				seed, _ := reg.Node(rec.Seed)
				rec.lostSeed = !rec.SeedStore.IsZero() && seed.Store != rec.SeedStore
				return nil
			})
	})
	return rec, err
}
