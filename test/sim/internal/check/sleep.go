package check

import (
	"fmt"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// checkDormant compares a replica that sleeps with how it fell asleep.
//
// Rule 22, [Sleep]: it sends no messages of raft, and nothing of it changes, in memory or
// on the disk.
func (c *Checker) checkDormant(s *replicaState, r *Replica, now sight) {
	was, spoke := s.seen, s.spoke
	s.spoke = false
	if now.dormant && (!was.dormant || was.wakes != now.wakes) {
		c.tally.Slept++
		c.checkFallsAsleep(s, r, now)
		return
	}
	if !was.dormant || !now.dormant || !now.serving {
		return
	}
	was.broken = now.broken
	switch {
	case spoke:
		c.fail(Sleep, "%v sends messages while it sleeps", s)
	case was != now:
		c.fail(Sleep, "%v changes while it sleeps: %+v, now %+v", s, was, now)
	}
}

// checkFallsAsleep looks at a replica that falls asleep. A leader that nobody has deposed,
// which it could not know, has given everything to all members but those whose nodes it
// takes for gone.
func (c *Checker) checkFallsAsleep(s *replicaState, r *Replica, now sight) {
	if now.commit != now.last || now.applied != now.commit {
		c.fail(Sleep, "%v sleeps with the log at %d, commit at %d, and %d applied",
			s, now.last, now.commit, now.applied)
	}
	if now.role != group.Leader {
		return
	}
	for _, o := range s.group.order {
		if o.seen.term > now.term {
			return
		}
	}
	for _, m := range r.State.Descriptor.Members {
		o := s.group.replicas[m.ID]
		if o == nil || o == s || !o.shown || slices.Contains(r.Without, m.Node) {
			continue
		}
		if !o.seen.serving {
			continue // it has agreed in another life, of whose end the leader has yet to hear
		}
		if o.seen.last != now.last || o.seen.term != now.term {
			c.fail(Sleep, "%v sleeps at %d in term %d, and %v is at %d in term %d",
				s, now.last, now.term, o, o.seen.last, o.seen.term)
		}
	}
}

// A Sleeper is a replica that sleeps in the belief that a node leads its group.
type Sleeper struct {
	Group  raftyard.GroupID
	Node   raftyard.NodeID
	Leader raftyard.NodeID
}

// Sleepers returns those that follow a leader on another node.
func (c *Checker) Sleepers() (list []Sleeper) {
	for _, g := range c.order {
		for _, s := range g.order {
			if !s.shown || !s.seen.dormant || !s.seen.serving || s.seen.role == group.Leader {
				continue
			}
			if m, ok := s.state.Descriptor.Member(s.seen.leader); ok {
				list = append(list, Sleeper{g.key.id, s.home.node.id, m.Node})
			}
		}
	}
	return list
}

// Overslept tells that a replica sleeps whose leader's node has been down for too long.
func (c *Checker) Overslept(s Sleeper, since fmt.Stringer) {
	c.fail(Sleep, "the replica of group %d on node %d sleeps, and its leader's node %d has been "+
		"down for %v", s.Group, s.Node, s.Leader, since)
}
