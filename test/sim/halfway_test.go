package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/transport"
)

// stuck is the group of which the members change.
const stuck raftyard.GroupID = 50

// problemAt returns since when the group has a problem, as each way says in which a node
// shows it. Zero: it has not.
func problemAt(s *Script, id raftyard.NodeID, word string) []time.Time {
	s.t.Helper()
	var shown []time.Time
	see := func(sum *node.GroupSummary) {
		has := slices.Contains(sum.Problems, word)
		since, timed := sum.Since[word]
		if has != timed {
			s.t.Errorf("node %d: problems %q, since %v", id, sum.Problems, sum.Since)
		}
		shown = append(shown, since)
	}
	err := s.On(id, func(ctx context.Context, n *node.Node) error {
		one, err := n.Group(ctx, stuck)
		if err != nil {
			return err
		}
		see(&one.GroupSummary)
		list, _, err := n.Groups(ctx, node.GroupFilter{Problem: word})
		if err != nil {
			return err
		}
		status := n.Status(ctx)
		for _, listed := range [][]node.GroupSummary{list, status.Problems} {
			sum := node.GroupSummary{}
			for i := range listed {
				if listed[i].ID == stuck {
					sum = listed[i]
				}
			}
			see(&sum)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return shown
}

// wantProblem looks at all nodes whether they show a problem that began about at a time,
// or, with zero, that they do not.
func wantProblem(s *Script, word string, began time.Duration) {
	s.t.Helper()
	// Clocks run fast and slow here, as no real one does.
	near := 3*time.Second + (s.Time()-began)/4
	for _, id := range s.w.ids() {
		if s.w.host(id).state != running {
			continue
		}
		for way, since := range problemAt(s, id, word) {
			off := since.Sub(epoch().Add(began))
			switch {
			case began == 0 && !since.IsZero():
				s.t.Errorf("node %d shows %s since %v (%d)", id, word, since, way)
			case began != 0 && off.Abs() > near:
				s.t.Errorf("node %d shows %s since %v (%d), want about %v",
					id, word, since, way, epoch().Add(began))
			}
		}
	}
}

// TestStuckHalfway lets a change of voters not come to its end, and shows it at every node,
// those that have no replica and those that know no leader too, until it does.
func TestStuckHalfway(t *testing.T) {
	s := Start(t, Config{Seed: 722, Nodes: 6, Groups: 1})
	allReady(s)
	createOwn(s, 1, stuck, 1, 2, 3)
	joint := func() bool {
		r, ok := s.replica(1, stuck)
		return ok && r.State.Descriptor.IsJoint()
	}
	members(s, stuck, false, 1, 4, 5)
	s.Until("it is joint", joint)
	// The voters that come are silent: the new half has no majority.
	s.Intercept(func(env *transport.Envelope) Verdict {
		return Verdict{Drop: env.Group == stuck && (env.From.Node > 3 || env.To.Node > 3)}
	})
	began := s.Time()
	s.Run(50 * time.Second)
	if !joint() {
		t.Fatal("it has left the joint configuration without a majority")
	}
	wantProblem(s, "joint", 0)
	s.Run(12 * time.Second)
	wantProblem(s, "joint", began)
	s.Intercept(nil)
	s.Until("it is left", func() bool { return !joint() })
	s.Run(5 * time.Second) // the others hear of it
	wantProblem(s, "joint", 0)
}

// TestOrphanLearner has a learner not catch up that is to be a voter. Who leads next knows
// since when.
func TestOrphanLearner(t *testing.T) {
	s := Start(t, Config{Seed: 723, Nodes: 5, Groups: 1})
	allReady(s)
	createOwn(s, 1, stuck, 1, 2, 3)
	s.Intercept(func(env *transport.Envelope) Verdict {
		return Verdict{Drop: env.Group == stuck && env.To.Node == 4}
	})
	members(s, stuck, false, 1, 2, 4)
	s.Until("the learner is added", func() bool {
		r, ok := s.replica(s.Leader(stuck), stuck)
		_, added := r.State.Descriptor.MemberOn(4)
		return ok && added
	})
	began := s.Time()
	for range 18 {
		s.Run(30 * time.Second)
	}
	wantProblem(s, "orphan_learner", 0)
	s.Kill(s.Leader(stuck))
	s.Run(55 * time.Second)
	s.Run(15 * time.Second)
	wantProblem(s, "orphan_learner", began)
	members(s, stuck, true, 1, 2, 3)
	wantProblem(s, "orphan_learner", 0)
}
