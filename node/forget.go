package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
)

// A deleted group is remembered: by the registry, for nodes that were down, and by the
// tombstones of its replicas, for late messages. To forget it is safe when every node says
// that it has nothing of the group, and that its registry knows of the deletion. From then
// on nobody can come back with it, and no node makes a replica for a group that its
// registry does not have, nor before it has read the registry.

// forgetTicks is how often a node looks for tombstones of groups that are forgotten.
const forgetTicks = 300

// ForgetGroup drops what the cluster remembers of a deleted group: its record in the
// registry, and the tombstones of its replicas. The id is then as if it had never been
// used. A group that a configuration file lists is created again by the next node that
// starts with it.
//
// It is refused, without any effect: with [ErrInvalid] unless the group is deleted; with
// [ErrNoQuorum] while a node cannot be asked, because nobody knows what that node still
// has; and with [ErrTimeout] if a node is still busy deleting when ctx ends. A group that is
// forgotten is [ErrGroupNotFound].
func (n *Node) ForgetGroup(ctx context.Context, g raftyard.GroupID) error {
	ctx, cancel := n.withDeadline(ctx)
	defer cancel()
	rec, err := n.recordToDelete(ctx, g)
	switch {
	case err != nil:
		return err
	case !rec.Deleted:
		return fmt.Errorf("%w: group %d is not deleted", ErrInvalid, g)
	}
	if err = n.awaitNothing(ctx, &rec); err != nil {
		return err
	}
	res, err := n.command(ctx, registry.EncodeForgetGroup(registry.ForgetGroup{
		ID: g, Incarnation: rec.Incarnation,
	}))
	switch {
	case err != nil:
		return err
	case res.Code == registry.Conflict:
		return fmt.Errorf("%w: group %d: it was created again meanwhile", ErrInvalid, g)
	case res.Code != registry.OK && res.Code != registry.NotFound:
		return fmt.Errorf("%w: group %d: %s", ErrInvalid, g, res.Detail)
	}
	n.dropTombstones(ctx, g)
	return nil
}

// awaitNothing waits until every node says that it has nothing of a deleted group. It is
// patient for a moment with those that do not answer: a connection may just be coming up.
func (n *Node) awaitNothing(ctx context.Context, rec *registry.Group) error {
	q := question{group: rec.ID, incarnation: rec.Incarnation, version: rec.Version}
	until := n.world.now().Add(askPatience)
	for wait := pollEvery; ; wait = min(2*wait, n.ticks(10)) {
		s := n.survey(ctx, q, n.registeredIDs())
		n.passOverRemoved(&s)
		err := s.somethingLeft(rec.ID)
		late := n.world.now().After(until) && errors.Is(err, ErrNoQuorum)
		if err == nil || late || !n.world.sleep(ctx, wait) {
			return err
		}
	}
}

// somethingLeft returns why a deleted group cannot be forgotten yet, or nil.
func (s *survey) somethingLeft(g raftyard.GroupID) error {
	if len(s.silent) > 0 {
		id := slices.Min(slices.Collect(maps.Keys(s.silent)))
		return fmt.Errorf("group %d: %w: node %d cannot be asked whether it has something of "+
			"the group: %s; start it, or remove it from the cluster",
			g, ErrNoQuorum, id, s.silent[id].Error())
	}
	var busy []raftyard.NodeID
	for id, st := range s.answers {
		if st.Stored > 0 {
			busy = append(busy, id)
		}
	}
	if len(busy) == 0 {
		return nil
	}
	return fmt.Errorf("group %d: %w: %s still deleting what it stored",
		g, ErrTimeout, areNodes(sortedSet(busy)))
}

// areNodes names nodes, and goes on with is or are.
func areNodes(ids []raftyard.NodeID) string {
	if len(ids) == 1 {
		return listNodes(ids) + " is"
	}
	return listNodes(ids) + " are"
}

// dropTombstones has all nodes drop their tombstones of a group that is forgotten. One
// that does not do it now will do so by itself.
func (n *Node) dropTombstones(ctx context.Context, g raftyard.GroupID) {
	var version uint64
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(reg *registry.Registry) error {
		version = reg.Version()
		return nil
	})
	if err != nil {
		return
	}
	var asks []func()
	for _, id := range n.registeredIDs() {
		asks = append(asks, func() {
			short, cancel := n.world.withTimeout(ctx, askPatience)
			defer cancel()
			var err error
			if id == n.cfg.ID {
				err = n.forget(short, g, version)
			} else {
				body := wire.AppendUvarint(wire.AppendUvarint(nil, uint64(g)), version)
				_, err = n.ask(short, id, askForget, body)
			}
			if err != nil {
				n.logger.Debug("tombstone not dropped yet",
					groupAttr(g), nodeAttr(id), errAttr(err))
			}
		})
	}
	n.world.all("drop a tombstone", asks)
}

func (n *Node) serveForget(ctx context.Context, r *wire.Reader) error {
	g, version := raftyard.GroupID(r.Uvarint()), r.Uvarint()
	if err := r.Close(); err != nil {
		return err
	}
	return n.forget(ctx, g, version)
}

// forget drops this node's tombstone of a group that the registry, at some version, has
// forgotten.
func (n *Node) forget(ctx context.Context, g raftyard.GroupID, version uint64) error {
	if err := n.awaitVersion(ctx, version); err != nil {
		return err
	}
	n.lifecycle.forget(g)
	return n.lifecycle.settle(ctx)
}

// forgetTombstones looks for tombstones of groups that are forgotten, and drops them, and for
// replicas of such groups with which a disk has come back that has lost its newest batches,
// and destroys them. The registry is read for that: this node's copy may have begun anew, and
// know nothing yet. It reports whether it has found any, which may take more than one look.
func (n *Node) forgetTombstones(ctx context.Context) (found bool) {
	var unknown []raftyard.GroupID
	for _, st := range n.store.Replicas() {
		dropped := st.Tombstone != nil && st.Tombstone.Purged
		if !dropped && !st.Forgotten || st.Group == raftyard.SystemGroup {
			continue
		}
		if _, ok := n.registry.Group(st.Group); !ok {
			unknown = append(unknown, st.Group)
		}
	}
	if len(unknown) == 0 {
		return false
	}
	ctx, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(reg *registry.Registry) error {
		for _, g := range unknown {
			if _, ok := reg.Group(g); !ok {
				n.forgetAgain(g)
				n.lifecycle.forget(g)
			}
		}
		return nil
	})
	if err != nil {
		n.logger.Debug("registry not read; tombstones stay for now", errAttr(err))
	}
	return true
}

// forgetAgain has the next round destroy the replica of a group that had been forgotten: the
// log store says so, and the registry does not know the group.
func (n *Node) forgetAgain(g raftyard.GroupID) {
	st, _ := n.store.Replica(g)
	if r := n.replica(g); r != nil && st.Forgotten {
		last := remains{Descriptor: r.view.Load().State.Descriptor, Deleted: true}
		n.lifecycle.destroy(r, last)
	}
}

// forget has the next round drop the tombstone of a group that the registry, as it was
// read, does not know any more.
func (l *lifecycle) forget(g raftyard.GroupID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgets == nil {
		l.forgets = make(map[raftyard.GroupID]bool)
	}
	l.forgets[g] = true
	l.poke()
}

// forgetAll drops tombstones, of groups that were not created again meanwhile.
func (l *lifecycle) forgetAll(gs map[raftyard.GroupID]bool) {
	n := l.node
	var ws []write
	for _, g := range slices.Sorted(maps.Keys(gs)) {
		st, ok := n.store.Replica(g)
		_, known := n.registry.Group(g)
		if ok && !known && st.Tombstone != nil && st.Tombstone.Purged && n.leftovers(g) == 0 {
			ws = append(ws, write{kind: writeForget, group: g})
		}
	}
	for i, err := range n.committer.wait(ws) {
		if err != nil && !errors.Is(err, storage.ErrRemains) { // its log is still being deleted
			n.logger.Error("tombstone not dropped", groupAttr(ws[i].group), errAttr(err))
		}
	}
}
