package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// TestOpeningHoldsUpNobodyElse has the state machine of a new group take for ever to open.
// Everything else of the node must go on, and the group itself can be deleted and created
// again meanwhile.
func TestOpeningHoldsUpNobodyElse(t *testing.T) {
	c := newCluster(t, 2)
	n := c.nodes[1]
	there, release := make(chan struct{}), make(chan struct{})
	var once, open sync.Once
	letGo := func() { open.Do(func() { close(release) }) }
	t.Cleanup(letGo) // before the nodes are closed
	hook := func(env group.Env) {
		if env.Group == 1 {
			once.Do(func() { close(there) })
			<-release
		}
	}
	c.onOpen.Store(&hook)
	stuck := Spec{ID: 1, Kind: "hooked", Voters: []raftyard.NodeID{1}}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.CreateGroup(short, stuck); err != nil {
		t.Fatal(err)
	}
	<-there
	old, _ := n.store.Replica(1)

	c.create(2, 1)
	c.add(1, 2, "fine")
	c.close(2)
	c.open(2, nil) // this start must be noted before anything is taken from it
	c.wantWords(2, 2, "fine")
	short, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := n.DeleteGroup(short, 1); !errors.Is(err, ErrNotReached) {
		t.Errorf("DeleteGroup = %v, want ErrNotReached while the replica is there", err)
	}
	short, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.CreateGroup(short, stuck); err != nil {
		t.Fatal(err)
	}
	if st, ok := n.store.Replica(1); !ok || st.Incarnation != old.Incarnation {
		t.Errorf("the store has %+v of the group, want the replica that opens", st)
	}

	letGo()
	c.add(1, 1, "new")
	c.wantWords(2, 1, "new")
	if st, _ := n.store.Replica(1); st.Incarnation == old.Incarnation {
		t.Error("the store has the replica of the group that was deleted")
	}
}

// TestRefusedWritesAreTriedAgain has the log store refuse a tombstone and a new replica.
// Nobody asks for them a second time, so that the lifecycle must not forget them.
func TestRefusedWritesAreTriedAgain(t *testing.T) {
	c := newCluster(t, 2)
	c.create(1, 1)
	c.create(2, 2)
	n := c.nodes[1]
	l, r := n.lifecycle, n.replica(1)
	c.eventually("node 1 knows group 2", func() bool {
		_, ok := n.registry.Group(2)
		return ok
	})
	rec, _ := n.registry.Group(2)
	tooMuch := r.view.Load().State.Descriptor
	tooMuch.Kind = string(make([]byte, n.store.Limits().MaxBatchBytes))

	l.create(creation{group: 2, incarnation: rec.Incarnation, id: 1, genesis: &tooMuch})
	l.destroy(r, remains{Descriptor: tooMuch, Deleted: true})
	if err := l.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.eventually("both wait for another round", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, create := l.creates[2]
		_, destroy := l.destroys[r]
		return create && destroy
	})
	if n.replica(1) != r {
		t.Error("a replica without a tombstone has gone")
	}
	l.mu.Lock()
	delete(l.creates, 2)
	l.destroys = map[*replica]remains{}
	l.mu.Unlock()
}
