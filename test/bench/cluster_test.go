package bench

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/node/admin"
	"github.com/raftyard/raftyard/test/internal/counter"
)

// Kinds of groups.
const (
	kindCounter = "counter" // in memory
	kindKV      = "kv"
)

// A cluster is three nodes in this process, on loopback, with real directories.
type cluster struct {
	nodes  []*node.Node
	stores []*kv.Store // of the nodes' keys
	addrs  []string    // of the HTTP APIs

	snapshotRate int64 // of each node; zero: the default
}

const hosts = 3

// newCluster opens a cluster, and makes groups of a kind; group g is led by node g % 3.
func newCluster(b *testing.B, kind string, groups int) *cluster {
	b.Helper()
	c := openCluster(b, 0)
	const atOnce = 64
	all, ctx := errgroup.WithContext(b.Context())
	all.SetLimit(atOnce)
	for g := range groups {
		all.Go(func() error { return c.create(ctx, kind, g) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	return c
}

// openCluster opens a cluster without groups.
func openCluster(b *testing.B, snapshotRate int64) *cluster {
	b.Helper()
	var listeners []net.Listener
	var peers []node.Peer
	for i := range hosts {
		l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listeners = append(listeners, l)
		peers = append(peers, node.Peer{ID: raftyard.NodeID(i + 1), Addr: l.Addr().String()})
	}
	c := &cluster{snapshotRate: snapshotRate}
	dir := b.TempDir()
	for i, l := range listeners {
		c.open(b, filepath.Join(dir, peers[i].ID.String()), peers, l)
	}
	return c
}

// open opens the next node.
func (c *cluster) open(b *testing.B, dir string, peers []node.Peer, l net.Listener) {
	b.Helper()
	store, err := kv.OpenStore(kv.StoreOptions{Dir: filepath.Join(dir, "state")})
	if err != nil {
		b.Fatal(err)
	}
	n, err := node.Open(b.Context(), node.Config{
		ID: peers[len(c.nodes)].ID, Dir: dir, Cluster: "bench", Peers: peers, Listener: l,
		SnapshotRate: c.snapshotRate,
		Kinds:        map[string]group.Factory{kindCounter: counter.New, kindKV: store.Factory()},
	})
	if err != nil {
		b.Fatal(errors.Join(err, store.Close()))
	}
	handler, err := admin.New(admin.Config{Node: n, KV: kv.NewClient(n)})
	if err != nil {
		b.Fatal(errors.Join(err, n.Close(b.Context()), store.Close()))
	}
	server := httptest.NewServer(handler)
	b.Cleanup(func() {
		server.Close()
		if err := errors.Join(n.Close(context.Background()), store.Close()); err != nil {
			b.Error(err)
		}
	})
	c.nodes, c.stores = append(c.nodes, n), append(c.stores, store)
	c.addrs = append(c.addrs, server.URL)
}

func (c *cluster) home(g int) *node.Node { return c.nodes[g%hosts] }

func groupID(g int) raftyard.GroupID { return raftyard.GroupID(g + 1) }

// create makes a group and moves it home. What is refused in the beginning is tried again.
func (c *cluster) create(ctx context.Context, kind string, g int) error {
	home := c.home(g)
	err := again(ctx, func() error {
		_, err := home.CreateGroup(ctx, node.Spec{
			ID: groupID(g), Kind: kind, Voters: []raftyard.NodeID{1, 2, 3},
		})
		return err
	})
	if err != nil {
		return err
	}
	return again(ctx, func() error { return home.TransferLeader(ctx, groupID(g), home.ID()) })
}

// again repeats what fails, for a while.
func again(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
