package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/node/registry"
)

// registryCheck is what a node says of its registry when it is asked whether it is ready.
func (c *cluster) registryCheck(id raftyard.NodeID) (ready bool, detail string) {
	ready, checks := c.nodes[id].Ready()
	return ready, checks[2].Detail
}

// TestRefusedOriginalIsNotReady: a copy of a node that stood still was let in in its place.
// The node goes on and has read the registry once, but nobody talks to it any more: it is not
// ready, says why, and asks nothing of the cluster.
func TestRefusedOriginalIsNotReady(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	original := c.nodes[3].identity()
	shows, err := lineage.Decode(original.Lineage, knownOf(original).start())
	if err != nil {
		t.Fatal(err)
	}
	copied := original
	copied.Boot, copied.Process = original.Boot+1, [16]byte{9}
	copied.Lineage = shows.Then(knownOf(copied).start(), lineage.Start{}).Encode()
	for _, id := range nodeIDs(1, 2) {
		rec, _ := c.nodes[id].registry.Node(3)
		if ref := c.nodes[id].admitStart(copied, &rec); ref != nil {
			t.Fatal(ref)
		}
	}
	c.eventually("it is not ready, and says why", func() bool {
		ready, detail := c.registryCheck(3)
		return !ready && strings.Contains(detail, "which does not come after that one") &&
			strings.Contains(detail, c.nodes[3].cfg.Dir) && strings.Contains(detail, "stop it")
	})
	if err := c.nodes[3].mustBelong(); err == nil {
		t.Error("it would ask something of the cluster")
	}
}

// TestSpentDirectory puts a directory back whose replicas were replaced meanwhile. The node
// and the others say that nothing in it is of use, and what to do; when that is done nobody
// says so any more.
func TestSpentDirectory(t *testing.T) {
	c := newCluster(t, 3)
	c.awaitReady(1, 2, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.eventually("all are members", func() bool { return len(c.problems(1, 1)) == 0 })
	before := c.ids(3)
	c.close(3)
	spent := c.copyOf(3)
	c.wipe(3)
	c.open(3, nil)
	c.backInPlace(3, 1, before)
	c.close(3)
	c.putBack(3, spent)
	c.open(3, nil)
	problem := func() string {
		st, err := c.nodes[1].NodeStatus(within(t, testTimeout), 3)
		if err != nil {
			t.Fatal(err)
		}
		return st.Problem
	}
	c.eventually("the node says what to do", func() bool {
		ready, detail := c.registryCheck(3)
		return !ready && strings.Contains(detail, spentDirectory) &&
			strings.Contains(detail, c.nodes[3].cfg.Dir)
	})
	if err := c.nodes[3].Outside(); !errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotReady) {
		t.Errorf("the node takes no part in the cluster: %v, want what does not pass", err)
	}
	c.eventually("the others say what to do", func() bool {
		return strings.Contains(problem(), spentDirectory)
	})
	c.close(3)
	c.wipe(3)
	c.open(3, nil)
	c.awaitReady(3)
	if text := problem(); text != "" {
		t.Errorf("it is back, and said to have the problem %q", text)
	}
}

// TestNewcomerThatIsGoneIsNoProblem: whoever was refused for his directory is shown for as
// long as he comes, also by a node that does not come to clear up.
func TestNewcomerThatIsGoneIsNoProblem(t *testing.T) {
	now := time.Unix(1, 0)
	own, other := raftyard.StoreID{1}, raftyard.StoreID{2}
	for _, tt := range []struct {
		what    string
		later   time.Duration
		known   time.Duration // when it has come with its own directory; zero: it has not
		current raftyard.StoreID
		want    bool
	}{
		{what: "it has just come", current: own, want: true},
		{what: "it came a moment ago", later: newcomerPatience, current: own, want: true},
		{what: "it comes no more", later: newcomerPatience + 1, current: own},
		{what: "it has got its place", current: other},
		{
			what: "both run", later: 2 * time.Second, known: 2 * time.Second, current: own,
			want: true,
		},
		{what: "its own is back", later: 6 * time.Second, known: time.Second, current: own},
	} {
		var c newcomers
		c.saw(knownStore{Node: 3, Store: other}, false, now)
		if tt.known > 0 {
			c.heard(3, func() time.Time { return now.Add(tt.known) })
		}
		got := c.problem(3, tt.current, now.Add(tt.later))
		if (got != "") != tt.want {
			t.Errorf("%s: problem %q, want one: %t", tt.what, got, tt.want)
		}
	}
}

// TestSystemGroupIsNotToBeDeleted: of the groups that keep a directory from being replaced
// the system group is the one that nobody can give up.
func TestSystemGroupIsNotToBeDeleted(t *testing.T) {
	for _, tt := range []struct {
		groups []raftyard.GroupID
		want   string
	}{
		{nil, ""},
		{[]raftyard.GroupID{0}, "the system group cannot be deleted"},
		{[]raftyard.GroupID{0, 7}, "delete all but the system group by force"},
		{[]raftyard.GroupID{7}, "delete them by force"},
	} {
		b := blockedBy{node: 3}
		for _, g := range tt.groups {
			b.because(&registry.Group{ID: g}, "it has no leader")
		}
		if got := b.String(); !strings.HasSuffix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("groups %d are in the way: %q, want %q", tt.groups, got, tt.want)
		}
	}
}
