package node

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// noted are the data directories of nodes, and their starts, as this node has noted
// them durably. The registry is in memory: after a start it knows only what is
// certainly committed, which may be less than before, and must not forget with whom it
// had to do.
type noted struct {
	now atomic.Pointer[notes]

	mu   sync.Mutex
	met  map[raftyard.NodeID]comer // who has come and is not noted yet
	said hearsay                   // by the node that is furthest, of those asked

	disowned map[raftyard.NodeID]*disowned
}

// disowned is a start that was noted, and is of a copy: it does not show the one that is
// registered. Who has noted it had not heard of that one.
type disowned struct{ was, registered knownStore }

// comer is a start that has come, and what it shows of those before it.
type comer struct {
	knownStore
	shows lineage.Lineage
}

// notes are what is noted at one time. They never change.
type notes struct {
	list []knownStore // by node
	at   uint64       // the version of the registry that was last taken in
}

func (k *noted) load() notes {
	if now := k.now.Load(); now != nil {
		return *now
	}
	return notes{}
}

// of returns what is noted of a node, or zero.
func (ns notes) of(id raftyard.NodeID) knownStore {
	i, ok := ns.find(id)
	if !ok {
		return knownStore{}
	}
	return ns.list[i]
}

func (ns notes) find(id raftyard.NodeID) (int, bool) {
	return slices.BinarySearchFunc(ns.list, id, func(s knownStore, id raftyard.NodeID) int {
		return cmp.Compare(s.Node, id)
	})
}

func (k *noted) of(id raftyard.NodeID) knownStore { return k.load().of(id) }

// Noted implements [world.Starts].
func (k *noted) Noted(id raftyard.NodeID) uint64 { return k.of(id).Boot }

// set says that notes are durable.
func (k *noted) set(ns notes) {
	k.now.Store(&ns)
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, m := range k.met {
		if s := ns.of(id); s.Store != m.Store || s.Boot >= m.Boot || !m.shows.Follows(s.start()) {
			delete(k.met, id)
		}
	}
	for id, d := range k.disowned {
		if !ns.of(id).is(d.was) {
			delete(k.disowned, id)
		}
	}
}

// disown hears that the start that is noted does not show the one that is registered.
func (k *noted) disown(d *disowned) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disowned == nil {
		k.disowned = make(map[raftyard.NodeID]*disowned)
	}
	k.disowned[d.was.Node] = d
}

// meet hears who has come.
func (k *noted) meet(peer comer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.met == nil {
		k.met = make(map[raftyard.NodeID]comer)
	}
	if before := k.met[peer.Node]; before.Store != peer.Store || before.Boot < peer.Boot {
		k.met[peer.Node] = peer
	}
}

// merge returns notes with what is not in them yet: the directories of nodes as the
// registry has them at a version, and those who have come. Of a node that the registry
// does not know with a directory, the directory with which it comes first is taken.
func (k *noted) merge(ns notes, nodes []registry.Node, version uint64) notes {
	next := notes{list: slices.Clone(ns.list), at: ns.at}
	if version >= ns.at { // it may be behind what was noted before the last start
		for i := range nodes {
			next.take(&nodes[i])
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if version >= ns.at {
		next.drop(k.disowned)
	}
	if k.said.Version > max(version, ns.at) {
		version = k.said.Version
		for _, s := range k.said.Nodes {
			next.take(&registry.Node{
				ID: s.Node, Store: s.Store, First: s.First, Boot: s.Boot, Process: s.Process,
			})
		}
	}
	for id, m := range k.met {
		if !next.hear(m) {
			delete(k.met, id) // or it would be in the way of another one
		}
	}
	if !slices.Equal(next.list, ns.list) {
		next.at = max(ns.at, version)
	}
	return next
}

// hearsay hears what another node says of directories, and reports whether nobody who was
// further has said so before.
func (k *noted) hearsay(said *hearsay) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if said.Version <= k.said.Version {
		return false
	}
	k.said = *said
	return true
}

// take takes in what the registry knows of a node. It has seen that each start shows the one
// that was registered before. Where another start of the same number was heard of here, only
// some have heard of either, and the registry decides.
func (ns *notes) take(rec *registry.Node) {
	if rec.Store.IsZero() {
		return
	}
	i, ok := ns.find(rec.ID)
	if !ok {
		ns.list = slices.Insert(ns.list, i, knownStore{Node: rec.ID})
	}
	k := &ns.list[i]
	if k.Store != rec.Store {
		*k = knownStore{Node: rec.ID, Store: rec.Store}
	}
	k.First = rec.First
	if k.Boot < rec.Boot || k.Boot == rec.Boot && !rec.Process.IsZero() {
		k.Boot, k.Process = rec.Boot, rec.Process
	}
}

// drop puts what the registry has in the place of starts that are disowned.
func (ns *notes) drop(all map[raftyard.NodeID]*disowned) {
	for id, d := range all {
		if i, ok := ns.find(id); ok && ns.list[i].is(d.was) {
			ns.list[i].Boot, ns.list[i].Process = d.registered.Boot, d.registered.Process
		}
	}
}

// hear takes in who has come. It was let in by what was noted then, which may be less: it
// is false if that does not do any more.
func (ns *notes) hear(m comer) bool {
	i, ok := ns.find(m.Node)
	if !ok {
		m.First = m.Store
		ns.list = slices.Insert(ns.list, i, m.knownStore)
		return true
	}
	k := &ns.list[i]
	if k.Store != m.Store || !m.shows.Follows(k.start()) {
		return false
	}
	k.Boot, k.Process = m.Boot, m.Process
	return true
}

// noteStores makes durable what was learned of nodes since the last time. There is no place
// for it while the system group's replica is stopped, because its disk has lost something;
// but it counts: the directory that it was known with may be what was lost of a node, and
// that node may lead those who are to replace the replica.
func (n *Node) noteStores() {
	r := n.replica(raftyard.SystemGroup)
	if r == nil {
		return
	}
	have := n.noted.load()
	next := n.mergeNotes(have)
	switch {
	case next.same(have):
		return
	case !r.serving():
		n.noted.set(next)
		return
	}
	w := r.worker
	w.box.control(func() {
		w.guard(r, "note the nodes", func() {
			have := r.meta.notes()
			next := n.mergeNotes(have)
			if next.same(have) {
				return // that is being written
			}
			r.meta.Stores, r.meta.StoresAt = next.list, next.at
			w.writes = append(w.writes, write{
				group: r.group, update: storage.Update{Meta: r.meta.encode()},
				done: func(err error) {
					if err == nil {
						n.noted.set(next)
					}
				},
			})
		})
	})
}

func (n *Node) mergeNotes(ns notes) notes {
	nodes, version := n.registered()
	return n.noted.merge(ns, nodes, version)
}

func (ns notes) same(o notes) bool { return slices.Equal(ns.list, o.list) }

// notes are what the record of the system group's replica has.
func (m *meta) notes() notes { return notes{list: m.Stores, at: m.StoresAt} }

// knownOf is the start of a node that a peer presents itself as.
func knownOf(peer transport.Identity) knownStore {
	return knownStore{
		Node: peer.Node, Store: raftyard.StoreID(peer.Store), Boot: peer.Boot,
		Process: raftyard.StoreID(peer.Process),
	}
}

// start is the latest start that is noted.
func (s knownStore) start() lineage.Start {
	return lineage.Start{Boot: s.Boot, Process: s.Process}
}

// is reports whether the start that is noted is the one that has come.
func (s knownStore) is(peer knownStore) bool {
	return s.Store == peer.Store && s.Boot == peer.Boot && s.Process == peer.Process
}
