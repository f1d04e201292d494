package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// flipInLog changes one bit of what a table of a node's log store holds, while it runs.
func (c *cluster) flipInLog(id raftyard.NodeID, what string) (file string) {
	c.t.Helper()
	c.eventually("it is in a table", func() bool {
		paths, err := filepath.Glob(filepath.Join(c.dir, id.String(), "log", "*.sst"))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			at := bytes.Index(b, []byte(what))
			if err != nil || at < 0 {
				continue
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				c.t.Fatal(err)
			}
			_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
			if err = errors.Join(err, f.Close()); err != nil {
				c.t.Fatal(err)
			}
			file = filepath.Base(path)
			return true
		}
		runtime.Gosched()
		return false
	})
	return file
}

// TestRotIsFoundAndReplaced: a table of a node that runs is damaged, and nobody reads what is
// in it. The replica whose entry it was is replaced, and every node says which file it is.
func TestRotIsFoundAndReplaced(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2, 3)
	c.add(1, 1, "a-word-that-rots")
	c.add(1, 2, "b")
	c.awaitReady(1, 2, 3)
	c.eventually("node 3 has it", func() bool {
		return slices.Equal(c.stale(3, 1), []string{"a-word-that-rots"})
	})
	c.close(3)
	c.open(3, nil) // its memtable is a table now
	c.awaitReady(3)
	before := c.ids(3)
	file := c.flipInLog(3, "a-word-that-rots")
	if err := c.nodes[3].store.Scrub(); err != nil {
		t.Fatal(err)
	}
	c.rebuilt(1, 3, 1, before[1])
	c.wantWords(3, 1, "a-word-that-rots")
	c.wantWords(3, 2, "b")
	if now := c.ids(3); now[2] != before[2] || now[0] != before[0] {
		t.Errorf("the replicas were %v and are %v: others were replaced, too", before, now)
	}
	for _, at := range []raftyard.NodeID{1, 3} {
		st, err := c.nodes[at].NodeStatus(t.Context(), 3)
		if err != nil || !strings.Contains(st.Problem, "log/"+file+" ") ||
			!strings.Contains(st.Problem, "empty its data directory") {
			t.Errorf("node %d says of node 3: %q, %v; want that %s is damaged",
				at, st.Problem, err, file)
		}
		if other, err := c.nodes[at].NodeStatus(t.Context(), 2); err != nil || other.Problem != "" {
			t.Errorf("node %d says of node 2: %q, %v", at, other.Problem, err)
		}
	}
	if m := c.nodes[3].Metrics(); len(m.LogUpkeep.Damaged) != 1 || m.LogUpkeep.Scrubs == 0 {
		t.Errorf("its metrics have %+v", m.LogUpkeep)
	}
}

// brittleCluster has a group 1 whose state machines rot when they are told to, and words that a
// follower has, which is returned.
func brittleCluster(t *testing.T, words ...string) (c *cluster, follower raftyard.NodeID) {
	t.Helper()
	c = newCluster(t, 3)
	c.createSpec(Spec{ID: 1, Kind: "brittle", Voters: []raftyard.NodeID{1, 2, 3}})
	c.add(1, 1, words...)
	follower = c.leader(1)%3 + 1
	c.eventually("the replica follows", func() bool {
		return slices.Equal(c.stale(follower, 1), words)
	})
	return c, follower
}

// awaitAnotherState waits until a node's replica of group 1 has been opened anew, and has words.
func (c *cluster) awaitAnotherState(at raftyard.NodeID, before *replica, words ...string) {
	c.t.Helper()
	c.eventually("it has another state", func() bool {
		r := c.nodes[at].replica(1)
		return r != nil && r != before && r.fault() == nil && r.isInitialized() &&
			slices.Equal(c.stale(at, 1), words)
	})
}

// TestRottenStateIsTakenFromAnother: a state machine that nobody asks says that what it has
// stored is damaged.
func TestRottenStateIsTakenFromAnother(t *testing.T) {
	c, at := brittleCluster(t, "a", "b")
	before := c.nodes[at].replica(1)
	c.rots[at].Store(true)
	c.awaitAnotherState(at, before, "a", "b")
	if now := c.nodes[at].replica(1); now.id != before.id {
		t.Errorf("replica %d is there, want %d: its log was sound", now.id, before.id)
	}
	if n := c.nodes[at].metrics.replicasStopped.Load(); n != 1 {
		t.Errorf("%d state machines were stopped, want 1", n)
	}
}

// TestRotWaitsOnce: the damage that is found again and again while the state machine is busy
// waits for its turn once.
func TestRotWaitsOnce(t *testing.T) {
	c, at := brittleCluster(t, "a")
	there, release := c.holdWord(at, "b")
	c.add(c.leader(1), 1, "b")
	<-there
	n, r := c.nodes[at], c.nodes[at].replica(1)
	before := r.machine.queued()
	for range 100 {
		n.stateRotten(r, errors.New("it has rotted"))
	}
	if now := r.machine.queued(); now != before+1 {
		t.Errorf("%d tasks wait, and %d did before the damage was found", now, before)
	}
	close(release)
	c.awaitAnotherState(at, r, "a", "b")
	if r.rotten.Load() {
		t.Error("what has had its turn is said to wait")
	}
}

// TestRotThatApplyFindsIsReplaced: a state machine comes upon damage when it applies a command,
// before anybody has asked it. It is not one that has failed by itself and waits for somebody.
func TestRotThatApplyFindsIsReplaced(t *testing.T) {
	c, at := brittleCluster(t, "a")
	before := c.nodes[at].replica(1)
	var once sync.Once
	hook := func(env group.Env, w string) {
		if env.Node == at && w == "b" {
			once.Do(func() {
				c.rots[at].Store(true)
				panic("a record has a wrong checksum")
			})
		}
	}
	c.onApply.Store(&hook)
	c.add(c.leader(1), 1, "b")
	c.awaitAnotherState(at, before, "a", "b")
	if now := c.nodes[at].replica(1); now.id != before.id {
		t.Errorf("replica %d is there, want %d: its log was sound", now.id, before.id)
	}
}
