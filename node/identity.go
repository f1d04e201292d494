package node

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A data directory that was wiped, or put in the place of another, has forgotten
// the votes and entries that its node has vouched for. The registry knows which
// directory a node has, and nobody listens to a node that comes with another. An older
// copy of a directory has forgotten as well: it comes with an earlier start than the
// others have noted.

// ownStore is the id of this node's data directory.
func (n *Node) ownStore() registry.Store { return registry.Store(n.store.Identity().Store) }

// knownDirectory returns the data directory that a node is known with, or zero.
func (n *Node) knownDirectory(id raftyard.NodeID) registry.Store {
	if rec, _ := n.registry.Node(id); !rec.Store.IsZero() {
		return rec.Store
	}
	return n.noted.of(id).Store
}

// foreignStore reports whether a node is known with another data directory.
func (n *Node) foreignStore(id raftyard.NodeID, store registry.Store) bool {
	known := n.knownDirectory(id)
	return !known.IsZero() && known != store && !mutant.On(mutant.WipedVotes)
}

// noted are the data directories of nodes, and their starts, as this node has noted
// them durably. The registry is in memory: after a start it knows only what is
// certainly committed, which may be less than before, and must not forget with whom it
// had to do.
type noted struct {
	list atomic.Pointer[[]knownStore] // by node; never changed

	mu  sync.Mutex
	met map[raftyard.NodeID]knownStore // who has come and is not noted yet
}

// of returns what is noted of a node, or zero.
func (k *noted) of(id raftyard.NodeID) knownStore {
	list := k.all()
	i, ok := slices.BinarySearchFunc(list, id, func(s knownStore, id raftyard.NodeID) int {
		return cmp.Compare(s.Node, id)
	})
	if !ok {
		return knownStore{}
	}
	return list[i]
}

func (k *noted) all() []knownStore {
	if list := k.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Noted implements [world.Starts].
func (k *noted) Noted(id raftyard.NodeID) uint64 { return k.of(id).Boot }

// set says that a list, which is by node, is durable.
func (k *noted) set(list []knownStore) {
	k.list.Store(&list)
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, m := range k.met {
		if s := k.of(id); s.Store != m.Store || s.Boot >= m.Boot {
			delete(k.met, id)
		}
	}
}

// meet hears who has come.
func (k *noted) meet(peer knownStore) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.met == nil {
		k.met = make(map[raftyard.NodeID]knownStore)
	}
	if before := k.met[peer.Node]; before.Store != peer.Store || before.Boot < peer.Boot {
		k.met[peer.Node] = peer
	}
}

// add returns a list with what is not noted yet: the directories of nodes as they are
// known now, and the starts of those who have come with them.
func (k *noted) add(list, directories []knownStore) []knownStore {
	k.mu.Lock()
	defer k.mu.Unlock()
	merged := slices.Clone(list)
	for _, d := range directories {
		i := slices.IndexFunc(merged, func(s knownStore) bool { return s.Node == d.Node })
		switch {
		case i < 0:
			merged = append(merged, d)
		case merged[i].Store != d.Store:
			merged[i] = d
		}
	}
	for i := range merged {
		if m := k.met[merged[i].Node]; m.Store == merged[i].Store {
			merged[i].Boot = max(merged[i].Boot, m.Boot)
		}
	}
	slices.SortFunc(merged, func(a, b knownStore) int { return cmp.Compare(a.Node, b.Node) })
	return merged
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

// noteStores makes durable what was learned of nodes since the last time.
func (n *Node) noteStores() {
	r := n.replica(raftyard.SystemGroup)
	noted := n.noted.all()
	if r == nil || slices.Equal(n.noted.add(noted, n.knownStores()), noted) {
		return
	}
	w := r.worker
	w.box.control(func() {
		w.guard(r, "note the nodes", func() {
			stores := n.noted.add(r.meta.Stores, n.knownStores())
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

// admit returns why no connection with a peer is wanted, or nil: a later start of the
// same directory is noted. One that is wanted is to be noted.
func (n *Node) admit(peer transport.Identity) *transport.RefusalError {
	from := knownStore{Node: peer.Node, Store: registry.Store(peer.Store), Boot: peer.Boot}
	if n.knownDirectory(from.Node) != from.Store {
		return nil // it will not be listened to, or nothing is known of it yet
	}
	known := n.noted.of(from.Node)
	switch {
	case known.Store != from.Store || known.Boot < from.Boot:
		n.noted.meet(from)
		n.lifecycle.poke()
	case known.Boot > from.Boot:
		return &transport.RefusalError{
			Code: transport.RefusedStale,
			Text: fmt.Sprintf("node %d has been seen at start %d of its data directory, and comes "+
				"with start %d: an older copy was put in its place",
				from.Node, known.Boot, from.Boot),
		}
	}
	return nil
}

// accept returns why nothing is taken from a peer, or nil.
func (n *Node) accept(from transport.Identity) error {
	if !n.isOpen() {
		return errStarting
	}
	peer := knownStore{Node: from.Node, Store: registry.Store(from.Store), Boot: from.Boot}
	if n.foreignStore(peer.Node, peer.Store) {
		return n.refuseForeign(peer)
	}
	if n.noted.of(peer.Node) == peer || n.knownDirectory(peer.Node) != peer.Store {
		return nil // noted, or nothing is known of it yet
	}
	if ref := n.admit(from); ref != nil {
		return fmt.Errorf("%w: %s", ErrInvalid, ref.Text)
	}
	// What this node does about a message must not outlive its knowing of the start
	// that has sent it.
	return fmt.Errorf("%w: node %d has just started, and that is not noted yet",
		errStarting, peer.Node)
}

func (n *Node) refuseForeign(peer knownStore) error {
	err := fmt.Errorf("%w: node %d comes with data directory %v, but is known with another: "+
		"its directory was wiped or replaced", ErrInvalid, peer.Node, peer.Store)
	if n.foreignLog.due(n.world.now()) {
		n.logger.Error("a node is not listened to", nodeAttr(peer.Node), errAttr(err))
	}
	return err
}
