package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// A founder that is the only one has nobody who must know it. If its directory is wiped, it
// would found the cluster a second time, and take writes in it, while those that have joined
// go on with the first one. They know it, and call it as long as it is away. So it listens
// for a moment before it founds, and calls back whoever calls. If somebody knows this node
// with another directory it does not found the cluster: it waits until that one is replaced,
// as every wiped node does.

const (
	// soleAfter is for how long it listens: nodes call each other every two seconds at least.
	soleAfter = 3 * time.Second
	// soleEvery is how often it looks who has called.
	soleEvery = 100 * time.Millisecond
)

// callers are nodes that have called a founder that waits. The zero value is ready.
type callers struct {
	mu   sync.Mutex
	list []raftyard.NodeID // in order, maxStrangers at most
}

func (c *callers) add(id raftyard.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, there := slices.BinarySearch(c.list, id); !there && len(c.list) < maxStrangers {
		c.list = slices.Insert(c.list, i, id)
	}
}

func (c *callers) all() []raftyard.NodeID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// foundAlone has the only founder take part when it has listened for long enough, and
// nobody knows it with another directory.
func (n *Node) foundAlone() {
	began, patience := n.world.now(), cmp.Or(n.cfg.soleAfter, soleAfter)
	for n.founding.waits.Load() {
		called := n.founding.callers.all()
		for _, id := range called {
			n.transport.Connect(id)
		}
		if by := n.knownElsewhere(n.running, called); by != 0 {
			n.logger.Warn("this node has founded the cluster in another data directory, and "+
				"waits until its replicas there are replaced", nodeAttr(by))
			return
		}
		if n.world.now().Sub(began) >= patience {
			n.hangUp(called) // before anybody can be let in
			n.takePart()
			return
		}
		if !n.world.sleep(n.running, min(soleEvery, patience)) {
			return
		}
	}
}

// knownElsewhere returns one of those who have called that knows this node with another
// directory than it has, or zero.
func (n *Node) knownElsewhere(
	ctx context.Context, called []raftyard.NodeID,
) raftyard.NodeID {
	peers := n.transport.Peers()
	for i := range peers {
		ref, ok := errors.AsType[*transport.RefusalError](peers[i].LastError)
		if ok && (ref.Code == transport.RefusedReplaced || ref.Code == transport.RefusedSpent) {
			return peers[i].Node
		}
	}
	live := n.liveBoots()
	there := slices.DeleteFunc(slices.Clone(called), func(id raftyard.NodeID) bool {
		_, up := live[id]
		return !up
	})
	for i, said := range n.whoKnows(ctx, there) {
		if said.First != "" && said.First != n.ownStore().String() {
			return there[i]
		}
	}
	return 0
}

// hangUp gives the connections to those up who have called and are not in the registry.
func (n *Node) hangUp(called []raftyard.NodeID) {
	for _, id := range called {
		if _, known := n.registry.Node(id); !known {
			n.transport.Disconnect(id)
		}
	}
}
