package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// sleepSeeds is how many seeds a script about sleep has a look at: what they depend on are
// timeouts, which each seed has drawn otherwise.
const sleepSeeds = 12

// dormant reports whether group 1 sleeps on a node.
func (s *Script) dormant(id raftyard.NodeID) bool {
	r, ok := s.replica(id, 1)
	return ok && r.Dormant
}

// allDormant waits until group 1 sleeps on all nodes, which are three.
func (s *Script) allDormant() {
	s.t.Helper()
	s.Until("the group sleeps", func() bool {
		return s.dormant(1) && s.dormant(2) && s.dormant(3)
	})
}

// runs lets time pass until something is so, but no longer than d. It returns the rule that
// was broken meanwhile, or what is not so.
func (s *Script) runs(d time.Duration, what string, so func() bool) error {
	limit := s.Time() + d
	s.w.turns.At(int64(limit), func() {})
	s.w.turns.Until(func() bool { return so() || s.Time() >= limit })
	if f := s.w.result(); f != nil {
		return f
	}
	if !so() {
		return fmt.Errorf("after %v it is not so that %s", d, what)
	}
	return nil
}

// timeouts are so many election timeouts.
func (s *Script) timeouts(n int) time.Duration {
	return time.Duration(n*s.w.setup.election) * s.w.setup.tick
}

// eachSeed runs a script with some seeds until one finds something.
func eachSeed(t *testing.T, script func(s *Script) error) (err error) {
	t.Helper()
	for seed := uint64(1); seed <= sleepSeeds && err == nil; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := Start(t, Config{Seed: seed, Nodes: 3, Groups: 1, SleepTicks: 5})
			if err = script(s); err != nil {
				err = fmt.Errorf("seed %d: %w", seed, err)
			}
		})
	}
	return err
}

// wantAnother returns what is wrong unless somebody else than before leads group 1 soon.
func (s *Script) wantAnother(before raftyard.NodeID) error {
	return s.runs(s.timeouts(2)+3*time.Second, "another one leads", func() bool {
		l := s.Leader(1)
		return l != 0 && l != before
	})
}

// wantAnotherSoon is wantAnother for those who have slept: they need no timeout of raft's
// when they know that the leader's node is gone. The first of them stands for election two
// heartbeats later.
func (s *Script) wantAnotherSoon(before raftyard.NodeID) error {
	others := slices.DeleteFunc(s.w.ids(), func(id raftyard.NodeID) bool { return id == before })
	err := s.runs(s.w.longestSleep(), "the others wake", func() bool {
		return !slices.ContainsFunc(others, s.dormant)
	})
	if err != nil {
		return err
	}
	stand := time.Duration(2*s.w.setup.heartbeat+5)*s.w.setup.tick*11/10 + 8*s.w.setup.latency
	return s.runs(stand, "another one leads", func() bool {
		return slices.Contains(others, s.Leader(1))
	})
}

// TestSleepersLoseTheirLeader takes the power from the node that leads a group that
// sleeps, of which nobody wants anything.
func TestSleepersLoseTheirLeader(t *testing.T) {
	if err := sleepersLoseTheirLeader(t); err != nil {
		t.Fatal(err)
	}
}

func sleepersLoseTheirLeader(t *testing.T) error {
	t.Helper()
	return eachSeed(t, func(s *Script) error {
		s.allDormant()
		dead := s.Leader(1)
		s.Crash(dead)
		if err := s.wantAnotherSoon(dead); err != nil {
			return err
		}
		s.Restart(dead)
		s.allDormant()
		return nil
	})
}

// TestSleepersElectInOneRound takes the power from the node that leads groups that sleep, while
// votes take as long as they do when thousands of groups elect their leaders at once: no
// group needs a second round. In every other seed one of those who are left gets the last
// beats of the node, and the other one does not: they do not find out at the same time.
func TestSleepersElectInOneRound(t *testing.T) {
	for seed := range uint64(2 * sleepSeeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := Start(t, Config{Seed: seed, Nodes: 3, Groups: 16, SleepTicks: 5})
			s.Until("all sleep", func() bool { return s.sleepers() == 3*len(s.w.groups) })
			dead := s.Leader(1)
			before := s.led(dead)
			var early raftyard.NodeID
			if seed%2 == 1 {
				early = (dead+raftyard.NodeID(seed/2%2))%3 + 1
			}
			asked := s.slowVotes(dead, early)
			s.Run(s.timeouts(1) / 2)
			s.Crash(dead)
			s.Until("others lead", func() bool {
				for g := range before {
					if l := s.Leader(g); l == 0 || l == dead {
						return false
					}
				}
				return true
			})
			again := 0
			for g, term := range before {
				if r, _ := s.replica(s.Leader(g), g); r.Term != term+1 || asked[g] != 1 {
					again++
				}
			}
			if again > 0 {
				t.Errorf("%d of %d groups have needed more than one round", again, len(before))
			}
		})
	}
}

// sleepers counts the replicas that sleep.
func (s *Script) sleepers() (count int) {
	for _, h := range s.w.hosts {
		for _, g := range s.w.groups {
			if r, ok := h.replica(g.id); ok && r.Dormant {
				count++
			}
		}
	}
	return count
}

// led returns the groups that a node leads, with their terms.
func (s *Script) led(id raftyard.NodeID) map[raftyard.GroupID]uint64 {
	terms := make(map[raftyard.GroupID]uint64)
	for _, g := range s.w.groups {
		if s.Leader(g.id) == id {
			r, _ := s.replica(id, g.id)
			terms[g.id] = r.Term
		}
	}
	return terms
}

// slowVotes has all that is said in elections take a sixth of an election timeout, and the
// beats of a node to one that is early to miss it be lost. It counts how often somebody asks
// another one that is left whether that would vote for it, by group.
func (s *Script) slowVotes(dead, early raftyard.NodeID) (asked map[raftyard.GroupID]int) {
	slow := s.timeouts(1) / 6
	asked = make(map[raftyard.GroupID]int)
	s.Intercept(func(env *transport.Envelope) Verdict {
		switch {
		case env.Notice != nil:
			beat := env.Notice.Kind == transport.NoticeBeat
			return Verdict{Drop: beat && env.From.Node == dead && env.To.Node == early}
		case env.Group == raftyard.SystemGroup:
			return Verdict{}
		}
		switch env.Message.GetType() {
		case raftpb.MsgPreVote:
			if env.To.Node != dead {
				asked[env.Group]++
			}
			return Verdict{Delay: slow}
		case raftpb.MsgPreVoteResp, raftpb.MsgVote, raftpb.MsgVoteResp:
			return Verdict{Delay: slow}
		default:
			return Verdict{}
		}
	})
	return asked
}

// TestLeaderIsBornAgain kills the node that leads a group that sleeps, and starts it so soon
// that nobody misses a beat.
func TestLeaderIsBornAgain(t *testing.T) {
	err := eachSeed(t, func(s *Script) error {
		s.allDormant()
		first := s.Leader(1)
		before, _ := s.replica(first, 1)
		s.Kill(first)
		s.Restart(first)
		err := s.runs(s.timeouts(4)+time.Second, "there is a leader", func() bool {
			l := s.Leader(1)
			if l == 0 {
				return false
			}
			r, _ := s.replica(l, 1)
			return r.Term > before.Term
		})
		if err == nil {
			s.allDormant()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSleepersAreToldLate asks the followers of a leader to sleep when they know that its
// node is gone, though none of them stands for election yet.
func TestSleepersAreToldLate(t *testing.T) {
	if err := sleepersAreToldLate(t); err != nil {
		t.Fatal(err)
	}
}

func sleepersAreToldLate(t *testing.T) error {
	t.Helper()
	return eachSeed(t, func(s *Script) error {
		s.Until("the group has a leader", func() bool { return s.Leader(1) != 0 })
		dead := s.Leader(1)
		s.Intercept(func(env *transport.Envelope) Verdict {
			switch {
			case env.Notice == nil || env.From.Node != dead:
			case env.Notice.Kind == transport.NoticeBeat:
				return Verdict{Drop: true}
			case env.Notice.Kind == transport.NoticeSleep && env.Group == 1:
				return Verdict{Hold: "sleep"}
			}
			return Verdict{}
		})
		s.Until("they miss the leader's node, which asks them", func() bool {
			return s.miss(dead) == 2 && s.Held("sleep") >= 2
		})
		s.Crash(dead)
		s.Run(2 * s.w.setup.tick) // the connections are lost
		s.Release("sleep", false)
		return s.wantAnother(dead)
	})
}

// miss counts the others that have no beats of a node, of three.
func (s *Script) miss(id raftyard.NodeID) (count int) {
	for _, h := range s.w.hosts {
		if h.id != id && h.node.Metrics().NodesLive == 1 {
			count++
		}
	}
	return count
}

// TestSleepersHearOfWhatIsWanted writes, reads and changes the members of a group that
// sleeps.
func TestSleepersHearOfWhatIsWanted(t *testing.T) {
	s := Start(t, Config{Seed: 4, Nodes: 4, Groups: 1, SleepTicks: 5})
	members(s, 1, true, 1, 2, 3)
	s.allDormant()
	members(s, 1, true, 2, 3, 4)
	s.Until("the group sleeps where it is now", func() bool {
		_, there := s.replica(1, 1)
		return !there && s.dormant(2) && s.dormant(3) && s.dormant(4)
	})
}

// TestSleepersCallTheRoll has a group sleep of which nobody wants anything for long: it
// sees whether all are there, and sleeps again.
func TestSleepersCallTheRoll(t *testing.T) {
	s := Start(t, Config{Seed: 3, Nodes: 3, Groups: 1, SleepTicks: 2})
	s.allDormant()
	before, _ := s.replica(1, 1)
	s.Until("all have woken, and sleep again", func() bool {
		for id := range raftyard.NodeID(3) {
			if r, _ := s.replica(id+1, 1); r.Wakes == 0 || !r.Dormant {
				return false
			}
		}
		return true
	})
	if after, _ := s.replica(1, 1); after.Term != before.Term || after.Last != before.Last {
		t.Errorf("it was in term %d, and has gone on to %d", before.Term, after.Term)
	}
}
