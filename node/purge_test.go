package node

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/raftyard/raftyard"
)

// notes are the files in which a node has set something aside.
func (c *cluster) notes(id raftyard.NodeID) (names []string) {
	c.t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, id.String(), replicasName))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), noteSuffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestPurgeIsTriedAgain has a state machine fail to delete what it stored.
func TestPurgeIsTriedAgain(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	c.failDestroy.Store(2)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.eventually("it is purged", func() bool {
		st, ok := c.nodes[1].store.Replica(1)
		return ok && st.Tombstone != nil && st.Tombstone.Purged
	})
	if got := c.destroyed.Load(); got != 1 {
		t.Errorf("Destroy succeeded %d times, want once", got)
	}
}

// TestPurgeThatFailsHoldsUpNobody creates a group again on a node that cannot delete
// what the old one stored, and restarts the node; at last the old state goes.
func TestPurgeThatFailsHoldsUpNobody(t *testing.T) {
	c := newCluster(t, 1)
	spec := Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}}
	c.createSpec(spec)
	c.add(1, 1, "old")
	c.failDestroy.Store(1 << 20)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.createSpec(spec)
	c.add(1, 1, "new")
	c.wantWords(1, 1, "new")
	if got := c.notes(1); len(got) != 1 {
		t.Errorf("notes %q, want one of what is left", got)
	}
	for range 2 {
		c.close(1)
		c.open(1, nil)
		c.wantWords(1, 1, "new")
	}
	if got := c.nodes[1].leftovers(1); got != 1 {
		t.Errorf("%d leftovers are known after a restart, want 1", got)
	}
	c.failDestroy.Store(0)
	c.eventually("the old state is deleted", func() bool {
		return c.nodes[1].leftovers(1) == 0 && len(c.notes(1)) == 0
	})
	c.wantWords(1, 1, "new")
	if got := c.destroyed.Load(); got != 1 {
		t.Errorf("Destroy succeeded %d times, want once", got)
	}
}

func TestLeftoverRoundTrip(t *testing.T) {
	want := sampleLeftover()
	b := want.encode()
	if got, err := decodeLeftover(b); err != nil || got != want {
		t.Errorf("decodeLeftover(encode(%+v)) = %+v, %v", want, got, err)
	}
	for i := range b {
		if _, err := decodeLeftover(b[:i]); err == nil {
			t.Errorf("decodeLeftover of the first %d of %d bytes succeeded", i, len(b))
		}
		b[i] ^= 4
		if _, err := decodeLeftover(b); err == nil {
			t.Errorf("decodeLeftover with byte %d changed succeeded", i)
		}
		b[i] ^= 4
	}
	grave := sampleGrave()
	if got, err := decodeRemains(grave.encode()); err != nil || !reflect.DeepEqual(got, grave) {
		t.Errorf("decodeRemains(encode(%+v)) = %+v, %v", grave, got, err)
	}
}

// TestHalfDeletedIsNotOpened has a node start on what a purge that was interrupted has
// left of a directory. It goes, and no state machine is asked about it.
func TestHalfDeletedIsNotOpened(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	c.add(1, 1, "old")
	st, _ := c.nodes[1].store.Replica(1)
	dir := c.nodes[1].env(st).Dir
	c.failDestroy.Store(1 << 20)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.close(1)
	failures := 1<<20 - c.failDestroy.Load()
	for _, d := range []string{dir, dir + removedSuffix} {
		if err := os.RemoveAll(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir+removedSuffix, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir+removedSuffix, "half"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.open(1, nil)
	c.eventually("it is purged", func() bool {
		st, ok := c.nodes[1].store.Replica(1)
		return ok && st.Tombstone != nil && st.Tombstone.Purged
	})
	if _, err := os.Stat(dir + removedSuffix); !os.IsNotExist(err) {
		t.Errorf("what was left is still there: %v", err)
	}
	if got := 1<<20 - c.failDestroy.Load(); got != failures {
		t.Errorf("a state machine was asked to destroy what is left %d times", got-failures)
	}
}

// TestSnapshotsOfADestroyedReplicaGo has a state machine that cannot be destroyed. What
// the node itself has put beside it does not wait for that.
func TestSnapshotsOfADestroyedReplicaGo(t *testing.T) {
	c := newCluster(t, 1)
	c.createSpec(Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}})
	st, _ := c.nodes[1].store.Replica(1)
	dir := c.nodes[1].env(st).Dir
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{snapshotPrefix + "1", incomingPrefix + "2", "machine"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.failDestroy.Store(1 << 20)
	if err := c.nodes[1].DeleteGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var left []string
	c.eventually("the snapshots are deleted", func() bool {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		left = nil
		for _, e := range entries {
			left = append(left, e.Name())
		}
		return len(left) < 3 && c.failDestroy.Load() < 1<<20-1
	})
	if len(left) != 1 || left[0] != "machine" {
		t.Errorf("left are %q, want what is the state machine's alone", left)
	}
}
