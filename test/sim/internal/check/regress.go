package check

// reopen looks at a replica after a start of its node.
//
// Rule 5, [NoRegress]: term, vote, commit and applied index never fall over a
// restart, unless something was lost that was durable and the replica says so.
func (c *Checker) reopen(n *nodeState, s *replicaState, r *Replica) {
	if s.promised.term > 0 {
		c.tally.Reopened++
	}
	why := s.unkept()
	switch {
	case why == "" || s.excused || s.lost && !r.Serving:
	case n.loss == LostNothing:
		c.fail(NoRegress, "%v has broken a promise: %s", s, why)
	case r.Serving && n.loss == LostUnseen:
		s.unseen = s.unkeptToOthers() != ""
	case r.Serving:
		s.lost = true
		c.fail(Quarantine, "%v serves after a loss, though %s", s, why)
	default:
		s.lost = true
	}
	s.seen, s.state, s.spoke = sight{}, s.oldest(), false
	s.verified = 0 // what it committed is compared again
	c.look(s, r, sightOf(r, s.log))
}

// checkRegress compares a replica with what it was before, in one life of its node.
//
// Rule 5, [NoRegress].
func (c *Checker) checkRegress(s *replicaState, now sight) {
	was := &s.seen
	if was.term == 0 {
		return
	}
	if was.lives != now.lives { // its state machine begins where it is durable
		was.applied, was.handed = 0, 0
	}
	for _, v := range []struct {
		what    string
		was, is uint64
	}{
		{"term", was.term, now.term},
		{"commit index", was.commit, now.commit},
		{"applied index", was.applied, now.applied},
		{"index handed to the state machine", was.handed, now.handed},
		{"first durable index", was.durableFirst, now.durableFirst},
		{"index of the members", was.members, now.members},
	} {
		if v.is < v.was {
			c.fail(NoRegress, "%v: the %s goes back from %d to %d", s, v.what, v.was, v.is)
		}
	}
	if was.term == now.term && was.vote != 0 && was.vote != now.vote {
		c.fail(NoRegress, "%v changes its vote in term %d from %d to %d",
			s, now.term, was.vote, now.vote)
	}
	if now.leader == 0 {
		return
	}
	if reign := s.group.reignOf(now.term); reign.leader == 0 {
		reign.leader = now.leader
	} else if reign.leader != now.leader {
		c.fail(OneLeader, "%v takes %d for the leader of term %d, which %d leads",
			s, now.leader, now.term, reign.leader)
	}
}
