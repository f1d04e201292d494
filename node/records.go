package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node/registry"
)

// knownRecord returns what this node knows to be wanted of a group.
func (n *Node) knownRecord(g raftyard.GroupID) (registry.Group, error) {
	if g == raftyard.SystemGroup {
		return n.systemRecord(), nil
	}
	rec, ok := n.registry.Group(g)
	switch {
	case ok && !rec.Deleted:
		return rec, nil
	case !n.lifecycle.isFresh():
		return rec, fmt.Errorf("group %d: %w", g, n.unread())
	default:
		return rec, fmt.Errorf("group %d: %w", g, ErrGroupNotFound)
	}
}

// systemRecord describes the system group as if it were in the registry: what it
// has is what is wanted.
func (n *Node) systemRecord() registry.Group {
	d := n.systemDescriptor()
	if r := n.replica(raftyard.SystemGroup); r != nil && r.view.Load().initialized() {
		d = r.view.Load().State.Descriptor
	}
	want := wantOf(d)
	slices.Sort(want.Voters)
	slices.Sort(want.Learners)
	return registry.Group{
		ID: raftyard.SystemGroup, Incarnation: d.Incarnation, Kind: systemKind,
		Voters: want.Voters, Learners: want.Learners,
		SnapshotEntries: d.SnapshotEntries, TrailingEntries: d.TrailingEntries,
	}
}

// systemSummary is the system group's line, which lists of groups leave out.
func (n *Node) systemSummary(ctx context.Context) GroupSummary {
	rec := n.systemRecord()
	return n.summarize(&rec, n.collectReports(ctx, []registry.Group{rec})[rec.ID])
}
