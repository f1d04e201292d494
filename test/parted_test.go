//go:build unix

package test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// A parted is a cluster of three nodes that can be parted, with some groups that
// all of them are members of.
type parted struct {
	*cluster.Cluster
	groups []raftyard.GroupID
}

func newParted(t *testing.T, groups int) *parted {
	t.Helper()
	p := &parted{
		Cluster: cluster.New(t, cluster.Config{Links: true}), groups: groupIDs(groups),
	}
	p.Start()
	createGroups(t, p.Nodes(), p.groups, kvGroup(1, 2, 3))
	return p
}

// roles returns who leads a group, and the others.
func (p *parted) roles(t *testing.T, g raftyard.GroupID) (*cluster.Node, []*cluster.Node) {
	t.Helper()
	var leader *cluster.Node
	var others []*cluster.Node
	cluster.Eventually(t, startLimit, "there is a leader", func() error {
		leader, others = nil, nil
		for _, n := range p.Nodes() {
			r, err := n.Raft(t.Context(), g)
			if err != nil {
				return err
			}
			if r.Role == "leader" {
				leader = n
			} else {
				others = append(others, n)
			}
		}
		return want(leader != nil && len(others) == 2, "group %d has no leader", g)
	})
	return leader, others
}

// awaitOtherLeader waits until a node knows another leader of a group than before.
func awaitOtherLeader(
	t *testing.T, n *cluster.Node, g raftyard.GroupID, before cluster.Raft,
) {
	t.Helper()
	cluster.Eventually(t, startLimit, "there is another leader", func() error {
		r, err := n.Raft(t.Context(), g)
		if err != nil {
			return err
		}
		return want(r.Leader != 0 && r.Leader != before.Leader, "the leader is %d", r.Leader)
	})
}

// raftOf returns a node's view of a group.
func raftOf(t *testing.T, n *cluster.Node, g raftyard.GroupID) cluster.Raft {
	t.Helper()
	r, err := n.Raft(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A burst is many writes at once, each of a key of its own.
type burst struct {
	group raftyard.GroupID

	mu      sync.Mutex
	answers map[string]cluster.Answer // by key
	longest time.Duration
}

// write has many clients write through a node at the same time.
func (b *burst) write(ctx context.Context, wg *sync.WaitGroup, n *cluster.Node, writes int) {
	for i := range writes {
		wg.Go(func() {
			key := fmt.Sprintf("node%d/%03d", n.ID(), i)
			begun := time.Now()
			a := n.Do(ctx, cluster.Request{
				Method: http.MethodPut, Path: cluster.KeyPath(b.group, key), Body: []byte(key),
			})
			took := time.Since(begun)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.answers[key], b.longest = a, max(b.longest, took)
		})
	}
}

// check holds the nodes to what they have answered: in time, with a named outcome,
// and truly. For some of the time a node may have been frozen.
func (b *burst) check(t *testing.T, nodes []*cluster.Node, frozen time.Duration) {
	t.Helper()
	const deadline = 10 * time.Second
	grace := time.Second + frozen
	counts := make(map[string]int)
	there := make(map[string]bool)
	err := nodes[0].List(t.Context(), b.group, client.Linearizable, func(item client.Item) {
		there[string(item.Key)] = true
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, a := range b.answers {
		counts[fmt.Sprintf("%v %s", a.Outcome, a.Why)]++
		switch {
		case a.Malformed, a.Why == "no_answer":
			t.Errorf("%s: %v: no answer, or none that a node may give", key, a.Err)
		case a.Outcome == cluster.Applied && !there[key]:
			t.Errorf("%s is acknowledged, and not there", key)
		case a.Outcome == cluster.NotApplied && there[key]:
			t.Errorf("%s is refused (%v), and there", key, a)
		}
	}
	t.Logf("%d writes: %v; the longest took %.2fs", len(b.answers), counts, b.longest.Seconds())
	if b.longest > deadline+grace {
		t.Errorf("a write took %v, its deadline was %v", b.longest, deadline)
	}
	for _, n := range nodes {
		cluster.Eventually(t, settleLimit, "nothing waits any more", func() error {
			r, err := n.Raft(t.Context(), b.group)
			return cmp.Or(err, want(r.Queued+r.Inflight+r.WaitingReads == 0,
				"node %d: %d queued, %d in flight, %d reads",
				n.ID(), r.Queued, r.Inflight, r.WaitingReads))
		})
	}
}

// TestWritesAroundLeaderLoss kills a leader, or cuts it off, and at once sends many
// writes to every node that can be asked. Each must end within its deadline and say
// how, and nothing may wait afterwards.
func TestWritesAroundLeaderLoss(t *testing.T) {
	p := newParted(t, 1)
	g := p.groups[0]
	const writes = 100
	losses := []struct {
		name  string
		lose  func(leader *cluster.Node, others []*cluster.Node)
		asked func(leader *cluster.Node, others []*cluster.Node) []*cluster.Node
		mend  func(leader *cluster.Node)
		// brief: mended as soon as another leader writes, so that what waits at the old
		// one is replaced in its log before its clients give up.
		brief bool
	}{
		{"killed", kill, others, (*cluster.Node).Start, false},
		{"cut off", p.cutOff, everybody, p.heal, false},
		{"cut off briefly", p.cutOff, everybody, p.heal, true},
		{"frozen", freeze, others, (*cluster.Node).Thaw, false},
		{"frozen briefly", freeze, everybody, (*cluster.Node).Thaw, true},
	}
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			if loss.name == "cut off" {
				cluster.Long(t) // some wait until their deadline
			}
			leader, others := p.roles(t, g)
			b := &burst{group: g, answers: make(map[string]cluster.Answer)}
			var wg sync.WaitGroup
			before := raftOf(t, others[0], g)
			begun, lost := time.Now(), time.Duration(0)
			loss.lose(leader, others)
			for _, n := range loss.asked(leader, others) {
				b.write(t.Context(), &wg, n, writes)
			}
			if loss.brief {
				awaitOtherLeader(t, others[0], g, before)
				if err := put(t, others[0], g, "replaces", []byte("what waits")); err != nil {
					t.Error(err)
				}
				loss.mend(leader)
				lost = time.Since(begun)
				wg.Wait()
			} else {
				wg.Wait()
				loss.mend(leader)
			}
			p.AwaitReady(startLimit)
			verifyHashes(t, p.Nodes(), p.groups)
			b.check(t, p.Nodes(), lost)
			emptyGroup(t, p.Node(1), g)
		})
	}
}

// These say how a leader is lost, and who is asked then.

func kill(leader *cluster.Node, _ []*cluster.Node) { leader.Kill() }

func freeze(leader *cluster.Node, _ []*cluster.Node) { leader.Freeze() }

func (p *parted) cutOff(leader *cluster.Node, others []*cluster.Node) {
	p.Network().Set(cluster.Condition{Cut: true},
		cluster.Between(ids([]*cluster.Node{leader}), ids(others))...)
}

func (p *parted) heal(*cluster.Node) { p.Network().Heal() }

func others(_ *cluster.Node, others []*cluster.Node) []*cluster.Node { return others }

func everybody(leader *cluster.Node, others []*cluster.Node) []*cluster.Node {
	return append(slices.Clone(others), leader)
}

// emptyGroup deletes every key.
func emptyGroup(t *testing.T, n *cluster.Node, g raftyard.GroupID) {
	t.Helper()
	var keys []string
	err := n.List(t.Context(), g, client.Linearizable, func(item client.Item) {
		keys = append(keys, string(item.Key))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		a := n.Do(t.Context(), cluster.Request{
			Method: http.MethodDelete, Path: cluster.KeyPath(g, key),
		})
		if a.Error() != nil {
			t.Fatal(a)
		}
	}
}
