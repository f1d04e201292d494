package check

// checkHome notes where a replica is.
//
// Rule 6, [OneHome]: a replica id is ever on one node only, and in one data
// directory.
func (c *Checker) checkHome(s *replicaState, n *nodeState) {
	at := home{n, n.disk}
	switch {
	case s.home.node == nil:
		s.home = at
	case s.home == at:
	case s.home.node == n:
		c.fail(OneHome, "%v comes back in another directory than the one that it was in", s)
		s.home = at
	default:
		c.fail(OneHome, "%v is on node %d too", s, n.id)
	}
}

// checkServing looks at replicas that are stopped, or that serve and must not.
//
// Rule 14, [Quarantine]: a replica that has lost something influences nobody; and
// none is stopped, nor its state machine, while no disk has lost anything.
func (c *Checker) checkServing(s *replicaState, r *Replica) {
	switch {
	case r.Serving && s.dead:
		c.fail(DeadAreSilent, "%v serves, though it was destroyed", s)
	case r.Serving && s.lost:
		c.fail(Quarantine, "%v serves, though it has lost what it had promised to keep", s)
	case !r.Serving && r.Fault != nil && !s.excused && !c.anyLoss && !s.dead:
		c.fail(Quarantine, "%v is stopped, though nothing was lost: %v", s, r.Fault)
	case r.Broken != nil && !c.cfg.Brittle && !s.excused && !c.anyLoss && !s.dead:
		c.fail(Quarantine, "the state machine of %v has failed, though nothing was lost: %v",
			s, r.Broken)
	}
}
