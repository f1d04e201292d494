package registry

import (
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
)

// apply changes st, which is not published yet, by one command. It must come to
// the same state on every node and in every version of the program.
func (st *state) apply(data []byte) Result {
	c, err := decodeCommand(data)
	if err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	return c.apply(st)
}

func (c CreateGroup) apply(st *state) Result {
	g := &Group{
		ID:              c.ID,
		Incarnation:     c.Incarnation,
		Kind:            c.Kind,
		Voters:          sorted(c.Voters),
		Learners:        sorted(c.Learners),
		SnapshotEntries: c.SnapshotEntries,
		TrailingEntries: c.TrailingEntries,
		Seed:            c.Seed,
		SeedStore:       c.SeedStore,
	}
	if err := g.check(); err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	if !slices.Contains(g.Voters, g.Seed) {
		detail := fmt.Sprintf("the seed, node %d, is not a voter", g.Seed)
		return Result{Code: Invalid, Detail: detail}
	}
	old, ok := st.groups.get(g.ID)
	switch {
	case ok && !old.Deleted:
		if detail := old.difference(g); detail != "" {
			return Result{Code: Conflict, Group: *old, Detail: detail}
		}
		return Result{Code: ExistsSame, Group: *old}
	case ok && old.Incarnation == g.Incarnation:
		// A late copy of the command that created the deleted group.
		return Result{Code: Invalid, Group: *old, Detail: "this incarnation is deleted"}
	}
	if err := st.known(g.Voters, g.Learners); err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	if i, _ := findNode(st.nodes, g.Seed); !st.nodes[i].Store.IsZero() {
		g.SeedStore = st.nodes[i].Store
	}
	st.put(g)
	return Result{Code: Created, Group: *g}
}

func (c DeleteGroup) apply(st *state) Result {
	old, ok := st.groups.get(c.ID)
	switch {
	case !ok:
		return Result{Code: NotFound}
	case !old.is(c.Incarnation):
		return Result{Code: Stale, Group: *old, Detail: "another incarnation"}
	case old.Deleted:
		return Result{Code: OK, Group: *old}
	}
	g := &Group{ID: old.ID, Incarnation: old.Incarnation, Kind: old.Kind, Deleted: true}
	st.put(g)
	return Result{Code: OK, Group: *g}
}

func (c WantMembers) apply(st *state) Result {
	voters, learners := sorted(c.Voters), sorted(c.Learners)
	if err := checkMembers(voters, learners); err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	old, ok := st.groups.get(c.ID)
	switch {
	case !ok:
		return Result{Code: NotFound}
	case !old.is(c.Incarnation):
		return Result{Code: Stale, Group: *old, Detail: "another incarnation"}
	case old.Deleted:
		return Result{Code: NotFound, Group: *old}
	case c.IfVersion != 0 && c.IfVersion != old.Version:
		detail := fmt.Sprintf("the version is %d, not %d", old.Version, c.IfVersion)
		return Result{Code: Stale, Group: *old, Detail: detail}
	}
	if err := st.known(voters, learners); err != nil {
		return Result{Code: Invalid, Group: *old, Detail: err.Error()}
	}
	if slices.Equal(voters, old.Voters) && slices.Equal(learners, old.Learners) {
		return Result{Code: OK, Group: *old}
	}
	g := *old
	g.Voters, g.Learners = voters, learners
	st.put(&g)
	return Result{Code: OK, Group: g}
}

func (c SetNode) apply(st *state) Result {
	n := &c.Node
	if err := n.check(); err != nil {
		return Result{Code: Invalid, Detail: err.Error()}
	}
	if i, ok := findNode(st.nodes, n.ID); ok {
		old := st.nodes[i]
		if n.Store.IsZero() {
			n.Store = old.Store
		}
		switch {
		case !old.Store.IsZero() && old.Store != n.Store:
			return Result{
				Code: Conflict, Node: *old, Detail: "the node is known with another data directory",
			}
		case c.IfAbsent || old.equal(n):
			return Result{Code: OK, Node: *old}
		}
	}
	st.version++
	st.nodes = putNode(st.nodes, n)
	return Result{Code: OK, Node: *n}
}

// put makes g, a new record, part of the state.
func (st *state) put(g *Group) {
	st.version++
	g.Version = st.version
	st.groups = st.groups.put(g)
}

// known returns an error that names the first node that is not registered.
func (st *state) known(voters, learners []raftyard.NodeID) error {
	for _, ids := range [][]raftyard.NodeID{voters, learners} {
		for _, id := range ids {
			if _, ok := findNode(st.nodes, id); !ok {
				return fmt.Errorf("node %d is not registered", id)
			}
		}
	}
	return nil
}

// is reports whether in is the group's incarnation, or zero: any.
func (g *Group) is(in raftyard.Incarnation) bool {
	return in.IsZero() || in == g.Incarnation
}

func sorted(ids []raftyard.NodeID) []raftyard.NodeID {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
