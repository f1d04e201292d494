package registry

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
)

func (c SetNode) apply(st *state) Result {
	n := &c.Node
	n.First, n.State, n.Forced = Store{}, NodeActive, false
	n.Process = c.Starts.Last().Process
	if err := c.check(); err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	old, known := st.node(n.ID)
	if known {
		if res := old.refuses(n, c.Starts); res.Code != 0 {
			return res
		}
		n.inherit(old)
		if c.IfAbsent || c.Sparse && n.HTTP == "" {
			n.HTTP = old.HTTP
		}
		if c.IfAbsent || c.Sparse && len(n.Labels) == 0 {
			n.Labels = old.Labels
		}
		if c.IfAbsent {
			n.Peer = old.Peer
		}
	} else if c.IfPresent {
		return Result{Code: NotFound}
	}
	if n.Store.IsZero() { // nobody can say of which directory this is a start
		n.Boot, n.Process = 0, raftyard.StoreID{}
	}
	if n.First.IsZero() {
		n.First = c.first()
	}
	if known && old.equal(n) {
		return Result{Code: OK, Node: *old}
	}
	st.setNode(n)
	if !known {
		return Result{Code: Created, Node: *n}
	}
	return Result{Code: OK, Node: *n}
}

// check returns what is wrong with c by itself.
func (c SetNode) check() error {
	if last := c.Starts.Last().Boot; last != 0 && last != c.Node.Boot {
		return fmt.Errorf("start %d of a data directory that shows starts up to %d",
			c.Node.Boot, last)
	}
	return c.Node.check()
}

// first is the first directory of a node that has not had any before.
func (c SetNode) first() Store {
	if c.Late && !c.Node.Store.IsZero() {
		return nowhere()
	}
	return c.Node.Store
}

// nowhere is a directory that no node has.
func nowhere() (s Store) {
	for i := range s {
		s[i] = 0xff
	}
	return s
}

// refuses returns the result of a command that would make n, which is registered,
// be like next, if that cannot be. Its code is zero otherwise. Where no starts are shown
// their number counts.
func (n *Node) refuses(next *Node, starts lineage.Lineage) Result {
	switch {
	case n.State == NodeRemoved:
		return Result{Code: Invalid, Node: *n, Detail: wasRemoved(n.ID).Error()}
	case next.Store.IsZero() || n.Store.IsZero():
		return Result{}
	case next.Store != n.Store:
		return Result{
			Code: Conflict, Node: *n, Detail: "the node is known with another data directory",
		}
	case next.Boot != 0 && next.Boot < n.Boot:
		detail := fmt.Sprintf("start %d of the data directory after start %d: an older copy",
			next.Boot, n.Boot)
		return Result{Code: Invalid, Node: *n, Detail: detail}
	case next.Boot != 0 && len(starts.Starts) > 0 && !starts.Follows(n.Start()):
		detail := fmt.Sprintf("start %d of the data directory does not show start %d: an older "+
			"copy", next.Boot, n.Boot)
		return Result{Code: Invalid, Node: *n, Detail: detail}
	}
	return Result{}
}

// inherit takes from old, the same node as it is registered, what n leaves open.
func (n *Node) inherit(old *Node) {
	n.First, n.State, n.Forced = old.First, old.State, old.Forced
	if n.Store.IsZero() {
		n.Store, n.Boot = old.Store, 0
	}
	switch {
	case n.Boot == 0:
		n.Boot, n.Process = old.Boot, old.Process
	case n.Boot == old.Boot && n.Process.IsZero():
		n.Process = old.Process
	}
}

// setNodeV1 is a SetNode of format 1. It leaves a node that is registered wholly
// alone when it says so, and knows no starts.
type setNodeV1 SetNode

func (c setNodeV1) apply(st *state) Result {
	if old, ok := st.node(c.Node.ID); ok && c.IfAbsent && c.Node.check() == nil {
		if res := old.refuses(&c.Node, lineage.Lineage{}); res.Code != 0 {
			return res
		}
		return Result{Code: OK, Node: *old}
	}
	return SetNode{Node: c.Node}.apply(st)
}

func (c SetNodeState) apply(st *state) Result {
	old, ok := st.node(c.ID)
	switch {
	case !ok:
		return Result{Code: NotFound}
	case c.State > NodeRemoved:
		return Result{Code: Invalid, Node: *old, Detail: c.State.String() + " is not known"}
	case c.State == old.State && (old.Forced || !c.forces()):
		return Result{Code: OK, Node: *old}
	case old.State == NodeRemoved:
		return Result{Code: Invalid, Node: *old, Detail: wasRemoved(c.ID).Error()}
	case c.State != old.State && !follows(old.State, c.State):
		detail := fmt.Sprintf("a node that is %v cannot become %v", old.State, c.State)
		return Result{Code: Conflict, Node: *old, Detail: detail}
	}
	n := *old
	n.State, n.Forced = c.State, c.forces()
	if c.State == NodeRemoved {
		if id, ok := st.names(c.ID); ok {
			detail := fmt.Sprintf("group %d still names node %d", id, c.ID)
			return Result{Code: Conflict, Node: *old, Detail: detail}
		}
		n = Node{ID: old.ID, Store: old.Store, First: old.First, State: NodeRemoved}
	}
	st.setNode(&n)
	return Result{Code: OK, Node: n}
}

// forces reports whether the node is to leave whatever it costs.
func (c SetNodeState) forces() bool { return c.Forced && c.State == NodeLeaving }

// follows reports whether a node may go from one state to the next at once.
func follows(from, to NodeState) bool {
	switch from {
	case NodeActive:
		return to == NodeDrained
	case NodeDrained:
		return to == NodeActive || to == NodeLeaving
	case NodeLeaving:
		return to == NodeDrained || to == NodeRemoved
	default:
		return false
	}
}

func (c ReplaceStore) apply(st *state) Result {
	old, ok := st.node(c.ID)
	switch {
	case !ok:
		return Result{Code: NotFound}
	case c.New.IsZero():
		return Result{Code: Invalid, Node: *old, Detail: "the new data directory is zero"}
	case old.State == NodeRemoved:
		return Result{Code: Invalid, Node: *old, Detail: wasRemoved(c.ID).Error()}
	case old.Store == c.New:
		return Result{Code: OK, Node: *old}
	case old.Store != c.Old:
		return Result{
			Code: Conflict, Node: *old, Detail: "the node is known with another data directory",
		}
	case old.First == c.New:
		return Result{
			Code: Invalid, Node: *old, Detail: "the node had this data directory before",
		}
	}
	n := *old
	n.Store, n.Boot, n.Process = c.New, 0, raftyard.StoreID{}
	if n.First.IsZero() {
		n.First = c.New
	}
	st.setNode(&n)
	return Result{Code: OK, Node: n}
}

// setNode makes n, a new record, part of the state.
func (st *state) setNode(n *Node) {
	st.version++
	st.nodes = putNode(st.nodes, n)
}

func (st *state) node(id raftyard.NodeID) (*Node, bool) {
	i, ok := findNode(st.nodes, id)
	if !ok {
		return nil, false
	}
	return st.nodes[i], true
}

// names returns the first group that is not deleted and wants a replica on the
// node, or may still have one there.
func (st *state) names(id raftyard.NodeID) (raftyard.GroupID, bool) {
	for g := range st.groups.after(0) {
		if g.Names(id) {
			return g.ID, true
		}
	}
	return 0, false
}

func wasRemoved(id raftyard.NodeID) error { return fmt.Errorf("node %d was removed", id) }
