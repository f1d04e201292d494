package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node/registry"
)

// beginnings are groups that begin on this node, of which its disk knows nothing though the
// registry had them before this start. As a rule they have not begun yet. But a disk may
// have put back everything of its last moments, with all notes of it: then the group may
// have begun here, and be on others by now. If it began a second time there would be two of
// it. So the others are asked before, and whoever has anything of the group is proof that it
// has begun. If they remember more than this disk of anything at all, no proof is asked for.
//
// What has begun before is not founded again. A tombstone takes its place: a later replica
// may come, the first one not, and the node does not vouch for what that has promised.
//
// What comes into the registry while the node runs cannot have begun, and is founded at once.
type beginnings struct {
	node *Node
	wake chan struct{}

	// deceived: others remember what this node's disk has lost without a trace.
	deceived atomic.Bool

	mu   sync.Mutex
	open map[raftyard.GroupID]beginning // those that are being asked about, too
}

type beginning struct {
	creation

	others []raftyard.NodeID // that the registry knows to do with the group
}

func newBeginnings(n *Node) *beginnings {
	return &beginnings{
		node: n, wake: make(chan struct{}, 1), open: make(map[raftyard.GroupID]beginning),
	}
}

// add has others asked. There are no more than groups in the registry.
func (b *beginnings) add(c creation, rec *registry.Group) {
	others := slices.DeleteFunc(namedIn(rec), func(id raftyard.NodeID) bool {
		return id == b.node.cfg.ID
	})
	b.mu.Lock()
	b.open[c.group] = beginning{c, others}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run asks until the node stops.
func (b *beginnings) run() {
	n := b.node
	for {
		if _, from := await(n.world, b.wake, n.running.Done(), nil); from != fromValues {
			return
		}
		each(n.world, "ask whether a group has begun", claimsAtOnce, b.all(), func(of beginning) {
			b.look(n.running, &of)
		})
	}
}

func (b *beginnings) all() []beginning {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]beginning, 0, len(b.open))
	for _, g := range slices.Sorted(maps.Keys(b.open)) {
		list = append(list, b.open[g])
	}
	return list
}

// look asks those who are there, and hands the founding on, or the tombstone.
func (b *beginnings) look(ctx context.Context, of *beginning) {
	n := b.node
	live := n.liveNodes()
	others := slices.DeleteFunc(slices.Clone(of.others), func(id raftyard.NodeID) bool {
		return !live[id]
	})
	q := question{group: of.group, incarnation: of.incarnation}
	s := n.survey(ctx, q, others)
	b.mu.Lock()
	delete(b.open, of.group)
	b.mu.Unlock()
	if s.hasBegun() || b.deceived.Load() {
		of.begun = true
		n.logger.Error("a group has begun on this node before, and its disk has lost that: it "+
			"does not begin again", groupAttr(of.group))
	}
	n.lifecycle.create(of.creation)
}

// hasBegun reports whether somebody has, or had, a replica of the group.
func (s *survey) hasBegun() bool {
	for _, st := range s.answers {
		if st.Replica != 0 {
			return true
		}
	}
	return false
}

// buryBegun makes tombstones of the first replicas that have been here, and takes these
// creations out.
func (l *lifecycle) buryBegun(cs map[raftyard.GroupID]creation) {
	n := l.node
	var ws []write
	var gone []creation
	for _, g := range slices.Sorted(maps.Keys(cs)) {
		c := cs[g]
		if !c.begun {
			continue
		}
		delete(cs, g)
		switch {
		case n.purging(g) && !n.setAside(g):
			l.postpone(c)
		case l.creatable(c):
			empty := c
			empty.genesis = nil
			t := remains{
				Descriptor: group.Descriptor{Kind: c.genesis.Kind, NextReplica: c.id + 1},
				Blind:      true,
			}.tombstone()
			ws = append(ws, l.createWrite(empty),
				write{kind: writeDestroy, group: g, tombstone: t})
			gone = append(gone, c)
		}
	}
	errs := n.committer.wait(ws)
	for i := range gone {
		c := &gone[i]
		if err := errors.Join(errs[2*i], errs[2*i+1]); err != nil {
			l.notStarted(c.group, err)
			l.postpone(*c)
			continue
		}
		n.beginPurge(leftover{
			group: c.group, incarnation: c.incarnation, id: c.id, kind: c.genesis.Kind,
		}, nil)
	}
}
