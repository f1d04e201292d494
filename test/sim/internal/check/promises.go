package check

import (
	"fmt"

	"github.com/raftyard/raftyard"
)

// promises are what a replica has let others know of itself, or has made durable.
// It must never be without them again.
type promises struct {
	term  uint64
	votes recent[raftyard.ReplicaID] // given, by term
	acks  recent[uint64]             // the highest index acknowledged, by term
	ack   ack

	commit  uint64 // the durable commit index
	safe    uint64 // up to here, all is committed and durable
	members uint64 // the index of the newest members that are durable for certain
}

// An ack is the newest acknowledgement of entries: in a message of a term, of all
// up to an index, whose entry is of another term perhaps.
type ack struct {
	term, index, entry uint64
	replaced           bool // a later leader has overwritten the entry
}

// recent remembers a value for each of the newest terms.
type recent[V comparable] struct {
	items     [12]recentItem[V]
	forgotten uint64 // the highest term that is not remembered any more
}

type recentItem[V comparable] struct {
	term  uint64
	value V
}

// get returns the value of a term. It is not known when the term is forgotten;
// zero is a value that was never set.
func (r *recent[V]) get(term uint64) (value V, known bool) {
	for i := range r.items {
		if r.items[i].term == term {
			return r.items[i].value, true
		}
	}
	return value, term > r.forgotten
}

// put sets the value of a term.
func (r *recent[V]) put(term uint64, value V) {
	oldest := &r.items[0]
	for i := range r.items {
		item := &r.items[i]
		if item.term == term {
			item.value = value
			return
		}
		if item.term < oldest.term {
			oldest = item
		}
	}
	if term < oldest.term {
		r.forgotten = max(r.forgotten, term)
		return
	}
	r.forgotten = max(r.forgotten, oldest.term)
	*oldest = recentItem[V]{term, value}
}

// notePromises notes what is durable as a promise, and checks that what was
// acknowledged is still there while the node runs.
//
// Rule 4, [DurableFirst]: what was acknowledged in a term stays in the log while
// the term lasts; only a later leader may replace it.
func (c *Checker) notePromises(s *replicaState, now sight) {
	if s.log == nil {
		return
	}
	p := &s.promised
	hs := hardStateOf(s.log)
	c.noteVote(s, hs.term, hs.vote)
	p.term = max(p.term, hs.term)
	p.commit = max(p.commit, hs.commit)
	p.safe = max(p.safe, s.settled(now))
	if now.members <= now.applied { // nothing is applied before the members of it are saved
		p.members = max(p.members, now.members)
	}
	if p.ack.index == 0 || p.ack.replaced || s.unseen {
		return
	}
	if term, state := termAt(s.log, p.ack.index); state == beyond ||
		state == present && term != p.ack.entry {
		p.ack.replaced = true
		if hs.term == p.ack.term {
			c.fail(DurableFirst, "%v has acknowledged entry %d of term %d in term %d, "+
				"and has dropped it in the same term", s, p.ack.index, p.ack.entry, p.ack.term)
		}
	}
}

// noteVote notes a vote that was given, or is durable.
//
// Rule 5, [NoRegress]: a replica has one vote in a term.
func (c *Checker) noteVote(s *replicaState, term uint64, vote raftyard.ReplicaID) {
	if term == 0 || vote == 0 {
		return
	}
	if given, known := s.promised.votes.get(term); known && given != 0 && given != vote {
		c.fail(NoRegress, "%v has voted for %d and for %d in term %d", s, given, vote, term)
		return
	}
	s.promised.votes.put(term, vote)
}

// unkept returns which promise does not hold any more with what is durable now, or
// nothing.
func (s *replicaState) unkept() string {
	p := &s.promised
	if s.log == nil {
		if p.term == 0 {
			return ""
		}
		return "its log cannot be had"
	}
	hs := hardStateOf(s.log)
	_, last := s.log.Bounds()
	switch vote, known := p.votes.get(hs.term); {
	case hs.term < p.term:
		return fmt.Sprintf("term %d is durable, but it was in term %d", hs.term, p.term)
	case known && vote != 0 && vote != hs.vote:
		return fmt.Sprintf("vote %d is durable in term %d, but it was given to %d",
			hs.vote, hs.term, vote)
	case hs.commit < p.commit:
		return fmt.Sprintf("commit %d is durable, but %d was", hs.commit, p.commit)
	case last < p.safe:
		return fmt.Sprintf("the log ends at %d, but %d was durable and committed", last, p.safe)
	}
	return s.unkeptEntries(hs.term)
}

// unkeptToOthers is unkept for what others have been told.
func (s *replicaState) unkeptToOthers() string {
	hs := hardStateOf(s.log)
	vote, known := s.promised.votes.get(hs.term)
	if hs.term < s.promised.term || known && vote != 0 && vote != hs.vote {
		return "its term or its vote is gone"
	}
	return s.unkeptEntries(hs.term)
}

func (s *replicaState) unkeptEntries(hardTerm uint64) string {
	p := &s.promised
	own, state := termAt(s.log, p.safe)
	if term, known := s.group.committed.at(p.safe); known && state == present && own != term {
		return fmt.Sprintf("entry %d is of term %d, but was committed in term %d",
			p.safe, own, term)
	}
	if p.ack.index == 0 || p.ack.replaced || hardTerm > p.ack.term {
		return "" // in a later term its leader may have replaced what was acknowledged
	}
	own, state = termAt(s.log, p.ack.index)
	if state == beyond || state == present && own != p.ack.entry {
		return fmt.Sprintf("entry %d of term %d was acknowledged in term %d, and is not there",
			p.ack.index, p.ack.entry, p.ack.term)
	}
	return ""
}
