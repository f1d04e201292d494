package check

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/raftyard/raftyard"
)

// hardState is what is durable of a replica's term and vote.
type hardState struct {
	term   uint64
	vote   raftyard.ReplicaID
	commit uint64
}

func hardStateOf(log Log) hardState {
	if log == nil {
		return hardState{}
	}
	hs := log.HardState()
	return hardState{hs.GetTerm(), raftyard.ReplicaID(hs.GetVote()), hs.GetCommit()}
}

// presence says where an index is in a log.
type presence uint8

const (
	present presence = iota
	before           // cut off already
	beyond           // behind the end, or the log cannot be had
)

// termAt returns the term of an entry of a log.
func termAt(log Log, index uint64) (uint64, presence) {
	if log == nil {
		return 0, beyond
	}
	term, err := log.Term(index)
	switch {
	case err == nil:
		return term, present
	case errors.Is(err, raft.ErrCompacted):
		return 0, before
	default:
		return 0, beyond
	}
}

// firstOf returns the first index of a log that is of the newest term, or noLimit if
// that is not to be seen: it is not there yet, or cut off already.
func firstOf(log Log, newest uint64) uint64 {
	if log == nil {
		return noLimit
	}
	_, last := log.Bounds()
	for at := last; ; at-- {
		switch term, state := termAt(log, at); {
		case state != present || term != newest && at == last:
			return noLimit
		case term != newest:
			return at + 1
		}
	}
}

// A window is the terms of committed entries: those above base, zero where nothing
// is known.
type window struct {
	base  uint64
	terms []uint64
}

func (w *window) top() uint64 { return w.base + uint64(len(w.terms)) }

// at returns the term of a committed entry, if it is known.
func (w *window) at(index uint64) (uint64, bool) {
	if index <= w.base || index > w.top() {
		return 0, false
	}
	term := w.terms[index-w.base-1]
	return term, term != 0
}

// note notes a committed entry and returns the term that it has had until now.
func (w *window) note(index, term uint64) uint64 {
	if len(w.terms) == 0 && w.base == 0 {
		w.base = index - 1
	}
	if index <= w.base {
		return term
	}
	for w.top() < index {
		w.terms = append(w.terms, 0)
	}
	slot := &w.terms[index-w.base-1]
	if *slot == 0 {
		*slot = term
	}
	return *slot
}

// forget forgets all up to index.
func (w *window) forget(index uint64) {
	if index > w.base {
		w.terms = slices.Delete(w.terms, 0, int(min(index-w.base, uint64(len(w.terms)))))
		w.base = index
	}
}

// checkCommitted compares what a replica has newly committed with the others.
//
// Rule 2, [LogMatching]: a committed index has one value on all replicas and for
// ever. The term stands for the value, as in a term an index is written once; the
// commands themselves are compared where they are applied.
func (c *Checker) checkCommitted(s *replicaState, now sight) {
	g := s.group
	from := max(s.verified+1, now.durableFirst-min(now.durableFirst, 1))
	to := s.settled(now)
	for index := max(from, 1); index <= to; index++ {
		own, state := termAt(s.log, index)
		if state != present {
			continue
		}
		if term := g.committed.note(index, own); term != own {
			c.fail(LogMatching, "%v has committed entry %d in term %d, others in term %d",
				s, index, own, term)
		}
	}
	if to > s.verified {
		s.verified = to
		c.forget(g)
	}
}

// settled returns the index up to which the durable log holds what is committed.
// The commit index of the replica itself may be beyond: it may speak of entries whose
// write is under way, and which replace those that are still there.
func (s *replicaState) settled(now sight) uint64 {
	return min(max(now.applied, hardStateOf(s.log).commit), now.durableLast)
}

// forget forgets what all replicas have passed, but for the newest indexes.
func (c *Checker) forget(g *groupState) {
	if uint64(len(g.committed.terms)) > 2*c.cfg.Keep {
		passed := g.committed.top() - c.cfg.Keep
		for _, s := range g.order {
			if s.shown && s.seen.serving {
				passed = min(passed, s.verified)
			}
		}
		g.committed.forget(max(passed, g.committed.top()-min(g.committed.top(), maxKept)))
	}
	g.applied.forget(c.cfg.Keep, g.order)
	if uint64(len(g.hashes)) > 2*c.cfg.Keep {
		indexes := sortedKeys(g.hashes)
		for _, index := range indexes[:len(indexes)/2] {
			delete(g.hashes, index)
		}
	}
}

// maxKept bounds what is remembered for the sake of replicas that stay behind.
const maxKept = 1 << 17

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
