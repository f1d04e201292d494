package node

import (
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
)

// TestLeaveNamesTheWayOn: the only other node of the cluster has a learner of the group. It
// is not promoted by itself, since somebody wants it so; but the node that leaves says which
// group it is, and with which command it goes on.
func TestLeaveNamesTheWayOn(t *testing.T) {
	c := newCluster(t, 2)
	c.awaitReady(1, 2)
	c.createSpec(Spec{ID: 7, Kind: "list", Voters: nodeIDs(2), Learners: nodeIDs(1)})
	c.add(1, 7, "a")
	n := c.nodes[1]
	if _, err := n.DrainNode(within(t, testTimeout), 2); err != nil {
		t.Fatal(err)
	}
	st, err := n.RemoveNode(within(t, testTimeout), 2, false)
	const want = "1 group wants a member there; the only other nodes have learners of group 7: " +
		"make one of them a voter, such as by raftyard member set 7 --voters 1, or"
	if err != nil || !strings.HasPrefix(st.Problem, want) {
		t.Fatalf("RemoveNode = %q, %v, want %q", st.Problem, err, want)
	}
	m := Members{Voters: nodeIDs(1)}
	if _, err = n.SetMembers(within(t, testTimeout), 7, m, true); err != nil {
		t.Fatalf("what it says to do: %v", err)
	}
	c.eventually("the node is removed", func() bool { return c.isGone(1, 2) })
	c.wantWords(1, 7, "a")
}

// TestBlockedText says of each kind of groups which they are, and what to do.
func TestBlockedText(t *testing.T) {
	got := blockedText(map[string][]raftyard.GroupID{
		nobodyElse: {1, 2, 3, 4, 5, 6, 7}, onlyLearners: {8}, onlyVoter: {9, 10}, deadVoter: {11},
	}, "PROMOTE")
	for _, want := range []string{
		"for groups 1, 2, 3, 4, 5 and 2 more: let one join",
		"learners of group 8: make one of them a voter, such as by PROMOTE, or",
		"for groups 9, 10: let one join", "for group 11: bring it back",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if got = blockedText(nil, ""); got != "" {
		t.Errorf("nobody waits, and it says %q", got)
	}
}
