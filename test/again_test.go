//go:build unix

package test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/test/cluster"
)

// changeLimit is how long a change of members may take, whatever is done to the node
// that comes and goes.
const changeLimit = 30 * time.Second

// TestComesAndGoes adds a node to a group and removes it, again and again, under writes
// that make each of its replicas begin with a snapshot, while the node is killed at
// random; once it is removed while its snapshot is on its way. Every change must end,
// and nothing may stay behind on the node.
func TestComesAndGoes(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	seed := chaosSeed(t)
	t.Logf("again with %s=%d", envChaosSeed, seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	c := cluster.New(t, cluster.Config{Nodes: 4, Links: true})
	c.Start()
	const g = 1
	spec := kvGroup(1, 2, 3)
	spec.SnapshotEntries, spec.TrailingEntries = 20, 5
	createGroups(t, c.Nodes(), []raftyard.GroupID{g}, spec)
	weight := make([]byte, 512<<10)
	for i := range weight {
		weight[i] = byte(dice.IntN(256)) // nothing that could be compressed
	}
	if err := put(t, c.Node(1), g, "weight", weight); err != nil {
		t.Fatal(err)
	}
	guest := c.Node(4)
	three, four := []raftyard.NodeID{1, 2, 3}, []raftyard.NodeID{1, 2, 3, 4}
	l := newLoad(loadSpec{
		nodes: c.Nodes()[:3], groups: []raftyard.GroupID{g}, clients: 4, keys: 100_000, size: 100,
	})
	l.start(t)
	l.grant(1, 1)
	rounds := cluster.Sized(10, 100)
	var slowest time.Duration
	var last raftyard.ReplicaID
	for round := range rounds {
		l.awaitApplied(t, 20)
		kill := dice.IntN(3) == 0
		slowest = max(slowest, setMembers(t, c, g, four, func() {
			if kill {
				strike(t, guest, dice)
			}
		}))
		awaitPlaced(t, c.Nodes(), g, four)
		now := raftOf(t, guest, g).Replica.Replica
		if now <= last {
			t.Errorf("round %d: node 4 has replica %d; the one before was %d", round, now, last)
		}
		last = now
		kill = dice.IntN(3) == 0
		slowest = max(slowest, setMembers(t, c, g, three, func() {
			if kill {
				strike(t, guest, dice)
			}
		}))
		awaitPlaced(t, c.Nodes(), g, three)
	}
	t.Logf("%d rounds; the slowest change took %.2fs", rounds, slowest.Seconds())
	removedInTransfer(t, c, g)
	l.end()
	t.Log(l.tally)
	l.tally.check(t)
	l.verifyLists(t, c.Nodes(), "weight")
	verifyHashes(t, c.Nodes()[:3], []raftyard.GroupID{g})
	verifyDisks(t, c, placed{g: three})
}

// setMembers changes the members of a group, does something meanwhile, and returns how
// long the change took.
func setMembers(
	t *testing.T, c *cluster.Cluster, g raftyard.GroupID, voters []raftyard.NodeID,
	meanwhile func(),
) time.Duration {
	t.Helper()
	answer := make(chan cluster.Answer, 1)
	begun := time.Now()
	go func() {
		m := client.Members{Voters: voters}
		answer <- c.Node(1).SetMembers(t.Context(), g, m, changeLimit)
	}()
	meanwhile()
	if a := <-answer; a.Error() != nil {
		t.Fatalf("voters %v: %v", voters, a)
	}
	return time.Since(begun)
}

// strike kills a node at some moment of a change, and starts it.
func strike(t *testing.T, n *cluster.Node, dice *rand.Rand) {
	t.Helper()
	lapse(t, 0, time.Duration(1+dice.IntN(80))*time.Millisecond)
	n.Kill()
	n.Start()
}

// removedInTransfer adds node 4 over a link that is so slow that its snapshot takes
// seconds, and takes that back meanwhile.
func removedInTransfer(t *testing.T, c *cluster.Cluster, g raftyard.GroupID) {
	t.Helper()
	slow := cluster.Condition{BytesPerSecond: 1_000_000 / 8}
	rest := []raftyard.NodeID{1, 2, 3}
	c.Network().Set(slow, cluster.Towards(rest, []raftyard.NodeID{4})...)
	members := client.Members{Voters: []raftyard.NodeID{1, 2, 3, 4}}
	a := c.Node(1).SetMembers(t.Context(), g, members, time.Second)
	if a.Outcome != cluster.Unknown || a.Why != client.CodeNotReached {
		t.Errorf("a member that cannot be there yet: %v", a)
	}
	cluster.Eventually(t, startLimit, "its snapshot is on its way", func() error {
		for _, p := range raftOf(t, leaderOf(t, c.Nodes()[:3], g), g).Progress {
			if p.Node == 4 && p.State == "snapshot" {
				return nil
			}
		}
		return errors.New("it is not")
	})
	begun := time.Now()
	members.Voters = rest
	if a = c.Node(2).SetMembers(t.Context(), g, members, changeLimit); a.Error() != nil {
		t.Errorf("take it back: %v", a)
	}
	t.Logf("taken back in %.2fs while its snapshot was on its way", time.Since(begun).Seconds())
	c.Network().Heal()
	awaitPlaced(t, c.Nodes(), g, rest)
}
