//go:build unix

package test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A leaderWatch looks at who says that it leads a group, and in which term.
type leaderWatch struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu      sync.Mutex
	leaders map[reign][]raftyard.NodeID
}

// A reign is a term of one incarnation of a group.
type reign struct {
	incarnation string
	term        uint64
}

// watchLeaders looks at the group on every node until end is called.
func watchLeaders(t *testing.T, nodes []*cluster.Node, g raftyard.GroupID) *leaderWatch {
	t.Helper()
	w := &leaderWatch{stop: make(chan struct{}), leaders: make(map[reign][]raftyard.NodeID)}
	for _, n := range nodes {
		w.wg.Go(func() {
			for {
				var r struct {
					cluster.Raft
					Group struct {
						Incarnation string `json:"incarnation"`
					} `json:"group"`
				}
				if n.Get(t.Context(), cluster.GroupPath(g, "/raft"), nil, &r) == nil {
					w.note(n.ID(), &r.Raft, r.Group.Incarnation)
				}
				select {
				case <-w.stop:
					return
				default:
					cluster.Pause(w.stop, 5*time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *leaderWatch) note(n raftyard.NodeID, r *cluster.Raft, incarnation string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := reign{incarnation, r.Term}
	if r.Role == "leader" && !slices.Contains(w.leaders[in], n) {
		w.leaders[in] = append(w.leaders[in], n)
	}
}

func (w *leaderWatch) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.wg.Wait()
}

// check fails the test if two nodes have led in one term, and returns how many
// incarnations of the group have had leaders.
func (w *leaderWatch) check(t *testing.T) int {
	t.Helper()
	w.end()
	incarnations := make(map[string]bool)
	for in, leaders := range w.leaders {
		incarnations[in.incarnation] = true
		if len(leaders) > 1 {
			t.Errorf("nodes %v have led in term %d of %s", leaders, in.term, in.incarnation)
		}
	}
	return len(incarnations)
}

// TestFoundedOnce has a group created by several callers at the same time, with
// different members, and again after all nodes were killed. There must be one group, as
// one of them wanted it; the others must be refused.
func TestFoundedOnce(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{})
	c.Start()
	specs := []client.Spec{kvGroup(1, 2, 3), kvGroup(2), kvGroup(1, 2, 3), kvGroup(3, 1)}
	groups := groupIDs(cluster.Sized(6, 60))
	if testing.Short() {
		groups = groups[:3]
	}
	won := make(map[raftyard.GroupID]int)
	where := make(placed)
	for _, g := range groups {
		w := watchLeaders(t, c.Nodes(), g)
		won[g] = createAtOnce(t, c.Nodes(), g, specs)
		where[g] = slices.Sorted(slices.Values(specs[won[g]].Voters))
		awaitPlaced(t, c.Nodes(), g, where[g])
		for _, n := range c.Nodes() {
			if err := put(t, n, g, "node-"+n.ID().String(), []byte(g.String())); err != nil {
				t.Error(err)
			}
		}
		if n := w.check(t); n != 1 {
			t.Errorf("group %d was seen in %d incarnations, want 1", g, n)
		}
	}
	c.Kill(c.Nodes()...)
	c.Start()
	for _, g := range groups {
		w := watchLeaders(t, c.Nodes(), g)
		if again := createAtOnce(t, c.Nodes(), g, specs); !equalSpecs(specs[again], specs[won[g]]) {
			t.Errorf("group %d was created as %v, and again as %v", g, specs[won[g]], specs[again])
		}
		wantKeys(t, c, g, "node-1", "node-2", "node-3")
		w.check(t)
	}
	verifyDisks(t, c, where)
}

// createAtOnce creates a group with all the specs at once, through the nodes in turn,
// and returns which of them it has.
func createAtOnce(
	t *testing.T, nodes []*cluster.Node, g raftyard.GroupID, specs []client.Spec,
) int {
	t.Helper()
	answers := make([]cluster.Answer, len(specs))
	var wg sync.WaitGroup
	for i := range specs {
		wg.Go(func() { answers[i] = nodes[i%len(nodes)].Create(t.Context(), g, specs[i]) })
	}
	wg.Wait()
	won := slices.IndexFunc(answers, func(a cluster.Answer) bool {
		return a.Outcome == cluster.Applied
	})
	if won < 0 {
		t.Fatalf("group %d: nobody could create it: %v", g, answers)
	}
	created := 0
	for i, a := range answers {
		same := equalSpecs(specs[i], specs[won])
		if same != (a.Outcome == cluster.Applied) || !same && a.Why != client.CodeGroupExists {
			t.Errorf("group %d: it has %v; with %v: %v", g, specs[won].Voters, specs[i].Voters, a)
		}
		if a.Status == http.StatusCreated {
			created++
		}
	}
	if created > 1 {
		t.Errorf("group %d: %d callers were told that they have created it", g, created)
	}
	return won
}

func equalSpecs(a, b client.Spec) bool { return slices.Equal(a.Voters, b.Voters) }

// TestNonsenseGroups asks for groups that cannot be.
func TestNonsenseGroups(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Config{})
	c.Start()
	nowhere := kvGroup()
	both := kvGroup(1, 2)
	both.Learners = []raftyard.NodeID{2}
	unknown := kvGroup(1)
	unknown.Kind = "unknown"
	tests := []struct {
		name string
		g    raftyard.GroupID
		spec client.Spec
	}{
		{"the system group's id", 0, kvGroup(1, 2, 3)},
		{"no voters", 1, nowhere},
		{"a node twice", 1, kvGroup(1, 2, 2)},
		{"a node that is voter and learner", 1, both},
		{"node 0", 1, kvGroup(0, 1)},
		{"a node that nobody knows", 1, kvGroup(1, 2, 9)},
		{"only a node that nobody knows", 1, kvGroup(9)},
		{"a kind that nobody knows", 1, unknown},
	}
	for _, tt := range tests {
		for _, n := range c.Nodes() {
			a := n.Create(t.Context(), tt.g, tt.spec)
			if a.Status != http.StatusBadRequest || a.Outcome != cluster.NotApplied {
				t.Errorf("%s, asked of node %d: status %d, %v; want 400, not applied",
					tt.name, n.ID(), a.Status, a)
			}
		}
	}
	for _, n := range c.Nodes() {
		var page client.Groups
		err := n.Get(t.Context(), "/v1/groups", nil, &page)
		if err = cmp.Or(err, want(len(page.Groups) == 0, "it lists %v", page.Groups)); err != nil {
			t.Errorf("node %d: %v", n.ID(), err)
		}
		if lines := n.LogLines("panic"); len(lines) > 0 {
			t.Error(strings.Join(lines, "\n"))
		}
	}
}
