package node

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// editStore changes the log store of a node that is down.
func (c *cluster) editStore(id raftyard.NodeID, edit func(*storage.Batch)) {
	c.t.Helper()
	s, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, id.String()), Cluster: c.anyNode().cluster, Node: id,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	b := s.NewBatch()
	edit(b)
	if err := errors.Join(b.Commit(), s.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// rebuilt waits until a node has another voting replica of a group than before, and that
// serves.
func (c *cluster) rebuilt(at, id raftyard.NodeID, g raftyard.GroupID, old raftyard.ReplicaID) {
	c.t.Helper()
	c.eventually("its replica is replaced", func() bool {
		m, r := c.member(at, g, id), c.nodes[id].replica(g)
		return m.Role == group.Voter && m.ID > old && r != nil && r.serving() && r.id == m.ID &&
			r.view.Load().initialized()
	})
}

// TestDamagedReplicaIsRebuilt: one replica of a node has lost something. It is silent, and
// another one comes in its place, while the other groups go on as ever.
func TestDamagedReplicaIsRebuilt(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.create(2, 1, 2, 3)
	c.add(1, 1, "a")
	c.add(1, 2, "b")
	c.eventually("all is well", func() bool { return len(c.problems(1, 1)) == 0 })
	before := c.ids(3)
	c.close(3)
	c.editStore(3, func(b *storage.Batch) { b.MarkDamaged(1, "somebody knows better") })
	c.add(1, 1, "c")
	c.open(3, nil)
	if r := c.nodes[3].replica(1); r.id == before[1] && r.serving() {
		t.Error("the damaged replica serves")
	}
	c.rebuilt(1, 3, 1, before[1])
	c.wantWords(3, 1, "a", "c")
	c.wantWords(3, 2, "b")
	if now := c.ids(3); now[2] != before[2] || now[0] != before[0] {
		t.Errorf("the replicas were %v and are %v: others were replaced, too", before, now)
	}
	c.eventually("all is well again", func() bool { return len(c.problems(1, 1)) == 0 })
	c.close(2) // the new one counts
	c.add(1, 1, "d")
	c.wantWords(3, 1, "a", "c", "d")
}

// TestDamagedSystemReplicaIsRebuilt: the node starts without the registry, and gets it
// back.
func TestDamagedSystemReplicaIsRebuilt(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.awaitReady(1, 2, 3)
	before := c.ids(3)
	c.close(3)
	c.editStore(3, func(b *storage.Batch) {
		b.MarkDamaged(raftyard.SystemGroup, "somebody knows better")
	})
	c.open(3, nil)
	c.rebuilt(1, 3, raftyard.SystemGroup, before[0])
	c.awaitReady(3)
	c.wantWords(3, 1, "a")
	if now := c.ids(3); now[1] != before[1] {
		t.Errorf("the replicas were %v and are %v: others were replaced, too", before, now)
	}
}

// TestOnlyCopyStays: nobody has what a damaged replica had, which is alone.
func TestOnlyCopyStays(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 2)
	c.create(2, 1, 2)
	c.add(2, 1, "a")
	c.add(2, 2, "b")
	c.close(2)
	c.editStore(2, func(b *storage.Batch) { b.MarkDamaged(1, "somebody knows better") })
	c.open(2, nil)
	c.add(2, 2, "c")
	c.eventually("it is shown as damaged", func() bool {
		return slices.Contains(c.problems(1, 1), "damaged")
	})
	q := c.status(2, 1).Quarantine
	if q == nil || q.Reason != DamagedLog || !strings.Contains(q.Detail, "knows better") {
		t.Errorf("its quarantine is %+v", q)
	}
	_, err := c.nodes[1].RebuildReplica(t.Context(), 1, 2)
	if !errors.Is(err, ErrUnhealthy) {
		t.Errorf("RebuildReplica of the only copy = %v, want ErrUnhealthy", err)
	}
	c.nodes[2].stopReplica(c.nodes[2].replica(2), faulty(RaftPanicked, errors.New("out of joint")))
	_, err = c.nodes[1].RebuildReplica(t.Context(), 2, 2)
	if !errors.Is(err, ErrUnhealthy) {
		t.Errorf("RebuildReplica of one of two = %v, want ErrUnhealthy", err)
	}
	if c.nodes[2].isDamaged(c.nodes[2].replica(2)) {
		t.Error("a replica that could not be replaced is given up")
	}
}

// TestOnlyNodeDoesNotStart: a cluster of one node that has lost its registry.
func TestOnlyNodeDoesNotStart(t *testing.T) {
	c := newCluster(t, 1)
	c.leader(0)
	cluster := c.nodes[1].cluster
	c.close(1)
	s, err := storage.Open(storage.Options{
		Dir: filepath.Join(c.dir, "1"), Cluster: cluster, Node: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	b.MarkDamaged(raftyard.SystemGroup, "somebody knows better")
	if err = errors.Join(b.Commit(), s.Close()); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), c.config(1, nil))
	if err == nil {
		err = errors.Join(errors.New("it starts"), n.Close(t.Context()))
	}
	if !strings.Contains(err.Error(), "knows better") {
		t.Errorf("Open = %v, want what is damaged", err)
	}
}

// TestStoppedReplicaIsReplaced: somebody wants a replica to be rebuilt that has broken an
// invariant and takes no part any more. Its log cannot be trusted either.
func TestStoppedReplicaIsReplaced(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2, 3)
	c.add(1, 1, "a")
	c.eventually("all is well", func() bool { return len(c.problems(1, 1)) == 0 })
	at := c.leader(1)
	other := at%3 + 1
	old := c.ids(at)[1]
	fault := faulty(RaftPanicked, errors.New("out of joint"))
	c.nodes[at].stopReplica(c.nodes[at].replica(1), fault)
	c.add(other, 1, "b")
	st, err := c.nodes[other].RebuildReplica(t.Context(), 1, at)
	if err != nil || st.Replica <= old {
		t.Fatalf("RebuildReplica = %+v, %v; want another replica than %d", st, err, old)
	}
	c.rebuilt(other, at, 1, old)
	c.wantWords(at, 1, "a", "b")
}
