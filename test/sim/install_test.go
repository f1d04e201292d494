package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
)

// syncsOfAnInstall is how many syncs a node may be in when it loses power while it takes
// a snapshot over: some are of the other groups, and of elections.
const syncsOfAnInstall = 24

// crashInInstall has a node lose power in the n-th sync after it hears again of those who
// have cut their logs, and send it a snapshot of a durable state machine. It waits until the
// node has all that the others have, and returns what was found, and whether it has crashed.
func crashInInstall(t *testing.T, n uint64) (broken *BrokenError, crashed bool) {
	t.Helper()
	const durable raftyard.GroupID = 2
	s := Start(t, Config{Seed: 60, Nodes: 3, Groups: 2})
	defer s.w.close()
	if kind := s.w.kindOf(durable); kind != "durable" {
		t.Fatalf("group %d is %s", durable, kind)
	}
	s.Until("the group has a leader, and the nodes are ready", func() bool {
		return s.Leader(durable) != 0 && !slices.ContainsFunc(s.w.hosts, (*host).unready)
	})
	leader := s.Leader(durable)
	away := other(leader)
	h := s.w.host(away)
	s.Until("it has a replica", func() bool { return s.Applied(away, durable) > 0 })
	s.Isolate(away)
	last := uint64(0)
	r, _ := s.replica(away, durable)
	had := r.Last
	for i := 0; s.firstAt(leader, durable) <= had+1; i++ {
		res, err := s.Propose(leader, durable, aPut())
		if err != nil || i > 1000 {
			t.Fatalf("after %d commands the log is not cut: %v", i, err)
		}
		last = res.Index
	}
	s.Kill(away) // and with it what is still on its way
	s.Restart(away)
	h.trip, h.tripFor = n, 50*time.Millisecond
	s.Heal()
	limit := s.Time() + scriptPatience
	s.w.turns.At(int64(limit), func() {})
	s.w.turns.Until(func() bool {
		return s.Applied(away, durable) >= last || s.Time() >= limit
	})
	if broken = s.w.result(); broken == nil && s.Time() >= limit {
		t.Fatalf("sync %d: the node never has all", n)
	}
	if broken == nil && s.w.check.Tally().Restored == 0 {
		t.Fatalf("sync %d: the node has taken no snapshot over", n)
	}
	return broken, h.trip == 0
}

// firstAt returns the first index in the log of a node's replica.
func (s *Script) firstAt(id raftyard.NodeID, g raftyard.GroupID) uint64 {
	r, _ := s.replica(id, g)
	return firstOf(&r)
}

// TestCrashInEverySyncOfAnInstall has a node lose power in each of the syncs that it takes
// to take a snapshot over, in turn. Whatever it has on its disk then, it goes on.
func TestCrashInEverySyncOfAnInstall(t *testing.T) {
	crashes := 0
	for n := uint64(1); n <= syncsOfAnInstall; n++ {
		broken, crashed := crashInInstall(t, n)
		if broken != nil {
			t.Fatalf("sync %d: %v", n, broken)
		}
		if crashed {
			crashes++
		}
	}
	if crashes < 4 {
		t.Errorf("%d crashes, an installation takes more syncs", crashes)
	}
}
