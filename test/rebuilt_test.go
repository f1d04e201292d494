//go:build unix

package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/badgerdb"
	"github.com/raftyard/raftyard/internal/kv"
	"github.com/raftyard/raftyard/test/cluster"
)

// rebuildLimit is how long it may take until another replica is in the place of a damaged
// one, and has caught up.
const rebuildLimit = 60 * time.Second

// TestDamagedReplicaIsRebuilt damages one group's log on one node in Badger, in a record
// and by taking the whole group away, while clients write. The node starts, says so, and
// the replica is replaced by itself. The other groups on the node keep theirs.
func TestDamagedReplicaIsRebuilt(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	c := cluster.New(t, cluster.Config{
		Tolerate: []string{"replica is damaged", "replica not started"},
	})
	c.Start()
	groups := groupIDs(4)
	createGroups(t, c.Nodes(), groups, kvGroup(1, 2, 3))
	l := newLoad(loadSpec{nodes: c.Nodes(), groups: groups, clients: 6, keys: 4000, size: 200})
	l.start(t)
	l.grant(1, 1)
	l.awaitApplied(t, 300)
	for round, damage := range []func(kv.DB, raftyard.GroupID) error{flipRecord, takeAway} {
		victim, n := groups[round], c.Node(3)
		before := replicasOn(t, n, groups)
		c.Kill(n)
		editLog(t, n, func(db kv.DB) error { return damage(db, victim) })
		began := time.Now()
		n.Start()
		n.AwaitReady(startLimit)
		cluster.Eventually(t, rebuildLimit, "the damaged replica is replaced", func() error {
			return rebuilt(t, c.Node(1), victim, n.ID(), before[victim])
		})
		t.Logf("replaced %v after the start", time.Since(began).Round(time.Millisecond))
		if len(n.LogLines("replica is damaged", fmt.Sprintf("group=%d", victim))) == 0 {
			t.Error("the log does not say that the replica is damaged")
		}
		after := replicasOn(t, n, groups)
		for _, g := range groups {
			if g != victim && after[g] != before[g] {
				t.Errorf("group %d had replica %d on the node, and has %d, though nothing "+
					"of it was damaged", g, before[g], after[g])
			}
		}
		l.awaitApplied(t, 200)
	}
	l.end()
	t.Log(l.tally)
	l.verifyLists(t, c.Nodes())
	l.verifyKeys(t, c.Nodes())
	verifyHashes(t, c.Nodes(), groups)
}

// replicasOn returns the ids of a node's replicas.
func replicasOn(
	t *testing.T, n *cluster.Node, groups []raftyard.GroupID,
) map[raftyard.GroupID]raftyard.ReplicaID {
	t.Helper()
	ids := make(map[raftyard.GroupID]raftyard.ReplicaID)
	for _, g := range groups {
		ids[g] = raftOf(t, n, g).Replica.Replica
	}
	return ids
}

// rebuilt returns why a group has not got another, voting replica on a node yet.
func rebuilt(
	t *testing.T, at *cluster.Node, g raftyard.GroupID, on raftyard.NodeID,
	old raftyard.ReplicaID,
) error {
	t.Helper()
	st, err := at.Group(t.Context(), g)
	if err != nil {
		return err
	}
	for _, m := range st.Members {
		if m.Node == on && (m.Replica == old || m.Role != "voter") {
			return fmt.Errorf("replica %d, %s, is on node %d", m.Replica, m.Role, on)
		}
	}
	return want(len(st.Problems) == 0, "problems %v", st.Problems)
}

// editLog changes the database with the logs of a node that does not run.
func editLog(t *testing.T, n *cluster.Node, edit func(kv.DB) error) {
	t.Helper()
	db, err := kv.OpenBadger(badgerdb.Options{
		Dir: filepath.Join(n.Dir(), "log"), Profile: badgerdb.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(edit(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// records returns the keys and values of a group; docs/formats/storage.md describes them.
func records(db kv.DB, g raftyard.GroupID) (keys, values [][]byte, err error) {
	prefix := binary.BigEndian.AppendUint64([]byte{'g'}, uint64(g))
	at := db.Snapshot()
	defer at.Discard()
	err = at.Scan(func(key, value []byte, _ uint64) error {
		if len(key) > len(prefix) && slices.Equal(key[:len(prefix)], prefix) {
			keys, values = append(keys, slices.Clone(key)), append(values, slices.Clone(value))
		}
		return nil
	})
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("nothing of group %d is there", g)
	}
	return keys, values, err
}

// flipRecord turns one bit around in the last record of a group's log.
func flipRecord(db kv.DB, g raftyard.GroupID) error {
	keys, values, err := records(db, g)
	if err != nil {
		return err
	}
	for i, key := range slices.Backward(keys) {
		if key[9] == 'L' {
			values[i][len(values[i])/2] ^= 4
			return db.Commit(func(w kv.Writer) error { return w.Set(key, values[i]) })
		}
	}
	return fmt.Errorf("group %d has no log", g)
}

// takeAway deletes all that there is of a group, as if it had never been there.
func takeAway(db kv.DB, g raftyard.GroupID) error {
	keys, _, err := records(db, g)
	if err != nil {
		return err
	}
	return db.Commit(func(w kv.Writer) error {
		for _, key := range keys {
			if err := w.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
}
