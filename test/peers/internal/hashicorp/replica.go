package hashicorp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

const (
	// cacheEntries is the size of the log's cache: what was just appended is sent from it.
	cacheEntries = 512
	// A segment of the log is allocated as a whole. With many groups that would fill
	// the disk.
	segmentOfOne  = 64 << 20
	segmentOfMany = 1 << 20
)

// A replica is one member of one group.
type replica struct {
	config    *raft.Config
	transport *raft.NetworkTransport
	log       *wal.WAL
	cache     *raft.LogCache
	snapshots *raft.FileSnapshotStore
	machine   *counter
	raft      *raft.Raft // nil before start
}

// openReplica opens everything that a replica stands on. It returns what it has opened
// also with an error, to be closed.
func openReplica(cfg *system.Config, g, h int) (*replica, error) {
	quiet := hclog.NewNullLogger()
	r := &replica{machine: &counter{}, config: raftConfig(cfg, h, quiet)}
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("host%d", h), fmt.Sprintf("group%d", g))
	err := os.MkdirAll(dir, 0o750)
	if err != nil {
		return nil, err
	}
	r.transport, err = raft.NewTCPTransportWithConfig("127.0.0.1:0", nil,
		&raft.NetworkTransportConfig{MaxPool: 3, Timeout: timeout, Logger: quiet})
	if err != nil {
		return nil, err
	}
	segment := segmentOfMany
	if cfg.Groups == 1 {
		segment = segmentOfOne
	}
	r.log, err = wal.Open(dir, wal.WithSegmentSize(segment), wal.WithLogger(quiet))
	if err != nil {
		return r, err
	}
	r.cache, err = raft.NewLogCache(cacheEntries, r.log)
	if err != nil {
		return r, err
	}
	r.snapshots, err = raft.NewFileSnapshotStoreWithLogger(dir, 2, quiet)
	return r, err
}

func raftConfig(cfg *system.Config, h int, quiet hclog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = serverID(h)
	c.Logger = quiet
	c.NoLegacyTelemetry = true
	c.BatchApplyCh = true
	c.HeartbeatTimeout = cfg.Tick * time.Duration(cfg.ElectionTicks)
	c.ElectionTimeout = c.HeartbeatTimeout
	c.LeaderLeaseTimeout = c.HeartbeatTimeout / 2
	c.SnapshotThreshold = cfg.SnapshotEvery
	if cfg.SnapshotEvery == 0 {
		c.SnapshotThreshold = math.MaxInt64
	}
	return c
}

// start makes it a member of its group.
func (r *replica) start(members raft.Configuration) error {
	err := raft.BootstrapCluster(r.config, r.cache, r.log, r.snapshots, r.transport, members)
	if err != nil {
		return err
	}
	r.raft, err = raft.NewRaft(r.config, r.machine, r.cache, r.log, r.snapshots, r.transport)
	return err
}

func (r *replica) close() error {
	var errs []error
	if r.raft != nil {
		errs = append(errs, r.raft.Shutdown().Error())
	}
	errs = append(errs, r.transport.Close())
	if r.log != nil {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// A counter is a state machine that counts commands.
type counter struct{ n atomic.Uint64 }

// Apply counts a command.
func (c *counter) Apply(*raft.Log) any { return c.n.Add(1) }

// Snapshot returns the count.
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return count(c.n.Load()), nil }

// Restore reads the count.
func (c *counter) Restore(r io.ReadCloser) error {
	var data [8]byte
	_, err := io.ReadFull(r, data[:])
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	c.n.Store(binary.BigEndian.Uint64(data[:]))
	return nil
}

// A count is a snapshot of a counter.
type count uint64

// Persist writes the count.
func (c count) Persist(sink raft.SnapshotSink) error {
	_, err := sink.Write(binary.BigEndian.AppendUint64(nil, uint64(c)))
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release does nothing.
func (c count) Release() {}
