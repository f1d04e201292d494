package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/node"
)

// stepsOfAPurge is how many syncs and removals a node may be in when it loses power while
// it deletes what a destroyed replica has stored.
const stepsOfAPurge = 8

// leftOf are the names of what a node's disk has of a group outside of the log store.
func (s *Script) leftOf(id raftyard.NodeID, g raftyard.GroupID) (left []string) {
	names, err := s.w.host(id).disk.Files().ReadDir("/data/replicas")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, fmt.Sprintf("%d-", g)) {
			left = append(left, name)
		}
	}
	return left
}

// crashInPurge takes a replica of a durable state machine off a node that loses power in
// the n-th of these steps, and twice again in the n-th when it goes on. It reports what was
// found, and how often it crashed.
func crashInPurge(t *testing.T, seed, n uint64) (broken *BrokenError, crashes int) {
	t.Helper()
	const durable raftyard.GroupID = 2
	s := Start(t, Config{Seed: seed, Nodes: 3, Groups: 2})
	defer s.w.close()
	if kind := s.w.kindOf(durable); kind != "durable" {
		t.Fatalf("group %d is %s", durable, kind)
	}
	s.Until("the group has its voters and a leader, and the nodes are ready", func() bool {
		return s.Leader(durable) != 0 && !slices.ContainsFunc(s.w.hosts, func(h *host) bool {
			r, here := s.replica(h.id, durable)
			return h.unready() || !here || len(r.State.Descriptor.Voters()) != len(s.w.hosts)
		})
	})
	leader := s.Leader(durable)
	goes := other(leader)
	h := s.w.host(goes)
	for range 20 { // a journal, and snapshots
		if _, err := s.Propose(leader, durable, aPut()); err != nil {
			t.Fatal(err)
		}
	}
	rest := node.Members{Voters: []raftyard.NodeID{leader, other(leader, goes)}}
	done := s.Begin(leader, func(ctx context.Context, n *node.Node) error {
		_, err := n.SetMembers(ctx, durable, rest, true)
		for errors.Is(err, node.ErrUnknownOutcome) { // the crash took the registry's leader
			_, err = n.SetMembers(ctx, durable, rest, true)
		}
		return err
	})
	s.Until("it hears of that", func() bool {
		_, here := s.replica(goes, durable)
		return !here && h.state == running
	})
	before := s.w.counts.Trips
	h.tripIn = "/data/replicas"
	for range 3 {
		h.trip, h.tripFor = n, 50*time.Millisecond
		limit := s.Time() + 2*time.Second
		s.w.turns.At(int64(limit), func() {})
		s.w.turns.Until(func() bool { return h.trip == 0 && h.state == down || s.Time() >= limit })
	}
	h.trip = 0
	limit := s.Time() + scriptPatience
	s.w.turns.At(int64(limit), func() {})
	s.w.turns.Until(func() bool {
		ended, _ := done()
		return ended && h.state == running && len(s.leftOf(goes, durable)) == 0 ||
			s.Time() >= limit
	})
	if broken = s.w.result(); broken == nil && s.Time() >= limit {
		t.Fatalf("seed %d, step %d: there still is %q", seed, n, s.leftOf(goes, durable))
	}
	if _, err := done(); broken == nil && err != nil {
		t.Fatal(err)
	}
	return broken, s.w.counts.Trips - before
}

// TestCrashInEveryStepOfAPurge has a node lose power in each of the steps that it takes to
// delete what a destroyed replica has stored, in turn. Whatever part of that is on the disk
// then, all of it goes in the end.
func TestCrashInEveryStepOfAPurge(t *testing.T) {
	seeds := uint64(2)
	if !testing.Short() {
		seeds = 8
	}
	crashes := 0
	for seed := range seeds {
		for n := uint64(1); n <= stepsOfAPurge; n++ {
			broken, crashed := crashInPurge(t, 80+seed, n)
			if broken != nil {
				t.Fatalf("seed %d, step %d: %v", 80+seed, n, broken)
			}
			crashes += crashed
		}
	}
	if crashes < 10*int(seeds) {
		t.Errorf("%d crashes, a purge takes more steps", crashes)
	}
}
