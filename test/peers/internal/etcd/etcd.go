// Package etcd runs etcd servers, which are one group. A command is a put of a key that its
// client has to itself, and a read a linearizable get. Servers are called inside the
// process: what a client would pay for the way to them is left out, as with the libraries.
// It has no options.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.uber.org/zap"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// quota is more than the data of any run.
const quota = 8 << 30

// A cluster is etcd as a [system.System].
type cluster struct {
	cfg    system.Config
	hosts  []*embed.Etcd
	leader *etcdserver.EtcdServer
	keys   [][]byte // by client
	before int64    // the revision before the first command
}

// New returns etcd.
func New() system.System { return &cluster{} }

// Start implements [system.System]. Its group stays where it has its leader.
func (c *cluster) Start(ctx context.Context, cfg system.Config) error {
	c.cfg = cfg
	if err := cfg.Options.Only(); err != nil {
		return err
	}
	if cfg.Groups != 1 {
		return errors.New("etcd has one group only")
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	for i := range max(cfg.Clients, 1) {
		c.keys = append(c.keys, fmt.Appendf(nil, "key%06d", i))
	}
	err := system.Until(ctx, "there is a leader", func() bool {
		for _, h := range c.hosts {
			if h.Server.Leader() == h.Server.MemberID() {
				c.leader = h.Server
			}
		}
		return c.leader != nil
	})
	if err != nil {
		return err
	}
	got, err := c.leader.Range(ctx, &etcdserverpb.RangeRequest{Key: c.keys[0]})
	if err != nil {
		return err
	}
	c.before = got.Header.Revision
	return nil
}

// open opens all servers and waits until they serve.
func (c *cluster) open(ctx context.Context) error {
	addrs, err := system.FreeAddrs(ctx, 2*c.cfg.Hosts)
	if err != nil {
		return err
	}
	peers, clients := addrs[:c.cfg.Hosts], addrs[c.cfg.Hosts:]
	var initial []string
	for h, addr := range peers {
		initial = append(initial, fmt.Sprintf("host%d=http://%s", h, addr))
	}
	for h := range c.cfg.Hosts {
		cfg := embed.NewConfig()
		cfg.Name = fmt.Sprintf("host%d", h)
		cfg.Dir = filepath.Join(c.cfg.Dir, cfg.Name)
		cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		cfg.TickMs = uint(c.cfg.Tick.Milliseconds())
		cfg.ElectionMs = cfg.TickMs * uint(c.cfg.ElectionTicks)
		cfg.QuotaBackendBytes = quota
		if c.cfg.SnapshotEvery > 0 {
			cfg.SnapshotCount = c.cfg.SnapshotEvery
		}
		cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peers[h]}}
		cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
		cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: clients[h]}}
		cfg.AdvertiseClientUrls = cfg.ListenClientUrls
		cfg.InitialCluster = strings.Join(initial, ",")
		host, err := embed.StartEtcd(cfg)
		if err != nil {
			return err
		}
		c.hosts = append(c.hosts, host)
	}
	for _, h := range c.hosts {
		select {
		case <-h.Server.ReadyNotify():
		case <-ctx.Done():
			return fmt.Errorf("wait for a server: %w", ctx.Err())
		}
	}
	return nil
}

// Propose implements [system.System].
func (c *cluster) Propose(ctx context.Context, client, _ int, command []byte) (uint64, error) {
	done, err := c.leader.Put(ctx, &etcdserverpb.PutRequest{Key: c.keys[client], Value: command})
	if err != nil {
		return 0, refused(err)
	}
	return uint64(done.Header.Revision - c.before), nil
}

// Read implements [system.System].
func (c *cluster) Read(ctx context.Context, client, _ int) (uint64, error) {
	got, err := c.leader.Range(ctx, &etcdserverpb.RangeRequest{Key: c.keys[client]})
	if err != nil {
		return 0, refused(err)
	}
	return uint64(got.Header.Revision - c.before), nil
}

// refused marks errors of what was not queued.
func refused(err error) error {
	if errors.Is(err, etcderrors.ErrTooManyRequests) {
		return system.Refused(err)
	}
	return err
}

// Close implements [system.System].
func (c *cluster) Close() error {
	for _, h := range c.hosts {
		h.Close()
	}
	return nil
}
