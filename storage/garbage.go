package storage

import (
	"sync/atomic"

	"github.com/raftyard/raftyard"
)

const (
	// garbagePerCommit bounds how many keys a commit deletes on the way, and
	// garbageAlone how many one does that has nothing else to do. A commit that
	// comes meanwhile waits for it, about a millisecond beside the sync.
	garbagePerCommit = 64
	garbageAlone     = 256
)

// garbage is the slots of destroyed replicas, and the surplus of others, that
// are still to be deleted. They are dead and belong to nobody: no log writes to
// one of them before it is deleted. What a kill leaves is found again by recovery.
//
// Only the committer changes it; size may be read by anybody.
type garbage struct {
	queue []groupSlots
	size  atomic.Int64
}

type groupSlots struct {
	group raftyard.GroupID
	slots []uint32
}

func (g *garbage) add(group raftyard.GroupID, slots []uint32) {
	if len(slots) == 0 {
		return
	}
	g.queue = append(g.queue, groupSlots{group, slots})
	g.size.Add(int64(len(slots)))
}

// visit calls fn for the first n slots.
func (g *garbage) visit(n int, fn func(raftyard.GroupID, uint32)) {
	for _, gs := range g.queue {
		for _, slot := range gs.slots {
			if n == 0 {
				return
			}
			n--
			fn(gs.group, slot)
		}
	}
}

// done forgets the first n slots and calls fn with them.
func (g *garbage) done(n int, fn func(raftyard.GroupID, []uint32)) {
	g.size.Add(-int64(n))
	for n > 0 {
		front := &g.queue[0]
		k := min(n, len(front.slots))
		fn(front.group, front.slots[:k])
		front.slots = front.slots[k:]
		n -= k
		if len(front.slots) == 0 {
			g.queue = g.queue[1:]
		}
	}
}
