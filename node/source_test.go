package node

import (
	"slices"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestLeaderThatCannotBeCopiedHandsOver has the leader's state machine panic when it is
// asked for a snapshot that a member needs: another one must bring that member up.
func TestLeaderThatCannotBeCopiedHandsOver(t *testing.T) {
	c := newCluster(t, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	leader := c.leader(1)
	away := leader%3 + 1
	var want []string
	c.write(leader, &want, 1)
	c.close(away)
	c.write(leader, &want, 60)
	for _, id := range []raftyard.NodeID{leader, away%3 + 1} {
		c.eventually("the logs are cut", func() bool { return c.status(id, 1).First > 20 })
	}
	leader = c.leader(1)
	c.badSource.Store(uint64(leader))
	c.open(away, nil)
	c.wantStale(want, away)
	if now := c.leader(1); now == leader {
		t.Errorf("node %d leads, whose state machine gives no snapshot", now)
	}
	if st := c.status(leader, 1); st.Quarantine != nil || st.SnapshotFault == "" {
		t.Errorf("quarantine %+v, snapshot fault %q of the former leader; want the latter alone",
			st.Quarantine, st.SnapshotFault)
	}
	c.badSource.Store(0)
	c.write(leader, &want, 1)
	c.wantStale(want, 1, 2, 3)
}

// TestSoundReplicaLeads breaks two of three state machines, the leader's among them.
func TestSoundReplicaLeads(t *testing.T) {
	c := newCluster(t, 3)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1, 2, 3}})
	c.add(1, 1, "a")
	first := c.leader(1)
	second, sound := first%3+1, (first+1)%3+1
	c.poison("b", first, second)
	c.eventually("the sound one leads", func() bool {
		return c.leader(1) == sound && c.status(sound, 1).Role == "leader"
	})
	c.add(first, 1, "c")
	st, err := c.nodes[sound].Group(t.Context(), 1)
	if err != nil || !slices.Contains(st.Problems, "faulty") || st.Poison == nil {
		t.Errorf("problems %q, poison %+v, %v; want both, seen from the sound node",
			st.Problems, st.Poison, err)
	}
	groups, _, err := c.nodes[sound].Groups(t.Context(), GroupFilter{Problem: "poison"})
	if err != nil || len(groups) != 1 {
		t.Errorf("Groups with poison = %v, %v; want the one", groups, err)
	}
}
