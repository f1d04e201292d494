package node

import (
	"context"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// strayEvery is how often a node looks for replicas of its own that may have been
// removed without hearing of it.
const strayEvery = 2 * time.Second

// cleanStrays asks about every replica that the registry does not want here. One
// that can stand for election learns of its removal from those it asks for their
// votes; a learner never asks, and never forgets its leader.
func (n *Node) cleanStrays(ctx context.Context) {
	for _, r := range n.allReplicas() {
		if ctx.Err() != nil {
			return
		}
		if n.maybeStray(r) {
			n.askAboutStray(ctx, r)
		}
	}
}

// maybeStray reports whether it is worth asking. It proves nothing.
func (n *Node) maybeStray(r *replica) bool {
	if r.group == raftyard.SystemGroup || !r.serving() {
		return false
	}
	rec, ok := n.registry.Group(r.group)
	return ok && !rec.Deleted && rec.Incarnation == r.incarnation &&
		!slices.Contains(rec.Voters, n.cfg.ID) && !slices.Contains(rec.Learners, n.cfg.ID)
}

// askAboutStray asks the group's leader, and destroys the replica only on proof:
// at a later epoch it is no member, and its id is below the next one.
func (n *Node) askAboutStray(ctx context.Context, r *replica) {
	ctx, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	rec, _ := n.registry.Group(r.group)
	for _, id := range slices.Concat(rec.Voters, rec.Learners) {
		st, err := n.askReplica(ctx, id, r.group)
		if err != nil || st.Role != group.Leader.String() ||
			st.Group.Incarnation != r.incarnation.String() {
			continue
		}
		d := descriptorFrom(st)
		_, member := d.Member(r.id)
		v := r.view.Load()
		if member || d.Epoch <= v.State.Descriptor.Epoch || uint64(r.id) >= st.NextReplica {
			return
		}
		n.lifecycle.destroy(r, r.bygone(d.Epoch, r.id+1))
		return
	}
}
