package check

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A reign is what is known of one term of a group: who leads it, and the log of
// that leader, which only ever grows.
type reign struct {
	leader raftyard.ReplicaID
	runs   []run
	commit uint64 // the highest that the leader was seen to have decided
	seen   bool   // the election was checked
}

// A run is a part of a log in which all entries are of one term.
type run struct{ term, first, last uint64 }

// maxReigns bounds how many terms of a group are remembered.
const maxReigns = 1024

// reignOf returns what is known of a term.
func (g *groupState) reignOf(term uint64) *reign {
	r := g.reigns[term]
	if r == nil {
		r = new(reign)
		g.reigns[term] = r
		if len(g.reigns) > maxReigns {
			g.forgetReigns()
		}
	}
	return r
}

// forgetReigns forgets the older half of the terms.
func (g *groupState) forgetReigns() {
	terms := sortedKeys(g.reigns)
	for _, term := range terms[:len(terms)/2] {
		delete(g.reigns, term)
	}
}

// noteLeader notes who leads a term.
//
// Rule 1, [OneLeader]: a term of a group has at most one leader.
func (c *Checker) noteLeader(s *replicaState, term uint64, how string) *reign {
	r := s.group.reignOf(term)
	switch r.leader {
	case 0:
		r.leader = s.id
	case s.id:
	default:
		c.fail(OneLeader, "%v %s term %d, which replica %d leads", s, how, term, r.leader)
	}
	return r
}

// checkLeader looks at a replica that leads. The election had the majorities of the
// members in force, and the leader has what was committed in the terms before.
func (c *Checker) checkLeader(s *replicaState, r *Replica) {
	if r.Role != group.Leader {
		return
	}
	reign := c.noteLeader(s, r.Term, "leads")
	if reign.seen {
		return
	}
	reign.seen = true
	granted := func(id raftyard.ReplicaID) bool { return s.group.granted(id, r.Term, s) }
	if !c.decided(s, r, firstOf(s.log, r.Term), granted) {
		c.fail(Membership, "%v leads term %d without a majority of votes of %s",
			s, r.Term, describe(r.State.Descriptor))
	}
	c.checkComplete(s, r)
}

// granted reports whether a replica has given its vote to a candidate.
func (g *groupState) granted(id raftyard.ReplicaID, term uint64, to *replicaState) bool {
	voter := g.replicas[id]
	if voter == nil {
		return false
	}
	if voter == to {
		hs := hardStateOf(to.log)
		return hs.term > term || (hs.term == term && hs.vote == to.id)
	}
	vote, known := voter.promised.votes.get(term)
	return !known || vote == to.id
}

// checkComplete: a leader has every entry that was committed in an earlier term.
//
// Rule 9, [AckedSurvives].
func (c *Checker) checkComplete(s *replicaState, r *Replica) {
	var committed, of uint64
	for term, reign := range s.group.reigns {
		if term < r.Term && reign.commit > committed {
			committed, of = reign.commit, term
		}
	}
	if committed == 0 || s.log == nil {
		return
	}
	term, known := s.group.committed.at(committed)
	own, state := termAt(s.log, committed)
	if state == beyond || state == present && known && own != term {
		c.fail(AckedSurvives, "%v leads term %d and has not entry %d, committed in term %d",
			s, r.Term, committed, of)
	}
}

// noteRun notes that the leader's log has entries [first, last] of a term, and
// reports whether that fits what was known.
func (r *reign) noteRun(n run) bool {
	for i := range r.runs {
		o := &r.runs[i]
		switch {
		case o.term == n.term:
			o.first, o.last = min(o.first, n.first), max(o.last, n.last)
			return r.ordered(i)
		case o.term > n.term:
			r.runs = append(r.runs[:i], append([]run{n}, r.runs[i:]...)...)
			return r.ordered(i)
		}
	}
	r.runs = append(r.runs, n)
	return r.ordered(len(r.runs) - 1)
}

// ordered reports whether run i lies between its neighbours.
func (r *reign) ordered(i int) bool {
	return (i == 0 || r.runs[i-1].last < r.runs[i].first) &&
		(i == len(r.runs)-1 || r.runs[i].last < r.runs[i+1].first)
}

// termAt returns the term of an entry of the leader's log, if it is known.
func (r *reign) termAt(index uint64) (uint64, bool) {
	for _, n := range r.runs {
		if index >= n.first && index <= n.last {
			return n.term, true
		}
	}
	return 0, false
}
