package node

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/transport"
)

// testTimeout ends a test that hangs; nothing is measured against it.
const testTimeout = 60 * time.Second

// cluster is some nodes in this process, on loopback sockets and real disks.
type cluster struct {
	t     *testing.T
	dir   string
	peers []Peer
	addrs map[raftyard.NodeID]string // of nodes that are not among peers
	nodes map[raftyard.NodeID]*Node
	net   Network                  // nil: TCP
	lacks map[raftyard.NodeID]bool // nodes that know no kind
	hooks

	soleAfter time.Duration // zero: next to nothing
	logBytes  int64         // zero: what a node has by itself
	bounds    Bounds
}

func newCluster(t *testing.T, count int) *cluster {
	t.Helper()
	t.Parallel() // much of a cluster's time is waiting for ticks
	c := &cluster{
		t: t, dir: t.TempDir(), nodes: make(map[raftyard.NodeID]*Node),
	}
	var held []net.Listener
	for i := range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		c.peers = append(c.peers, Peer{ID: raftyard.NodeID(i + 1), Addr: l.Addr().String()})
	}
	for i, p := range c.peers {
		c.open(p.ID, held[i])
	}
	t.Cleanup(c.closeAll)
	return c
}

// newMemoryCluster is newCluster on a network that can be cut.
func newMemoryCluster(t *testing.T, count int, net *transport.Memory) *cluster {
	t.Helper()
	t.Parallel()
	c := &cluster{t: t, dir: t.TempDir(), nodes: make(map[raftyard.NodeID]*Node), net: net}
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

func (c *cluster) config(id raftyard.NodeID, l net.Listener) Config {
	cfg := Config{
		ID: id, Dir: filepath.Join(c.dir, id.String()), Cluster: "test",
		Peers: c.peers, Advertise: Peer{Addr: c.addrs[id]},
		Listener: l, TickInterval: 50 * time.Millisecond,
		Network: c.net,
		Kinds: map[string]group.Factory{
			"list": newList,
			"kept": func(env group.Env) (group.StateMachine, error) {
				return openKept(filepath.Join(c.dir, "kept"), env)
			},
			"brittle": openBrittle(c),
			"hooked": func(env group.Env) (group.StateMachine, error) {
				if hook := c.onOpen.Load(); hook != nil {
					(*hook)(env)
				}
				return &hooked{c: c, env: env}, nil
			},
		},
		diskFree: func(dir string) int64 {
			if c.full[id].Load() {
				return 0
			}
			return diskFree(dir)
		},
		logHeld:   func() bool { return c.held[id].Load() },
		soleAfter: cmp.Or(c.soleAfter, time.Millisecond),
		LogBytes:  c.logBytes,
		Bounds:    c.bounds,
		Logger: slog.New(slog.NewTextHandler(testWriter{c.t},
			&slog.HandlerOptions{Level: slog.LevelError})),
	}
	if c.lacks[id] {
		cfg.Kinds = nil
	}
	return cfg
}

func (c *cluster) open(id raftyard.NodeID, l net.Listener) {
	c.t.Helper()
	n, err := Open(c.t.Context(), c.config(id, l))
	if err != nil {
		c.t.Fatalf("open node %d: %v", id, err)
	}
	c.nodes[id] = n
}

func (c *cluster) close(id raftyard.NodeID) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if n := c.nodes[id]; n != nil {
		if err := n.Close(ctx); err != nil {
			c.t.Errorf("close node %d: %v", id, err)
		}
		delete(c.nodes, id)
	}
}

func (c *cluster) closeAll() {
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			if err := n.Close(ctx); err != nil {
				c.t.Errorf("close node %d: %v", n.ID(), err)
			}
		})
	}
	wg.Wait()
}

func (c *cluster) create(g raftyard.GroupID, voters ...raftyard.NodeID) {
	c.t.Helper()
	c.createSpec(Spec{ID: g, Kind: "list", Voters: voters})
}

func (c *cluster) createSpec(s Spec) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	if _, err := c.anyNode().CreateGroup(ctx, s); err != nil {
		c.t.Fatalf("create group %d: %v", s.ID, err)
	}
}

func (c *cluster) anyNode() *Node {
	for _, p := range c.peers {
		if n := c.nodes[p.ID]; n != nil {
			return n
		}
	}
	c.t.Fatal("no node is open")
	return nil
}

// add proposes words at a node and fails the test if that does.
func (c *cluster) add(at raftyard.NodeID, g raftyard.GroupID, words ...string) {
	c.t.Helper()
	for _, w := range words {
		ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
		if _, err := c.nodes[at].Propose(ctx, g, []byte(w)); err != nil {
			c.t.Fatalf("propose %q to group %d at node %d: %v", w, g, at, err)
		}
		cancel()
	}
}

// words reads a group's list through a node.
func (c *cluster) words(at raftyard.NodeID, g raftyard.GroupID) []string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	answer, err := c.nodes[at].Query(ctx, g, Linearizable, nil)
	if err != nil {
		c.t.Fatalf("read group %d at node %d: %v", g, at, err)
	}
	if len(answer) == 0 {
		return nil
	}
	return strings.Split(string(answer), "\n")
}

func (c *cluster) wantWords(at raftyard.NodeID, g raftyard.GroupID, want ...string) {
	c.t.Helper()
	if got := c.words(at, g); !slices.Equal(got, want) {
		c.t.Errorf("group %d at node %d holds %q, want %q", g, at, got, want)
	}
}

// eventually waits until ok holds.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), testTimeout)
	defer cancel()
	for !ok() {
		if !(&surroundings{}).sleep(ctx, 2*time.Millisecond) {
			c.t.Fatalf("never happened: %s", what)
		}
	}
}

// leader waits for a group to have a leader among the open nodes.
func (c *cluster) leader(g raftyard.GroupID) raftyard.NodeID {
	c.t.Helper()
	var leader raftyard.NodeID
	c.eventually(fmt.Sprintf("group %d has a leader", g), func() bool {
		for _, n := range c.nodes {
			if id, ok := n.Leader(g); ok && c.nodes[id] != nil {
				leader = id
				return true
			}
		}
		return false
	})
	return leader
}

// onWorker runs fn where a replica's own state may be touched, and waits for it.
func onWorker(r *replica, fn func()) {
	done := make(chan struct{})
	r.worker.box.control(func() { fn(); close(done) })
	<-done
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// list is a state machine in memory: the commands it was given. A command that
// begins with "panic" makes it panic.
type list struct {
	mu    sync.RWMutex
	words []string
}

func newList(group.Env) (group.StateMachine, error) { return &list{}, nil }

func (l *list) Apply(batch []group.Command) ([]group.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]group.Result, len(batch))
	for i, c := range batch {
		if strings.HasPrefix(string(c.Data), "panic") {
			panic(string(c.Data))
		}
		if string(c.Data) == "fatal" {
			return nil, fmt.Errorf("a shared store: %w", group.ErrFatal)
		}
		l.words = append(l.words, string(c.Data))
		results[i].Data = binary.BigEndian.AppendUint64(nil, uint64(len(l.words)))
	}
	return results, nil
}

func (l *list) Query([]byte) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return []byte(strings.Join(l.words, "\n")), nil
}

func (l *list) Hash() ([]byte, error) {
	return []byte(strings.Join(l.words, "\n")), nil
}

func (l *list) Snapshot() (group.Snapshot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return listSnapshot(strings.Join(l.words, "\n")), nil
}

func (l *list) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words = nil
	if len(b) > 0 {
		l.words = strings.Split(string(b), "\n")
	}
	return nil
}

func (l *list) Close() error { return nil }

type listSnapshot string

func (s listSnapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(s))
	return int64(n), err
}

func (s listSnapshot) Close() error { return nil }
