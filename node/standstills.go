package node

import (
	"context"
	"slices"
	"sync"

	"github.com/raftyard/raftyard"
)

// othersFaulty asks all nodes that are connected for those of their replicas that are in
// quarantine, of a page of groups.
func (n *Node) othersFaulty(
	ctx context.Context, from raftyard.GroupID,
) map[raftyard.GroupID][]replicaReport {
	return n.askReports(ctx, askFaulty, from, n.liveOthers())
}

// faultyReports tells of this node's replicas in quarantine, with ids from a given one on.
func (n *Node) faultyReports(from raftyard.GroupID, limit int) []replicaReport {
	rs := slices.DeleteFunc(n.allReplicas(), func(r *replica) bool {
		return r.group < from || r.fault() == nil
	})
	slices.SortFunc(rs, byGroup)
	out := make([]replicaReport, 0, min(len(rs), limit))
	for _, r := range rs[:min(len(rs), limit)] {
		out = append(out, r.report())
	}
	return out
}

// standstills are the replicas of other nodes whose state machines stand still, as far as
// this node has asked: they are no better leaders. The zero value is ready.
type standstills struct {
	mu sync.Mutex
	of map[raftyard.GroupID][]raftyard.ReplicaID
}

// has reports whether a replica is one of them.
func (s *standstills) has(g raftyard.GroupID, id raftyard.ReplicaID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.of[g], id)
}

// learnStandstills asks for them, if this node leads a group that another should lead.
func (n *Node) learnStandstills() {
	leads := slices.ContainsFunc(n.allReplicas(), func(r *replica) bool {
		v := r.view.Load()
		return r.serving() && r.machine.fault() != nil && v.Leader == r.id
	})
	if !leads {
		return
	}
	of := make(map[raftyard.GroupID][]raftyard.ReplicaID)
	for g, reps := range n.othersFaulty(n.running, 0) {
		for i := range reps {
			of[g] = append(of[g], reps[i].Replica)
		}
	}
	n.standstills.mu.Lock()
	n.standstills.of = of
	n.standstills.mu.Unlock()
}
