package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/transport"
)

// newLogOnlyCluster makes a cluster in which some nodes know no kind.
func newLogOnlyCluster(t *testing.T, count int, lack ...raftyard.NodeID) *cluster {
	t.Helper()
	net := transport.NewMemory(1)
	c := &cluster{
		t: t, dir: t.TempDir(), nodes: make(map[raftyard.NodeID]*Node), net: net,
		lacks: make(map[raftyard.NodeID]bool),
	}
	for _, id := range lack {
		c.lacks[id] = true
	}
	for i := range count {
		id := raftyard.NodeID(i + 1)
		c.peers = append(c.peers, Peer{ID: id, Addr: transport.MemoryAddr(id)})
	}
	for _, p := range c.peers {
		c.open(p.ID, nil)
	}
	t.Cleanup(c.closeAll)
	return c
}

// status returns raft's view of a group on a node.
func (c *cluster) status(id raftyard.NodeID, g raftyard.GroupID) RaftStatus {
	c.t.Helper()
	st, err := c.nodes[id].RaftStatus(c.t.Context(), g)
	if err != nil {
		c.t.Fatal(err)
	}
	return st
}

// write adds count words to group 1 at a node and appends them to want.
func (c *cluster) write(at raftyard.NodeID, want *[]string, count int) {
	c.t.Helper()
	for range count {
		w := fmt.Sprint("w", len(*want))
		c.add(at, 1, w)
		*want = append(*want, w)
	}
}

// ledBy waits until a node leads group 1.
func (c *cluster) ledBy(id raftyard.NodeID) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("node %d leads", id), func() bool {
		leader, ok := c.nodes[id].Leader(1)
		return ok && leader == id
	})
}

// snapshotFiles lists the files of a node's replica of group 1.
func (c *cluster) snapshotFiles(id raftyard.NodeID) []string {
	c.t.Helper()
	entries, err := os.ReadDir(c.nodes[id].replica(1).machine.env.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ownsBeyond reports whether a node's replica owns a state of an index or a later one, and
// has cut its log behind it.
func (c *cluster) ownsBeyond(id raftyard.NodeID, g raftyard.GroupID, index uint64) bool {
	st := c.status(id, g)
	return st.LogOnly && st.Snapshot >= index && st.First > index/2
}

// TestLogOnlyMajority: two of three replicas have no state machine.
func TestLogOnlyMajority(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"list", "kept"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testLogOnlyMajority(t, kind)
		})
	}
}

func testLogOnlyMajority(t *testing.T, kind string) {
	c := newLogOnlyCluster(t, 3, 2, 3)
	c.createSpec(Spec{
		ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	c.ledBy(1)
	var want []string
	for round := range 4 {
		c.write(raftyard.NodeID(round%3+1), &want, 30)
		for _, id := range []raftyard.NodeID{2, 3} {
			c.eventually("the log is cut", func() bool {
				st := c.status(id, 1)
				return st.LogOnly && int(st.Snapshot) > round*30 && st.Last-st.First < 60
			})
			c.eventually("one file is left", func() bool {
				return len(c.snapshotFiles(id)) == 1
			})
		}
	}
	for id := range raftyard.NodeID(3) {
		c.wantWords(id+1, 1, want...)
	}
	st, err := c.nodes[2].Group(t.Context(), 1)
	if err != nil || len(st.Problems) != 0 || st.Replicas[0].LogOnly || !st.Replicas[1].LogOnly {
		t.Errorf("Group = %+v, %v; want no problems, and two log-only replicas", st, err)
	}
	nodes := c.nodes[2].Nodes(t.Context())
	for i := range nodes {
		if want := min(i, 1); nodes[i].LogOnly != want {
			t.Errorf("node %d has %d log-only replicas, want %d", i+1, nodes[i].LogOnly, want)
		}
	}

	// Without the one that has the state there is a leader, and nobody who could answer.
	c.close(1)
	c.eventually("a log-only replica leads", func() bool {
		st, err := c.nodes[2].Group(t.Context(), 1)
		return err == nil && slices.Contains(st.Problems, "log_only_leader")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.nodes[2].Propose(ctx, 1, []byte("x")); !errors.Is(err, ErrNoState) ||
		!NotApplied(err) {
		t.Errorf("Propose = %v, want ErrNoState", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.nodes[3].Query(ctx, 1, Linearizable, nil); !errors.Is(err, ErrNoState) {
		t.Errorf("Query = %v, want ErrNoState", err)
	}

	c.open(1, nil)
	c.ledBy(1)
	c.write(3, &want, 30)
	for id := range raftyard.NodeID(3) {
		c.wantWords(id+1, 1, want...)
	}
}

// TestStateRebuiltFromLogOnly loses the only replica with a state machine. Another node
// gets the state from those that kept it in a file, and one of those becomes a full replica.
func TestStateRebuiltFromLogOnly(t *testing.T) {
	t.Parallel()
	c := newLogOnlyCluster(t, 5, 2, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	var want []string
	c.write(4, &want, 100)
	for _, id := range []raftyard.NodeID{2, 3} {
		c.eventually("the log is cut", func() bool { return c.ownsBeyond(id, 1, 60) })
	}
	c.write(4, &want, 3)
	c.close(1)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err := c.nodes[2].SetMembers(ctx, 1, Members{Voters: []raftyard.NodeID{2, 3, 4}}, true)
	if err != nil {
		t.Fatalf("SetMembers = %v", err)
	}
	c.ledBy(4)
	for _, id := range []raftyard.NodeID{2, 3, 4} {
		c.wantWords(id, 1, want...)
	}
	if got := c.nodes[4].Metrics().SnapshotsInstalled; got == 0 {
		t.Error("node 4 has the state without a snapshot; the logs were not cut")
	}

	c.close(4)
	c.close(2)
	c.lacks[2] = false
	c.open(2, nil)
	c.ledBy(2)
	for _, id := range []raftyard.NodeID{2, 3} {
		c.wantWords(id, 1, want...)
	}
	c.write(3, &want, 50)
	c.open(4, nil)
	c.wantWords(4, 1, want...)
}

// keptBy returns what state machines of a node have stored outside of their directories.
func (c *cluster) keptBy(id raftyard.NodeID) string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "kept", fmt.Sprintf("%d-*", id)))
	if err != nil {
		c.t.Fatal(err)
	}
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			c.t.Fatal(err)
		}
		all = fmt.Appendf(all, "%s:\n%s\n", filepath.Base(f), b)
	}
	return string(all)
}

// TestKindComesAndGoes: a state machine that keeps its own state sleeps while the log is
// cut beyond what it has, and wakes up.
func TestKindComesAndGoes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"list", "kept"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newLogOnlyCluster(t, 3)
			c.createSpec(Spec{
				ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3},
				SnapshotEntries: 20, TrailingEntries: 5,
			})
			var want []string
			c.write(1, &want, 30)
			for round := range 3 {
				c.close(3)
				asleep := c.keptBy(3)
				c.lacks[3] = true
				c.open(3, nil)
				before := c.status(3, 1).Applied
				// It comes by a state of its own though nothing is written.
				c.eventually("it owns a state", func() bool {
					return len(c.snapshotFiles(3)) == 1
				})
				if round > 0 {
					c.write(2, &want, 45)
					c.eventually("the log is cut", func() bool {
						return c.status(3, 1).First > before+20
					})
				}
				if now := c.keptBy(3); now != asleep {
					t.Errorf("the state that sleeps was %q, is %q", asleep, now)
				}
				c.write(1, &want, 3)
				c.close(3)
				c.lacks[3] = false
				c.open(3, nil)
				c.eventually("it has caught up", func() bool {
					words, err := c.nodes[3].Query(t.Context(), 1, Stale, nil)
					return err == nil && string(words) == strings.Join(want, "\n")
				})
				if st := c.status(3, 1); st.LogOnly {
					t.Error("a replica with a state machine is shown as log-only")
				}
			}
			for id := range raftyard.NodeID(3) {
				c.wantWords(id+1, 1, want...)
			}
		})
	}
}

// TestStateOfAnotherMachineIsMissed opens a group whose state a durable state machine had
// with one that keeps nothing: it must not begin empty.
func TestStateOfAnotherMachineIsMissed(t *testing.T) {
	c := newCluster(t, 1)
	c.create(1, 1)
	c.add(1, 1, "a", "b")
	cluster := c.nodes[1].cluster
	c.close(1)
	editMeta(t, c, cluster, func(m *meta) {
		m.Floor = floor{Index: m.Floor.Index, Term: m.Floor.Term, Machine: m.Floor.Index}
	})
	c.open(1, nil)
	if _, err := c.nodes[1].Query(t.Context(), 1, Stale, nil); !errors.Is(err, ErrFaulty) {
		t.Errorf("Query = %v, want ErrFaulty", err)
	}
}

// TestDamagedOwnStateIsReplaced changes a byte of the file that a log-only replica owns. A
// follower that needs it is not given it, and the replica asks for another.
func TestDamagedOwnStateIsReplaced(t *testing.T) {
	t.Parallel()
	c := newLogOnlyCluster(t, 4, 2, 3)
	c.createSpec(Spec{
		ID: 1, Kind: "list", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var want []string
	c.write(1, &want, 60)
	// From here on log-only replicas lead, and the state is with a learner.
	if _, err := c.nodes[1].SetMembers(ctx, 1, Members{
		Voters: []raftyard.NodeID{2, 3}, Learners: []raftyard.NodeID{1},
	}, true); err != nil {
		t.Fatal(err)
	}
	before := make(map[raftyard.NodeID]string)
	for _, id := range []raftyard.NodeID{2, 3} {
		c.eventually("the log is cut", func() bool {
			return c.ownsBeyond(id, 1, 40) && len(c.snapshotFiles(id)) == 1
		})
		before[id] = c.snapshotFiles(id)[0]
		path := filepath.Join(c.nodes[id].replica(1).machine.env.Dir, before[id])
		if err := os.WriteFile(path, []byte("rotten"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.attach(4, 4) // needs a snapshot
	c.wantWords(4, 1, want...)
	words, err := c.nodes[4].Query(ctx, 1, Stale, nil)
	if err != nil || string(words) != strings.Join(want, "\n") {
		t.Errorf("the new learner holds %q, %v", words, err)
	}
	leader := c.leader(1)
	if now := c.snapshotFiles(leader); slices.Contains(now, before[leader]) {
		t.Errorf("the leader, node %d, still owns %q", leader, now)
	}
}
