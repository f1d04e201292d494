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
	if err := st.usable(slices.Concat(g.Voters, g.Learners), nil); err != nil {
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
	named := slices.Concat(old.Voters, old.Learners)
	if err := st.usable(slices.Concat(voters, learners), named); err != nil {
		return Result{Code: Invalid, Group: *old, Detail: err.Error()}
	}
	if slices.Equal(voters, old.Voters) && slices.Equal(learners, old.Learners) {
		return Result{Code: OK, Group: *old}
	}
	g := *old
	g.Voters, g.Learners = voters, learners
	g.Before = old.former(&g)
	if len(g.Before) > MaxBefore {
		detail := fmt.Sprintf("the group has not left %d nodes yet where it was wanted before: "+
			"wait until it has come to what is wanted now", len(old.Before))
		return Result{Code: Invalid, Group: *old, Detail: detail}
	}
	st.put(&g)
	return Result{Code: OK, Group: g}
}

// former returns who may have a replica of the group when next is wanted, beside those
// who are to have one.
func (g *Group) former(next *Group) []raftyard.NodeID {
	ids := sorted(slices.Concat(g.Before, g.Voters, g.Learners))
	return slices.DeleteFunc(slices.Compact(ids), next.wants)
}

// apply keeps the record's Version: nothing has changed that anybody could want otherwise.
func (c Reached) apply(st *state) Result {
	old, ok := st.groups.get(c.ID)
	switch {
	case !ok || old.Deleted:
		return Result{Code: NotFound}
	case old.Incarnation != c.Incarnation || old.Version != c.Version:
		return Result{Code: Stale, Group: *old, Detail: "something else is wanted by now"}
	case len(old.Before) == 0:
		return Result{Code: OK, Group: *old}
	}
	g := *old
	g.Before = nil
	st.version++
	st.groups = st.groups.put(&g)
	return Result{Code: OK, Group: g}
}

func (c ForgetGroup) apply(st *state) Result {
	old, ok := st.groups.get(c.ID)
	switch {
	case !ok:
		return Result{Code: NotFound}
	case old.Incarnation != c.Incarnation:
		return Result{Code: Conflict, Group: *old, Detail: "another incarnation"}
	case !old.Deleted:
		return Result{Code: Conflict, Group: *old, Detail: "the group is not deleted"}
	}
	st.version++
	st.groups = st.groups.remove(c.ID)
	return Result{Code: OK}
}

// put makes g, a new record, part of the state.
func (st *state) put(g *Group) {
	st.version++
	g.Version = st.version
	st.groups = st.groups.put(g)
}

// usable returns an error that names the first of the nodes that cannot be a
// member of a group: because it is not registered or is removed, or because it
// is leaving and is not one of those that the group named before.
func (st *state) usable(ids, before []raftyard.NodeID) error {
	for _, id := range ids {
		i, ok := findNode(st.nodes, id)
		switch {
		case !ok:
			return fmt.Errorf("node %d is not registered", id)
		case st.nodes[i].State == NodeRemoved:
			return wasRemoved(id)
		case st.nodes[i].State == NodeLeaving && !slices.Contains(before, id):
			return fmt.Errorf("node %d is leaving", id)
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
