// Package raftyard runs raftyard itself: one node for each host, as an embedding program
// would.
package raftyard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/test/internal/counter"
	"github.com/raftyard/raftyard/test/peers/internal/system"
)

const kind = "counter"

// A cluster is raftyard as a [system.System].
type cluster struct {
	cfg   system.Config
	nodes []*node.Node

	memtable, batch int
}

// New returns raftyard. Options: memtable=N, the MiB of a write buffer of the log store, and
// batch=N, the most commands in an entry.
func New() system.System { return &cluster{} }

// Start implements [system.System].
func (c *cluster) Start(ctx context.Context, cfg system.Config) error {
	c.cfg = cfg
	if err := c.options(cfg.Options); err != nil {
		return err
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	var voters []raftyard.NodeID
	for _, n := range c.nodes {
		voters = append(voters, n.ID())
	}
	const atOnce = 64
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for g := range cfg.Groups {
		all.Go(func() error { return c.create(ctx, g, voters) })
	}
	return all.Wait()
}

func (c *cluster) options(o system.Options) (err error) {
	if err = o.Only("memtable", "batch"); err != nil {
		return err
	}
	if c.memtable, err = o.Int("memtable", 0); err != nil {
		return err
	}
	c.batch, err = o.Int("batch", 0)
	return err
}

// open opens all nodes.
func (c *cluster) open(ctx context.Context) error {
	var listeners []net.Listener
	var peers []node.Peer
	for h := range c.cfg.Hosts {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return err
		}
		listeners = append(listeners, l)
		peers = append(peers, node.Peer{ID: raftyard.NodeID(h + 1), Addr: l.Addr().String()})
	}
	for h, l := range listeners {
		n, err := node.Open(ctx, node.Config{
			ID: peers[h].ID, Dir: filepath.Join(c.cfg.Dir, fmt.Sprintf("host%d", h)),
			Cluster: "peers", Peers: peers, Listener: l,
			Kinds:        map[string]group.Factory{kind: counter.New},
			TickInterval: c.cfg.Tick, ElectionTicks: c.cfg.ElectionTicks, HeartbeatTicks: 1,
			MemTableSize: int64(c.memtable) << 20, Limits: group.Limits{MaxBatchCommands: c.batch},
		})
		if err != nil {
			for _, unused := range listeners[h+1:] {
				err = errors.Join(err, unused.Close())
			}
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

// create creates a group and moves it home.
func (c *cluster) create(ctx context.Context, g int, voters []raftyard.NodeID) error {
	home := c.nodes[c.cfg.Home(g)]
	var last error
	err := system.Until(ctx, fmt.Sprintf("group %d exists", g), func() bool {
		_, last = home.CreateGroup(ctx, node.Spec{
			ID: id(g), Kind: kind, Voters: voters, SnapshotEntries: c.cfg.SnapshotEvery,
		})
		return last == nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	err = system.Until(ctx, fmt.Sprintf("group %d is at home", g), func() bool {
		last = home.TransferLeader(ctx, id(g), home.ID())
		return last == nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func id(g int) raftyard.GroupID { return raftyard.GroupID(g + 1) }

// Propose implements [system.System].
func (c *cluster) Propose(ctx context.Context, _, g int, command []byte) (uint64, error) {
	result, err := c.nodes[c.cfg.Home(g)].Propose(ctx, id(g), command)
	switch {
	case err == nil:
		return counter.Value(result)
	case node.NotApplied(err):
		return 0, system.Refused(err)
	default:
		return 0, err
	}
}

// Read implements [system.System].
func (c *cluster) Read(ctx context.Context, _, g int) (count uint64, err error) {
	err = node.View(ctx, c.nodes[c.cfg.Home(g)], id(g), node.Linearizable,
		func(m *counter.Machine) error {
			count = m.Count()
			return nil
		})
	if node.NotApplied(err) {
		return 0, system.Refused(err)
	}
	return count, err
}

// Close implements [system.System].
func (c *cluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close(context.Background()))
	}
	return errors.Join(errs...)
}
