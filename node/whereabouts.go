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

// A node that has come up at another address tells all that it reaches where it is. The
// others find it in the registry, once somebody leads the system group. Until then two that
// have both moved may know each other's old addresses only, and if each needs the other's
// vote, nobody ever leads. So a node that waits for the system group asks those that it
// reaches where the others have said that they are, and they pass on what they have heard.
// An address that is wrong does no harm: who is found there says who it is.

// whereEvery is how often a node asks that waits.
const whereEvery = time.Second

// A whereabout is where a start of a node has said that it is reached.
type whereabout struct {
	Node  raftyard.NodeID  `json:"node"`
	Store raftyard.StoreID `json:"store"`
	Boot  uint64           `json:"boot"`
	Addr  string           `json:"addr"`
}

// whereabouts are those of which others have told. The zero value is ready.
type whereabouts struct {
	mu   sync.Mutex
	of   map[raftyard.NodeID]whereabout // of nodes in the registry alone
	next time.Time                      // when others are asked again; of housekeeping alone
}

// addr returns where a node is said to be, or "".
func (w *whereabouts) addr(id raftyard.NodeID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[id].Addr
}

// heard takes what somebody has told of a node that has its directory as current, if that
// is known, unless it is of an earlier start.
func (w *whereabouts) heard(said whereabout, current raftyard.StoreID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, known := w.of[said.Node]
	switch {
	case !known:
	case old.Store == said.Store && said.Boot < old.Boot,
		old.Store != said.Store && old.Store == current:
		return
	}
	if w.of == nil {
		w.of = make(map[raftyard.NodeID]whereabout)
	}
	w.of[said.Node] = said
}

// all returns a copy.
func (w *whereabouts) all() map[raftyard.NodeID]whereabout {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.of)
}

// serveWhereabouts tells where nodes have said that they are: to this one, or else to those
// who have told it.
func (n *Node) serveWhereabouts() []whereabout {
	all := n.whereabouts.all()
	if all == nil {
		all = make(map[raftyard.NodeID]whereabout)
	}
	peers := n.transport.Peers()
	for i := range peers {
		if p := &peers[i]; p.Told != "" {
			all[p.Node] = whereabout{
				Node: p.Node, Addr: p.Told,
				Store: raftyard.StoreID(p.Identity.Store), Boot: p.Identity.Boot,
			}
		}
	}
	list := make([]whereabout, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id])
	}
	return list
}

// learnWhereabouts asks those that this node reaches where the others are, if there are
// any that it does not reach.
func (n *Node) learnWhereabouts(ctx context.Context) {
	now := n.world.now()
	if now.Before(n.whereabouts.next) {
		return
	}
	n.whereabouts.next = now.Add(whereEvery)
	live := n.liveNodes()
	var asked []raftyard.NodeID
	missing := false
	for _, rec := range n.registry.Nodes() {
		missing = missing || !live[rec.ID]
		if live[rec.ID] && rec.ID != n.cfg.ID {
			asked = append(asked, rec.ID)
		}
	}
	if !missing {
		return
	}
	// What those know is missing who do not answer; they are asked again.
	said := askAll[[]whereabout](ctx, n, asked, poll{
		name: "ask where nodes are", kind: askWhereabouts, patience: whereEvery,
	})
	reached := n.liveBoots()
	for _, list := range said {
		for _, one := range list {
			if _, up := reached[one.Node]; !up {
				n.hearWhereabout(one)
			}
		}
	}
}

// hearWhereabout takes what somebody has told of a node that this one does not reach, if it
// is one of the registry.
func (n *Node) hearWhereabout(said whereabout) {
	rec, known := n.registry.Node(said.Node)
	if !known || rec.State == registry.NodeRemoved || said.Node == n.cfg.ID ||
		said.Addr == "" || len(said.Addr) > registry.MaxAddrBytes {
		return
	}
	n.whereabouts.heard(said, n.directory(said.Node).Current)
}
