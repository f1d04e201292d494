package node

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
)

// EventKind says what an [Event] tells.
type EventKind string

// The kinds of events.
const (
	// EventReplica: a replica on this node is as the event says: it is new, or
	// its leader, term, members or fault have changed.
	EventReplica EventKind = "replica"
	// EventReplicaGone: this node has no replica of the group any more.
	EventReplicaGone EventKind = "replica_gone"
	// EventReady: the node has come up.
	EventReady EventKind = "ready"
)

// An Event is a change that a watcher sees.
type Event struct {
	Kind    EventKind          `json:"kind"`
	Group   raftyard.GroupID   `json:"group"`
	Replica raftyard.ReplicaID `json:"replica,omitempty"`
	Leader  raftyard.NodeID    `json:"leader,omitempty"`
	Leads   bool               `json:"leads,omitempty"` // this node does
	Term    uint64             `json:"term,omitempty"`
	Epoch   uint64             `json:"epoch,omitempty"`
	Members []MemberStatus     `json:"members,omitempty"`
	Fault   string             `json:"fault,omitempty"`
}

// Watch yields the present state of every replica on this node, then each
// change, until ctx ends or the node is closed. A watcher that is slow misses
// states in between, never the latest one, and holds up nobody.
func (n *Node) Watch(ctx context.Context) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		wake, leave := n.watchers.join()
		defer leave()
		seen := make(map[raftyard.GroupID]Event)
		ready := false
		for {
			if !n.tellChanges(seen, &ready, yield) {
				return
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			case <-n.stopped:
				return
			}
		}
	}
}

// tellChanges yields what differs from seen, and brings seen up to date.
func (n *Node) tellChanges(
	seen map[raftyard.GroupID]Event, ready *bool, yield func(Event) bool,
) bool {
	rs := n.allReplicas()
	slices.SortFunc(rs, byGroup)
	here := make(map[raftyard.GroupID]bool, len(rs))
	for _, r := range rs {
		here[r.group] = true
		rep := r.report()
		ev := Event{
			Kind: EventReplica, Group: r.group, Replica: r.id, Leader: rep.Leader,
			Leads: rep.Leads, Term: rep.Term, Epoch: rep.Epoch, Members: rep.Members,
			Fault: rep.Fault,
		}
		if old, ok := seen[r.group]; ok && old.same(ev) {
			continue
		}
		seen[r.group] = ev
		if !yield(ev) {
			return false
		}
	}
	for g := range seen {
		if !here[g] {
			delete(seen, g)
			if !yield(Event{Kind: EventReplicaGone, Group: g}) {
				return false
			}
		}
	}
	if !*ready && n.ready.Load() {
		*ready = true
		return yield(Event{Kind: EventReady})
	}
	return true
}

func (e Event) same(o Event) bool {
	return e.Replica == o.Replica && e.Leader == o.Leader && e.Leads == o.Leads &&
		e.Term == o.Term && e.Epoch == o.Epoch && e.Fault == o.Fault &&
		slices.Equal(e.Members, o.Members)
}

// watchers are woken when something may have changed. The zero value is ready.
type watchers struct {
	mu sync.Mutex
	m  map[chan struct{}]struct{}
}

func (w *watchers) join() (wake <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = make(map[chan struct{}]struct{})
	}
	w.m[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.m, ch)
	}
}

// notify wakes everybody, without waiting for anybody.
func (w *watchers) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.m {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
