//go:build unix

package crash

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/cluster"
	"github.com/raftyard/raftyard/transport"
)

// TestSnapshotOfDestroyed has a replica removed while its snapshot waits to be
// written to a file, behind those of others. The file must not appear when nobody
// knows of the replica any more: nobody would ever remove it.
func TestSnapshotOfDestroyed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gate := &gate{open: make(chan struct{}), writing: make(chan struct{}, 100)}
	n, err := node.Open(t.Context(), node.Config{
		ID: 1, Dir: dir, Cluster: "destroyed", Network: transport.NewMemory(1),
		Peers: []node.Peer{{ID: 1, Addr: transport.MemoryAddr(1)}},
		Kinds: map[string]group.Factory{kindList: func(env group.Env) (group.StateMachine, error) {
			return &gated{list: &list{env: env, hooks: func(string, group.Env) {}}, gate: gate}, nil
		}},
		TickInterval: childTick,
		Logger:       slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := n.Close(context.WithoutCancel(t.Context())); cerr != nil {
			t.Error(cerr)
		}
	}()
	defer gate.release() // or Close would wait for ever
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	snapshot := func(g raftyard.GroupID) {
		mustHave(t, n, g)
		asked.Go(func() { _, _ = n.TakeSnapshot(ctx, g) }) // it may end with its replica
	}
	const others, victim = 4, raftyard.GroupID(7)
	for g := raftyard.GroupID(1); g <= others; g++ {
		snapshot(g)
		<-gate.writing
	}
	snapshot(victim)
	cluster.Eventually(t, time.Minute, "the snapshot waits", func() error {
		if gate.snapshots() <= others {
			return fmt.Errorf("%d snapshots", gate.snapshots())
		}
		return nil
	})
	if err = n.DeleteGroup(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	mustHave(t, n, victim) // once what was there is deleted
	gate.release()
	for g := raftyard.GroupID(1); g <= others; g++ {
		// What was asked for before is done by then.
		if _, err = n.TakeSnapshot(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Eventually(t, 10*time.Second, "nothing is left of the replica", func() error {
		left, err := filepath.Glob(filepath.Join(dir, "replicas", "7-*", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there is %v", left)
		}
		return err
	})
}

// mustHave creates a group and writes to it.
func mustHave(t *testing.T, n *node.Node, g raftyard.GroupID) {
	t.Helper()
	spec := node.Spec{ID: g, Kind: kindList, Voters: []raftyard.NodeID{1}}
	_, err := n.CreateGroup(t.Context(), spec)
	if err == nil {
		_, err = n.Propose(t.Context(), g, listCommand("x", 0))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A gate holds the writing of snapshots up until it is open.
type gate struct {
	open    chan struct{}
	writing chan struct{} // one for each that is being written

	once sync.Once
	mu   sync.Mutex
	made int
}

func (g *gate) snapshots() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made
}

// release lets what waits go on, and may be called again.
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// A gated list writes its snapshots through the gate.
type gated struct {
	*list
	gate *gate
}

// Snapshot counts.
func (s *gated) Snapshot() (group.Snapshot, error) {
	s.gate.mu.Lock()
	s.gate.made++
	s.gate.mu.Unlock()
	snap, err := s.list.Snapshot()
	return &gatedSnapshot{snap, s.gate}, err
}

type gatedSnapshot struct {
	group.Snapshot
	gate *gate
}

// WriteTo waits for the gate.
func (s *gatedSnapshot) WriteTo(w io.Writer) (int64, error) {
	s.gate.writing <- struct{}{}
	<-s.gate.open
	return s.Snapshot.WriteTo(w)
}
