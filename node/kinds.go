package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
)

// kindsOf is which kinds of state machines the other nodes have. It is asked for where a
// replica without a state machine is involved, and stays true until the node is started
// again. The zero value is ready.
type kindsOf struct {
	mu sync.Mutex
	m  map[raftyard.NodeID]nodeKinds
}

type nodeKinds struct {
	boot  uint64
	kinds []string // in order
}

// get returns the kinds of a node in a start of it; ok is false if they are not known.
func (k *kindsOf) get(id raftyard.NodeID, boot uint64) (kinds []string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.m[id]
	return known.kinds, ok && known.boot == boot
}

// set notes the kinds of a node.
func (k *kindsOf) set(id raftyard.NodeID, known nodeKinds) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = make(map[raftyard.NodeID]nodeKinds)
	}
	k.m[id] = known
}

// has reports whether a node is known to have a kind, in a start of it.
func (k *kindsOf) has(id raftyard.NodeID, boot uint64, kind string) bool {
	kinds, ok := k.get(id, boot)
	return ok && slices.Contains(kinds, kind)
}

// may reports whether a node was known to have a kind when it was asked.
func (k *kindsOf) may(id raftyard.NodeID, kind string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.m[id].kinds, kind)
}

// lacks reports whether a node is known not to have a kind.
func (k *kindsOf) lacks(id raftyard.NodeID, boot uint64, kind string) bool {
	kinds, ok := k.get(id, boot)
	return ok && !slices.Contains(kinds, kind)
}

// any reports whether the kinds of any node are known.
func (k *kindsOf) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.m) > 0
}

// liveBoots are the starts of the nodes that this one is connected to. Others have none.
func (n *Node) liveBoots() map[raftyard.NodeID]uint64 {
	live := make(map[raftyard.NodeID]uint64)
	peers := n.transport.Peers()
	for i := range peers {
		if peers[i].Up {
			live[peers[i].Node] = peers[i].Identity.Boot
		}
	}
	return live
}

// learnKinds keeps the kinds of all nodes known while a state machine is missing here.
func (n *Node) learnKinds() {
	n.world.every(n.running, time.Second, func() {
		if !n.missing.any() && !n.stoodStill.Load() {
			return
		}
		var all []raftyard.NodeID
		for _, rec := range n.registry.Nodes() {
			all = append(all, rec.ID)
		}
		n.askForKindsOf(n.running, all)
		n.learnStandstills()
	})
}

// askForKindsOf asks those of some nodes that are connected and whose kinds are not known.
func (n *Node) askForKindsOf(ctx context.Context, ids []raftyard.NodeID) {
	live := n.liveBoots()
	var asks []func()
	for _, id := range ids {
		boot, up := live[id]
		if _, known := n.kinds.get(id, boot); up && !known {
			asks = append(asks, func() { n.askKinds(ctx, id) })
		}
	}
	n.world.all("ask for kinds", asks)
}

// askKinds asks a node which kinds it has. Without an answer they stay unknown.
func (n *Node) askKinds(ctx context.Context, id raftyard.NodeID) {
	ctx, cancel := n.world.withTimeout(ctx, askPatience)
	defer cancel()
	var rep nodeReport
	if err := n.askJSON(ctx, id, askNode, nil, &rep); err == nil {
		n.kinds.set(id, nodeKinds{boot: rep.Boot, kinds: rep.Kinds})
	}
}
