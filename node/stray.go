package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

const (
	// strayTicks is how often a node looks for replicas of its own that may have been
	// removed without hearing of it.
	strayTicks = 20
	// maxStrayPause bounds the pause before it asks for the same one again, which doubles
	// from one to the next. It begins anew when a node has come up.
	maxStrayPause = 600
	// maxStrays bounds for how many it asks at a time. The others have their turn.
	maxStrays = 16

	// patience of a replica that hears of no leader, in election timeouts, until it asks
	// whether it is still a member: if the registry wants it here, or not.
	strayPatience    = 10
	unwantedPatience = 1
)

// cleanStrays asks about replicas that may have been removed. One that can stand for
// election learns of its removal from those that it asks for their votes, if they are
// still there; a learner never asks, nobody may be there any more whom it knows, and one
// that is stopped says nothing.
func (n *Node) cleanStrays(ctx context.Context) {
	if n.reread.Swap(false) {
		n.rereadRegistry(ctx)
	}
	var asks []func()
	for _, r := range n.nextStrays() {
		asks = append(asks, func() { n.askAboutStray(ctx, r) })
	}
	n.world.all("ask about a stray", asks)
}

// rereadRegistry brings this node's copy of the registry up to date, because somebody has
// said that a group is deleted that has a replica here. What is to be done about it the
// lifecycle does, as always when the registry changes.
func (n *Node) rereadRegistry(ctx context.Context) {
	ctx, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(*registry.Registry) error {
		return nil
	})
	if err != nil {
		n.logger.Debug("registry not read; who has a reason will ask again", errAttr(err))
	}
}

// A straying is when to ask for a replica again. Only cleanStrays touches it.
type straying struct {
	next  time.Time
	pause int // ticks
	ups   uint64
}

// nextStrays returns the replicas for which to ask now.
func (n *Node) nextStrays() []*replica {
	now, ups := n.world.now(), n.ups.Load()
	all := n.allReplicas()
	slices.SortFunc(all, func(a, b *replica) int {
		return cmp.Or(a.straying.next.Compare(b.straying.next), byGroup(a, b))
	})
	var strays []*replica
	for _, r := range all {
		s := &r.straying
		switch {
		case !n.maybeStray(r):
			*s = straying{}
			continue
		case s.ups != ups:
			*s = straying{ups: ups}
		case now.Before(s.next):
			continue
		}
		if len(strays) < maxStrays {
			strays = append(strays, r)
			s.pause = min(max(2*s.pause, strayTicks), maxStrayPause)
			s.next = now.Add(n.ticks(s.pause))
		}
	}
	return strays
}

// maybeStray reports whether it is worth asking. It proves nothing.
func (n *Node) maybeStray(r *replica) bool {
	if r.group == raftyard.SystemGroup {
		return false
	}
	rec, ok := n.registry.Group(r.group)
	if !ok || rec.Deleted || rec.Incarnation != r.incarnation {
		return false // nothing can be found out, or the registry says it all
	}
	if !r.serving() {
		return true // it cannot hear of anything
	}
	patience := strayPatience
	if r.suspect.Load() ||
		!slices.Contains(rec.Voters, n.cfg.ID) && !slices.Contains(rec.Learners, n.cfg.ID) {
		patience = unwantedPatience
	}
	return r.leaderless.Load() >= int64(patience*n.cfg.ElectionTicks)
}

// askAboutStray asks the members that the replica knew last, those that the registry
// wants, and those that these name. Without a proof it stays.
func (n *Node) askAboutStray(ctx context.Context, r *replica) {
	rec, _ := n.registry.Group(r.group)
	first := slices.Concat(rec.Voters, rec.Learners)
	for _, id := range []raftyard.NodeID{rec.Seed, raftyard.NodeID(r.sender.Load())} {
		if id != 0 {
			first = append(first, id)
		}
	}
	for _, m := range r.view.Load().State.Descriptor.Members {
		first = append(first, m.Node)
	}
	r.suspect.Store(false)
	q := question{group: r.group, incarnation: r.incarnation}
	s := n.survey(ctx, q, first)
	if epoch, proven := s.provesRemoved(r.id, r.view.Load().State.Descriptor.Epoch); proven {
		n.lifecycle.destroy(r, r.bygone(epoch, r.id+1))
	}
}

// provesRemoved reports whether a replica that is at an epoch is known to be removed: at a
// later epoch it is no member, and its id is below those that were not given out then. So
// it was a member before, and none can have its id again. What a tombstone says counts as
// what a replica says.
func (s *survey) provesRemoved(id raftyard.ReplicaID, at uint64) (epoch uint64, proven bool) {
	for _, node := range slices.Sorted(maps.Keys(s.answers)) {
		st := s.answers[node]
		if e, ok := st.proves(id, at); ok {
			epoch, proven = max(epoch, e), true
		}
	}
	return epoch, proven
}
