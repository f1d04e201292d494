package node

import (
	"maps"

	"github.com/raftyard/raftyard"
)

// Of thousands of replicas almost all sleep at most times. What only those need that do
// something is let go of when one falls asleep, and comes back by itself.

// rest lets go of what a replica that sleeps does not need.
func (r *replica) rest() {
	r.log.Rest()
	r.raft.Rest()
	if len(r.tidings.kept) == 0 {
		r.tidings.kept = nil
	}
	if len(r.reads) == 0 {
		r.reads = nil
	}
	d := &r.meta.State.Descriptor
	maps.DeleteFunc(r.peers, func(id raftyard.ReplicaID, _ raftyard.NodeID) bool {
		_, ok := d.Member(id)
		return ok // which counts more, see nodeOf
	})
	if len(r.peers) == 0 {
		r.peers = nil
	}
}
