package group

// AtRest reports whether nothing is left to be done for the group as far as this replica
// knows: everything in its log is committed and handed out, nothing waits, and it leads
// and has committed in its own term, or it follows a leader. Whoever drives it need not
// tick it as long as that is so, it is given nothing, and, if it follows, something else
// than messages tells that the leader is there.
func (r *Replica) AtRest() bool {
	v := &r.view
	switch {
	case r.usable() != nil || r.ready || r.HasReady():
		return false
	case v.hard.commit != v.last:
		return false
	case v.applied != v.hard.commit || v.safeLast != v.last || v.settled != v.applied:
		return false
	case r.change != nil || r.takeover != nil || r.state.Descriptor.IsJoint():
		return false
	case len(r.proposals.queue)+len(r.proposals.inflight) > 0:
		return false
	case r.reads.count()+len(r.reads.held) > 0:
		return false
	case v.role == Leader:
		return v.ownTermCommitted() && r.rn.BasicStatus().LeadTransferee == 0
	default:
		return v.role == Follower && v.leader != 0
	}
}

// Rest lets go of memory that a replica which is at rest does not need. It changes nothing
// else, and may be called at any time.
func (r *Replica) Rest() {
	if len(r.proposals.inflight) == 0 {
		r.proposals.inflight = nil
	}
	if len(r.reads.asking) == 0 {
		r.reads.asking = nil
	}
}
