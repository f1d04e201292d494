package node

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
)

const (
	// conditionsEvery is how often the other nodes are asked how their disks are.
	conditionsEvery = 2 * time.Second
	// conditionPatience is after how long what a node has said does not count any more.
	conditionPatience = 4 * conditionsEvery
)

// A condition is how a node's disk is. Nodes ask each other, and by it choose who leads and
// where new replicas go.
type condition struct {
	Level DiskLevel `json:"level"`
	Free  int64     `json:"free"`

	// Sync is how long a sync takes, in nanoseconds, and Synced how long the last one is
	// ago. Slow and Stuck say what the node makes of it.
	Sync   time.Duration `json:"sync"`
	Synced time.Duration `json:"synced"`
	Slow   bool          `json:"slow,omitempty"`
	Stuck  bool          `json:"stuck,omitempty"`
	// Shedding: it is slow, and gives leaderships away for it.
	Shedding bool `json:"shedding,omitempty"`
}

// fitter reports whether a leadership is better off where the condition is c than where
// it is other.
func (c condition) fitter(other condition) bool {
	switch {
	case c.Stuck || c.Slow:
		return false
	case other.Slow:
		return c.Level < DiskHard
	default:
		return c.Level < other.Level
	}
}

// The words of the API for how fast a disk is.
const (
	speedOK    = "ok"
	speedSlow  = "slow"
	speedStuck = "stuck"
)

func (c condition) speed() string {
	switch {
	case c.Stuck:
		return speedStuck
	case c.Slow:
		return speedSlow
	default:
		return speedOK
	}
}

// fit reports whether nothing is wrong.
func (c condition) fit() bool { return c.Level == DiskOK && !c.Slow && !c.Stuck }

// conditions are what the other nodes have said. The zero value is ready.
type conditions struct {
	mu sync.Mutex
	m  map[raftyard.NodeID]heardCondition
}

type heardCondition struct {
	condition
	at time.Time
}

// of returns the condition of a node. One of which nothing is known is well.
func (c *conditions) of(id raftyard.NodeID, now time.Time) condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.m[id]
	if !ok || now.Sub(h.at) > conditionPatience {
		return condition{}
	}
	return h.condition
}

// all returns what is known, by node.
func (c *conditions) all(now time.Time) []peerCondition {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]peerCondition, 0, len(c.m))
	for id, h := range c.m {
		if now.Sub(h.at) <= conditionPatience {
			list = append(list, peerCondition{node: id, condition: h.condition})
		}
	}
	slices.SortFunc(list, func(a, b peerCondition) int { return cmp.Compare(a.node, b.node) })
	return list
}

type peerCondition struct {
	node raftyard.NodeID
	condition
}

// note remembers what a node has said, and forgets those of which nothing was heard.
func (c *conditions) note(id raftyard.NodeID, said condition, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[raftyard.NodeID]heardCondition)
	}
	c.m[id] = heardCondition{condition: said, at: now}
	for other, h := range c.m {
		if now.Sub(h.at) > conditionPatience {
			delete(c.m, other)
		}
	}
}

// condition is how this node's own disk is.
func (n *Node) condition() condition {
	now := n.world.now()
	c := n.slow.condition(now)
	c.Level, c.Free = n.disk.current(), n.disk.free.Load()
	return c
}

// conditionOf is how a node's disk is, as far as it is known here.
func (n *Node) conditionOf(id raftyard.NodeID) condition {
	if id == n.cfg.ID {
		return n.condition()
	}
	return n.conditions.of(id, n.world.now())
}

// short reports whether a node has too little disk space to be given anything.
func (n *Node) short(id raftyard.NodeID) bool { return n.conditionOf(id).Level >= DiskSoft }

// askConditions keeps known how the disks of the other nodes are. A node that does not
// know the question is well.
func (n *Node) askConditions() {
	n.world.every(n.running, conditionsEvery, func() {
		var asks []func()
		peers := n.transport.Peers()
		for i := range peers {
			if id := peers[i].Node; peers[i].Up {
				asks = append(asks, func() { n.askCondition(id) })
			}
		}
		n.world.all("ask for a disk", asks)
	})
}

func (n *Node) askCondition(id raftyard.NodeID) {
	ctx, cancel := n.world.withTimeout(n.running, askPatience)
	defer cancel()
	var c condition
	if err := n.askJSON(ctx, id, askDisk, nil, &c); err == nil {
		n.conditions.note(id, c, n.world.now())
	}
}
