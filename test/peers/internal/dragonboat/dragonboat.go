// Package dragonboat runs github.com/lni/dragonboat/v3: one NodeHost for each host.
//
// Options: shards=N, the number of its log databases and of the workers of each kind, 16
// as it comes; quiesce=1 lets idle groups sleep.
package dragonboat

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/lni/dragonboat/v3"
	"github.com/lni/dragonboat/v3/client"
	"github.com/lni/dragonboat/v3/config"
	"github.com/lni/dragonboat/v3/logger"
	"github.com/lni/dragonboat/v3/statemachine"
	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// timeout of a request, as long as raftyard's.
const timeout = 10 * time.Second

// A cluster is dragonboat as a [system.System].
type cluster struct {
	cfg      system.Config
	hosts    []*dragonboat.NodeHost
	sessions []*client.Session // by group
}

// New returns dragonboat.
func New() system.System { return &cluster{} }

// Start implements [system.System].
func (c *cluster) Start(ctx context.Context, cfg system.Config) error {
	c.cfg = cfg
	if err := cfg.Options.Only("shards", "quiesce"); err != nil {
		return err
	}
	shards, err := cfg.Options.Int("shards", 0)
	if err != nil {
		return err
	}
	quiesce, err := cfg.Options.Int("quiesce", 0)
	if err != nil {
		return err
	}
	silence()
	members, err := c.openHosts(ctx, shards)
	if err != nil {
		return err
	}
	all := new(errgroup.Group)
	for h, host := range c.hosts {
		all.Go(func() error { return c.startGroups(host, h, members, quiesce != 0) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for g := range cfg.Groups {
		c.sessions = append(c.sessions, c.hosts[0].GetNoOPSession(id(g)))
	}
	return c.moveHome(ctx)
}

// silence turns logging off, but for what is fatal.
func silence() {
	for _, name := range []string{
		"config", "dragonboat", "fileutil", "grpc", "id", "logdb", "order", "pebblekv", "raft",
		"raftpb", "rsm", "server", "settings", "transport", "utils",
	} {
		logger.GetLogger(name).SetLevel(logger.CRITICAL)
	}
}

// openHosts opens a host at each of as many addresses, and returns these by id.
func (c *cluster) openHosts(ctx context.Context, shards int) (map[uint64]string, error) {
	addrs, err := system.FreeAddrs(ctx, c.cfg.Hosts)
	if err != nil {
		return nil, err
	}
	expert := config.GetDefaultExpertConfig()
	if n := uint64(shards); n > 0 {
		expert.LogDB.Shards = n
		expert.Engine.ExecShards, expert.Engine.CommitShards, expert.Engine.ApplyShards = n, n, n
	}
	members := make(map[uint64]string)
	for h, addr := range addrs {
		members[hostID(h)] = addr
		host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
			NodeHostDir:    filepath.Join(c.cfg.Dir, fmt.Sprintf("host%d", h)),
			RTTMillisecond: uint64(c.cfg.Tick.Milliseconds()),
			RaftAddress:    addr,
			Expert:         expert,
		})
		if err != nil {
			return nil, err
		}
		c.hosts = append(c.hosts, host)
	}
	return members, nil
}

func (c *cluster) startGroups(
	host *dragonboat.NodeHost, h int, members map[uint64]string, quiesce bool,
) error {
	for g := range c.cfg.Groups {
		err := host.StartCluster(members, false, newCounter, config.Config{
			NodeID: hostID(h), ClusterID: id(g), CheckQuorum: true, Quiesce: quiesce,
			ElectionRTT: uint64(c.cfg.ElectionTicks), HeartbeatRTT: 1,
			SnapshotEntries:    c.cfg.SnapshotEvery,
			CompactionOverhead: c.cfg.SnapshotEvery / 2,
		})
		if err != nil {
			return fmt.Errorf("start group %d on host %d: %w", g, h, err)
		}
	}
	return nil
}

// moveHome has every group led by its home host. All transfers are asked for before any
// is waited for, and again after a while.
func (c *cluster) moveHome(ctx context.Context) error {
	const again = 200 // polls
	away := c.allAway()
	for polls := 0; len(away) > 0; away = c.allAway() { // some may have moved meanwhile
		err := system.Until(ctx, "all groups are at home", func() bool {
			away = slices.DeleteFunc(away, func(g int) bool { return c.atHome(g) })
			if polls%again == 0 {
				for _, g := range away {
					c.callHome(g)
				}
			}
			polls++
			return len(away) == 0
		})
		if err != nil {
			return fmt.Errorf("%d are not: %w", len(away), err)
		}
	}
	return nil
}

// allAway returns the groups that are not led by their home host.
func (c *cluster) allAway() []int {
	var away []int
	for g := range c.cfg.Groups {
		if !c.atHome(g) {
			away = append(away, g)
		}
	}
	return away
}

func (c *cluster) atHome(g int) bool {
	h := c.cfg.Home(g)
	leader, ok, err := c.hosts[h].GetLeaderID(id(g))
	return err == nil && ok && leader == hostID(h)
}

// callHome asks the leader of a group, if there is one, to hand over to the home host.
func (c *cluster) callHome(g int) {
	h := c.cfg.Home(g)
	leader, ok, err := c.hosts[h].GetLeaderID(id(g))
	if err == nil && ok {
		// What it refuses is asked again.
		_ = c.hosts[leader-1].RequestLeaderTransfer(id(g), hostID(h))
	}
}

func id(g int) uint64     { return uint64(g + 1) }
func hostID(h int) uint64 { return uint64(h + 1) }

// Propose implements [system.System].
func (c *cluster) Propose(_ context.Context, _, g int, command []byte) (uint64, error) {
	request, err := c.hosts[c.cfg.Home(g)].Propose(c.sessions[g], command, timeout)
	if err != nil {
		return 0, refused(err)
	}
	defer request.Release()
	result := <-request.ResultC()
	if !result.Completed() {
		return 0, outcome(&result)
	}
	return result.GetResult().Value, nil
}

// Read implements [system.System].
func (c *cluster) Read(_ context.Context, _, g int) (uint64, error) {
	host := c.hosts[c.cfg.Home(g)]
	request, err := host.ReadIndex(id(g), timeout)
	if err != nil {
		return 0, refused(err)
	}
	defer request.Release()
	result := <-request.ResultC()
	if !result.Completed() {
		return 0, outcome(&result)
	}
	got, err := host.ReadLocalNode(request, nil)
	if err != nil {
		return 0, err
	}
	n, ok := got.(uint64)
	if !ok {
		return 0, fmt.Errorf("a read returned %T", got)
	}
	return n, nil
}

// refused marks errors of requests that were not queued.
func refused(err error) error {
	if errors.Is(err, dragonboat.ErrSystemBusy) || errors.Is(err, dragonboat.ErrClusterNotReady) {
		return system.Refused(err)
	}
	return err
}

// outcome returns why a request was not completed.
func outcome(result *dragonboat.RequestResult) error {
	switch {
	case result.Dropped():
		return system.Refused(errors.New("dropped"))
	case result.Timeout():
		return errors.New("timed out")
	case result.Terminated():
		return errors.New("terminated")
	default:
		return errors.New("rejected or aborted")
	}
}

// Close implements [system.System].
func (c *cluster) Close() error {
	for _, host := range c.hosts {
		host.Stop()
	}
	return nil
}

// A counter is a state machine that counts commands.
type counter struct{ n uint64 }

func newCounter(uint64, uint64) statemachine.IStateMachine { return &counter{} }

// Update counts a command.
func (c *counter) Update([]byte) (statemachine.Result, error) {
	c.n++
	return statemachine.Result{Value: c.n}, nil
}

// Lookup returns the count.
func (c *counter) Lookup(any) (any, error) { return c.n, nil }

// SaveSnapshot writes the count.
func (c *counter) SaveSnapshot(
	w io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{},
) error {
	_, err := w.Write(binary.BigEndian.AppendUint64(nil, c.n))
	return err
}

// RecoverFromSnapshot reads the count.
func (c *counter) RecoverFromSnapshot(
	r io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{},
) error {
	var data [8]byte
	if _, err := io.ReadFull(r, data[:]); err != nil {
		return err
	}
	c.n = binary.BigEndian.Uint64(data[:])
	return nil
}

// Close does nothing.
func (c *counter) Close() error { return nil }
