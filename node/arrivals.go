package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// arrivals tells the registry which groups, of those that this node leads, have come to
// the members that are wanted. Until it knows, a node that was a member before counts as
// one that may have the group's only copy: its directory is not given up, nor is the node
// removed.
//
// There is at most one arrival for each group. One that is forgotten, with a node that
// stops, is noted again by whoever leads next.
type arrivals struct {
	node *Node
	wake chan struct{}

	mu    sync.Mutex
	noted map[raftyard.GroupID]registry.Reached
}

const (
	// arrivalPause is how long it waits after a decision that did not come.
	arrivalPause = time.Second
	// arrivalsAtOnce is how many the registry is told of at the same time.
	arrivalsAtOnce = 64
)

func newArrivals(n *Node) *arrivals {
	return &arrivals{
		node: n, wake: make(chan struct{}, 1),
		noted: make(map[raftyard.GroupID]registry.Reached),
	}
}

// note takes down that the group has come to what rec wants. It never waits.
func (a *arrivals) note(rec *registry.Group) {
	a.mu.Lock()
	a.noted[rec.ID] = registry.Reached{
		ID: rec.ID, Incarnation: rec.Incarnation, Version: rec.Version,
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run tells of arrivals until the node stops.
func (a *arrivals) run() {
	n := a.node
	for {
		if _, from := await(n.world, a.wake, n.running.Done(), nil); from != fromValues {
			return
		}
		for !a.tell(n.running) {
			if !n.world.sleep(n.running, arrivalPause) {
				return
			}
		}
	}
}

// tell tells of all that are noted. It reports false if some could not be told of. When
// nothing comes of a part of them it leaves it at that: the system group decides nothing now.
func (a *arrivals) tell(ctx context.Context) bool {
	a.mu.Lock()
	noted := maps.Clone(a.noted)
	a.mu.Unlock()
	all := true
	for part := range slices.Chunk(slices.Sorted(maps.Keys(noted)), arrivalsAtOnce) {
		decided := make([]bool, len(part))
		asks := make([]func(), 0, len(part))
		for i, g := range part {
			asks = append(asks, func() { decided[i] = a.decide(ctx, noted[g]) })
		}
		a.node.world.all("tell of an arrival", asks)
		for i, g := range part {
			if decided[i] {
				a.forget(noted[g])
			}
		}
		all = all && !slices.Contains(decided, false)
		if !slices.Contains(decided, true) {
			break
		}
	}
	return all
}

// decide has the registry decide one. It reports false if it is to be tried again.
func (a *arrivals) decide(ctx context.Context, arrival registry.Reached) bool {
	n := a.node
	rec, ok := n.registry.Group(arrival.ID)
	if !ok || rec.Incarnation != arrival.Incarnation || rec.Version > arrival.Version {
		return true // something else is wanted by now
	}
	if rec.Version == arrival.Version && len(rec.Before) == 0 {
		return true
	}
	ctx, cancel := n.world.withTimeout(ctx, n.cfg.DefaultTimeout)
	defer cancel()
	if _, err := n.command(ctx, registry.EncodeReached(arrival)); err != nil {
		n.logger.Debug("tell that a group has come to its members",
			groupAttr(arrival.ID), errAttr(err))
		return false
	}
	return true // or nobody cares any more
}

// forget drops an arrival, unless there is a later one of the group by now.
func (a *arrivals) forget(told registry.Reached) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.noted[told.ID] == told {
		delete(a.noted, told.ID)
	}
}
