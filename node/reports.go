package node

import (
	"context"
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
	"github.com/raftyard/raftyard/node/registry"
)

// collectReports gathers what is known of the given groups: from this node, and
// from the leaders, or from all that may know.
func (n *Node) collectReports(
	ctx context.Context, recs []registry.Group,
) map[raftyard.GroupID][]replicaReport {
	known := make(map[raftyard.GroupID][]replicaReport, len(recs))
	ask := make(map[raftyard.NodeID]bool)
	for i := range recs {
		rec := &recs[i]
		if r := n.replica(rec.ID); r != nil && r.incarnation == rec.Incarnation {
			rep := r.report()
			known[rec.ID] = append(known[rec.ID], rep)
			if rep.Leader != 0 {
				ask[rep.Leader] = rep.Leader != n.cfg.ID // it knows how its members are
				continue
			}
		}
		for _, id := range rec.Voters {
			ask[id] = id != n.cfg.ID
		}
	}
	if len(recs) == 0 {
		return known
	}
	var others []raftyard.NodeID
	for _, id := range slices.Sorted(maps.Keys(ask)) {
		if ask[id] {
			others = append(others, id)
		}
	}
	for g, reps := range n.askReports(ctx, askGroups, recs[0].ID, others) {
		known[g] = append(known[g], reps...)
	}
	for g, reps := range n.othersFaulty(ctx, recs[0].ID) {
		known[g] = append(known[g], reps...)
	}
	return known
}

// askReports asks nodes for what they know of their replicas of a page of groups: of all, or
// of those in quarantine, as kind says.
func (n *Node) askReports(
	ctx context.Context, kind uint8, from raftyard.GroupID, ids []raftyard.NodeID,
) map[raftyard.GroupID][]replicaReport {
	body := wire.AppendUvarint(nil, uint64(from))
	body = wire.AppendUvarint(body, maxPage)
	known := make(map[raftyard.GroupID][]replicaReport)
	// What a node knows that does not answer is missing, and so a problem may be shown.
	for _, reps := range askAll[[]replicaReport](ctx, n, ids, poll{
		name: "ask for groups", kind: kind, body: body, patience: askPatience,
	}) {
		for i := range reps {
			known[reps[i].Group] = append(known[reps[i].Group], reps[i])
		}
	}
	return known
}
