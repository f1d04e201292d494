package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// attach attaches a node to group 1 through another one, or detaches it.
func (c *cluster) attach(at, id raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	st, err := c.nodes[at].AddLearner(ctx, 1, id)
	if err != nil {
		c.t.Errorf("AddLearner of node %d at node %d = %v", id, at, err)
		return
	}
	for _, m := range st.Members {
		if m.Node == id {
			return
		}
	}
	c.t.Errorf("AddLearner of node %d returned members %+v", id, st.Members)
}

func (c *cluster) detach(at, id raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	st, err := c.nodes[at].RemoveLearner(ctx, 1, id)
	if err != nil {
		c.t.Errorf("RemoveLearner of node %d at node %d = %v", id, at, err)
		return
	}
	for _, m := range st.Members {
		if m.Node == id {
			c.t.Errorf("RemoveLearner of node %d returned members %+v", id, st.Members)
		}
	}
}

// wantNoResidue looks whether anything is left of group 1 on a node.
func (c *cluster) wantNoResidue(id raftyard.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	if n.replica(1) != nil {
		c.t.Errorf("node %d still has a replica", id)
	}
	if st, ok := n.store.Replica(1); ok && (st.Tombstone == nil || !st.Tombstone.Purged) {
		c.t.Errorf("node %d has %+v in its log store, want a tombstone that is done", id, st)
	}
	if n.store.Remains(1) {
		c.t.Errorf("node %d still has records of the log", id)
	}
	if dirs, err := os.ReadDir(n.cfg.Dir + "/replicas"); err == nil {
		for _, d := range dirs {
			if strings.HasPrefix(d.Name(), "1-") {
				c.t.Errorf("node %d still has the directory %s", id, d.Name())
			}
		}
	}
	if kept := c.keptBy(id); kept != "" {
		c.t.Errorf("state machines of node %d still have %q", id, kept)
	}
}

func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"list", "kept"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newLogOnlyCluster(t, 5, 5)
			c.createSpec(Spec{
				ID: 1, Kind: kind, Voters: []raftyard.NodeID{1, 2, 3},
				SnapshotEntries: 20, TrailingEntries: 5,
			})
			var want []string
			for round := range 3 {
				c.write(1, &want, 30)
				c.attach(raftyard.NodeID(round+1), 4) // by another
				c.attach(4, 4)                        // again, and by itself
				words, err := c.nodes[4].Query(t.Context(), 1, Stale, nil)
				if err != nil || string(words) != strings.Join(want, "\n") {
					t.Errorf("stale read on the learner: %q, %v", words, err)
				}
				c.write(4, &want, 1)
				if err := c.readOn(4, want); err != nil {
					t.Errorf("linearizable read on the learner: %v", err)
				}
				c.attach(1, 5) // one without the kind
				c.detach(5, 5)
				c.detach(raftyard.NodeID(round+1), 4)
				for _, id := range []raftyard.NodeID{4, 5} {
					c.wantNoResidue(id)
				}
				c.detach(4, 4) // again
			}
			c.wantWords(4, 1, want...)
			for _, p := range c.peers { // and nothing comes back
				c.close(p.ID)
			}
			for _, p := range c.peers {
				c.open(p.ID, nil)
			}
			c.wantWords(5, 1, want...)
			c.wantNoResidue(4)
			c.wantNoResidue(5)
		})
	}
}

// readOn reads linearizably on a node's own replica.
func (c *cluster) readOn(id raftyard.NodeID, want []string) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	return View(ctx, c.nodes[id], 1, Linearizable, func(l group.Querier) error {
		got, err := l.Query(nil)
		if err == nil && string(got) != strings.Join(want, "\n") {
			err = fmt.Errorf("it holds %q, want %q", got, want)
		}
		return err
	})
}

func TestAttachRefusals(t *testing.T) {
	c := newCluster(t, 3)
	c.create(1, 1, 2)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, tt := range []struct {
		name string
		want error
		do   func() error
	}{
		{"detach a voter", ErrInvalid, func() error {
			_, err := c.nodes[3].RemoveLearner(ctx, 1, 2)
			return err
		}},
		{"a node that nobody knows", ErrInvalid, func() error {
			_, err := c.nodes[1].AddLearner(ctx, 1, 77)
			return err
		}},
		{"a group that nobody knows", ErrGroupNotFound, func() error {
			_, err := c.nodes[1].AddLearner(ctx, 9, 3)
			return err
		}},
		{"the system group", ErrInvalid, func() error {
			_, err := c.nodes[1].RemoveLearner(ctx, 0, 3)
			return err
		}},
	} {
		if err := tt.do(); !errors.Is(err, tt.want) || !NotApplied(err) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if _, err := c.nodes[1].AddLearner(ctx, 1, 2); err != nil {
		t.Errorf("AddLearner of a voter = %v, want nothing to be done", err)
	}
	if _, err := c.nodes[1].RemoveLearner(ctx, 1, 3); err != nil {
		t.Errorf("RemoveLearner of a node without a replica = %v", err)
	}

	c.leader(0)
	c.close(3)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.nodes[1].AddLearner(short, 1, 3)
	if !errors.Is(err, ErrNotReached) {
		t.Errorf("AddLearner of a node that is down = %v, want ErrNotReached", err)
	}
	c.open(3, nil)
	c.attach(1, 3) // goes on by itself
}

// TestTenAttachAtOnce attaches many nodes to a group at the same time, from each of them,
// under load, and detaches them.
func TestTenAttachAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it has thirteen nodes")
	}
	t.Parallel()
	c := newLogOnlyCluster(t, 13, 4, 8, 12)
	c.createSpec(Spec{
		ID: 1, Kind: "kept", Voters: []raftyard.NodeID{1, 2, 3},
		SnapshotEntries: 20, TrailingEntries: 5,
	})
	var want []string
	c.write(1, &want, 50)
	all := func(do func(id raftyard.NodeID)) {
		var wg sync.WaitGroup
		for id := raftyard.NodeID(4); id <= 13; id++ {
			wg.Go(func() { do(id) })
		}
		c.write(2, &want, 50)
		wg.Wait()
	}
	all(func(id raftyard.NodeID) { c.attach(id, id) })
	c.write(3, &want, 1)
	for id := raftyard.NodeID(1); id <= 13; id++ {
		if st := c.status(id, 1); len(st.Members) != 13 || st.LogOnly != c.lacks[id] {
			t.Errorf("node %d: %+v", id, st.ReplicaStatus)
		}
		c.wantWords(id, 1, want...)
	}
	all(func(id raftyard.NodeID) { c.detach(id%10+4, id) })
	for id := raftyard.NodeID(4); id <= 13; id++ {
		c.wantNoResidue(id)
		c.wantWords(id, 1, want...)
	}
}
