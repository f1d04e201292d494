package node

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A data directory that was wiped, or put in the place of another, has forgotten
// the votes and entries that its node has vouched for. The registry knows which
// directory a node has, and nobody listens to a node that comes with another.

// ownStore is the id of this node's data directory.
func (n *Node) ownStore() registry.Store { return registry.Store(n.store.Identity().Store) }

// foreignStore reports whether a node is known with another data directory.
func (n *Node) foreignStore(id raftyard.NodeID, store registry.Store) bool {
	if mutant.On(mutant.WipedVotes) {
		return false
	}
	rec, _ := n.registry.Node(id)
	known := rec.Store
	if known.IsZero() {
		known = n.noted.of(id)
	}
	return !known.IsZero() && known != store
}

// noted are the data directories of nodes as this node has noted them durably. The
// registry is in memory: after a start it knows only what is certainly committed, which
// may be less than before, and must not forget with whom it had to do.
type noted struct {
	mu sync.RWMutex
	m  map[raftyard.NodeID]registry.Store
}

func (k *noted) of(id raftyard.NodeID) registry.Store {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.m[id]
}

func (k *noted) set(list []knownStore) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m = make(map[raftyard.NodeID]registry.Store, len(list))
	for _, s := range list {
		k.m[s.Node] = s.Store
	}
}

// covers reports whether all of the list are noted.
func (k *noted) covers(list []knownStore) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, s := range list {
		if k.m[s.Node] != s.Store {
			return false
		}
	}
	return true
}

// knownStores are the data directories that the registry knows.
func (n *Node) knownStores() []knownStore {
	var list []knownStore
	for _, rec := range n.registry.Nodes() {
		if !rec.Store.IsZero() {
			list = append(list, knownStore{Node: rec.ID, Store: rec.Store})
		}
	}
	return list
}

// noteStores makes durable what the registry has learned of nodes since the last time.
func (n *Node) noteStores() {
	r := n.replica(raftyard.SystemGroup)
	if r == nil || n.noted.covers(n.knownStores()) {
		return
	}
	w := r.worker
	w.box.control(func() {
		w.guard(r, "note the nodes", func() {
			stores := mergeStores(r.meta.Stores, n.knownStores())
			if slices.Equal(stores, r.meta.Stores) {
				return // that is being written
			}
			r.meta.Stores = stores
			w.writes = append(w.writes, write{
				group: r.group, update: storage.Update{Meta: r.meta.encode()},
				done: func(err error) {
					if err == nil {
						n.noted.set(stores)
					}
				},
			})
		})
	})
}

// mergeStores returns old with what is newer, by node.
func mergeStores(old, newer []knownStore) []knownStore {
	merged := slices.Clone(newer)
	for _, k := range old {
		same := func(o knownStore) bool { return o.Node == k.Node }
		if !slices.ContainsFunc(newer, same) {
			merged = append(merged, k)
		}
	}
	slices.SortFunc(merged, func(a, b knownStore) int { return cmp.Compare(a.Node, b.Node) })
	return merged
}

// accept returns why nothing is taken from a peer, or nil.
func (n *Node) accept(from transport.Identity) error {
	if !n.isOpen() {
		return errStarting
	}
	if !n.foreignStore(from.Node, registry.Store(from.Store)) {
		return nil
	}
	err := fmt.Errorf("%w: node %d comes with data directory %v, but is known with another: "+
		"its directory was wiped or replaced", ErrInvalid, from.Node, from.Store)
	if n.foreignLog.due(n.world.now()) {
		n.logger.Error("a node is not listened to", nodeAttr(from.Node), errAttr(err))
	}
	return err
}
