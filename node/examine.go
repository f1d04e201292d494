package node

import "github.com/raftyard/raftyard/internal/world"

// Examine returns what the simulator sees of the node. It may only be called between
// two steps of a simulation: it looks at what belongs to workers.
func (n *Node) Examine() world.Examined {
	x := world.Examined{Node: n.cfg.ID, Starts: &n.noted}
	if n.store == nil {
		return x
	}
	rs := n.allReplicas()
	x.Replicas = make([]world.Replica, 0, len(rs))
	for _, r := range rs {
		v := world.Replica{
			Group: r.group, Incarnation: r.incarnation, ID: r.id,
			Serving: r.serving(), Fault: r.fault(), Broken: r.machine.fault(), Lives: r.lives,
			Applied: r.applied.Load(), LogOnly: r.machine.isLogOnly(),
			Asleep:  r.machine.isLogOnly() && !r.meta.Floor.ownsState(),
			Dormant: r.sleep.state == asleep, Wakes: r.sleep.wakes,
			State: r.meta.State, Log: r.log,
		}
		if v.Dormant {
			v.Without = r.without()
		}
		if r.raft != nil {
			at := r.raft.Position()
			v.Role, v.Term, v.Vote, v.Leader = at.Role, at.Term, at.Vote, at.Leader
			v.First, v.Last, v.Commit, v.HandedTo = at.First, at.Last, at.Commit, at.Applied
		}
		x.Replicas = append(x.Replicas, v)
	}
	x.Stored = n.store.Replicas()
	return x
}
