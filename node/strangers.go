package node

import (
	"context"
	"sync"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
	"github.com/raftyard/raftyard/transport"
)

// A node that this one does not know, or that comes with another directory than it is
// known with, may be right, and this node behind: it may even lead the system group, so
// that nothing could be learned by refusing it. So whoever is unknown is refused only when
// the registry, read anew, does not know it. And of the directories of all nodes the others
// are asked: who is further in the registry is believed.

const (
	// maxStrangers bounds the unknown nodes that are remembered. More are refused.
	maxStrangers = 256
	// strangerPatience is how long it holds that a node was not in the registry.
	strangerPatience = 10 * time.Second
)

// strangers are nodes that this node does not know.
type strangers struct {
	mu   sync.Mutex
	list map[raftyard.NodeID]*stranger
}

type stranger struct {
	since   time.Time // when it came first
	last    time.Time // when it came
	unknown time.Time // when the registry was read that did not know it; zero: not yet
}

// refuse reports whether a node that is unknown here is refused.
func (s *strangers) refuse(id raftyard.NodeID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make(map[raftyard.NodeID]*stranger)
	}
	st := s.list[id]
	switch {
	case st == nil && len(s.list) >= maxStrangers:
		return true
	case st == nil:
		st = &stranger{since: now}
		s.list[id] = st
	case now.Sub(st.unknown) > strangerPatience && !st.unknown.IsZero():
		*st = stranger{since: now}
	}
	st.last = now
	return !st.unknown.IsZero()
}

// waiting reports whether there are any of whom it is not known whether the registry
// knows them, and forgets those who do not come any more.
func (s *strangers) waiting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	unjudged := false
	for id, st := range s.list {
		if now.Sub(st.last) > strangerPatience {
			delete(s.list, id)
			continue
		}
		unjudged = unjudged || st.unknown.IsZero()
	}
	return unjudged
}

// judged hears that the registry was read: those are unknown to it that had come before,
// and are not known now.
func (s *strangers) judged(began time.Time, known func(raftyard.NodeID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, st := range s.list {
		switch {
		case known(id):
			delete(s.list, id)
		case !st.since.After(began):
			st.unknown = began
		}
	}
}

// admitStranger returns why no connection with a node that nobody here knows is wanted, or
// nil.
func (n *Node) admitStranger(id raftyard.NodeID) *transport.RefusalError {
	if n.founding.waits.Load() {
		n.founding.callers.add(id)
	}
	if n.lifecycle.isFresh() && n.strangers.refuse(id, n.world.now()) {
		return refused(transport.RefusedUnknown, "there is no node %d in the cluster", id)
	}
	return nil
}

// judgeStrangers reads the registry anew if somebody has come who is not known.
func (n *Node) judgeStrangers(parent context.Context) {
	began := n.world.now()
	if !n.strangers.waiting(began) {
		return
	}
	ctx, cancel := n.world.withTimeout(parent, time.Second)
	defer cancel()
	err := View(ctx, n, raftyard.SystemGroup, Linearizable, func(*registry.Registry) error {
		return nil
	})
	if err != nil {
		n.learnDirectories(parent)
		return
	}
	n.strangers.judged(began, func(id raftyard.NodeID) bool {
		_, known := n.registry.Node(id)
		return known
	})
}

// hearsay is what a node says of the directories of all nodes.
type hearsay struct {
	Version uint64      `json:"version"` // of its registry
	Nodes   []saidStore `json:"nodes"`
}

type saidStore struct {
	Node  raftyard.NodeID  `json:"node"`
	Store raftyard.StoreID `json:"store"`
	First raftyard.StoreID `json:"first"`
	Boot  uint64           `json:"boot"`

	Process raftyard.StoreID `json:"process"`
}

// serveDirectories tells what the registry here says of directories.
func (n *Node) serveDirectories() hearsay {
	nodes, version := n.registered()
	h := hearsay{Version: version}
	for i := range nodes {
		if rec := &nodes[i]; !rec.Store.IsZero() {
			h.Nodes = append(h.Nodes, saidStore{
				rec.ID, rec.Store, rec.First, rec.Boot, rec.Process,
			})
		}
	}
	return h
}

// registered are the nodes of the registry at one version.
func (n *Node) registered() ([]registry.Node, uint64) {
	for {
		version := n.registry.Version()
		nodes := n.registry.Nodes()
		if n.registry.Version() == version {
			return nodes, version
		}
	}
}

// learnDirectories asks the others for the directories of all nodes, and notes what those
// say who are further in the registry than this node.
func (n *Node) learnDirectories(ctx context.Context) {
	said := askAll[hearsay](ctx, n, n.liveOthers(), poll{
		name: "ask for directories", kind: askDirectories, patience: askPatience,
	})
	for i := range said {
		if said[i].Version > n.registry.Version() && n.noted.hearsay(&said[i]) {
			n.lifecycle.poke()
		}
	}
}
