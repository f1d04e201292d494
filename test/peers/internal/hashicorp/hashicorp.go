// Package hashicorp runs github.com/hashicorp/raft with the log store of
// github.com/hashicorp/raft-wal. The library knows one group: every replica is a Raft of its
// own, with a log and connections of its own.
//
// Options: maxappend=N, how many entries a message takes, 64 as it comes.
package hashicorp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// timeout of a request, as long as raftyard's.
const timeout = 10 * time.Second

// atOnce is how many groups are started or stopped at a time: elections need not wait
// for the start of all others.
const atOnce = 8

// A cluster is hashicorp/raft as a [system.System].
type cluster struct {
	cfg    system.Config
	groups [][]*replica // by group, then by host
}

// New returns hashicorp/raft.
func New() system.System { return &cluster{} }

// Start implements [system.System].
func (c *cluster) Start(ctx context.Context, cfg system.Config) error {
	c.cfg = cfg
	if err := cfg.Options.Only("maxappend"); err != nil {
		return err
	}
	maxAppend, err := cfg.Options.Int("maxappend", 0)
	if err != nil {
		return err
	}
	c.groups = make([][]*replica, cfg.Groups)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for g := range cfg.Groups {
		all.Go(func() error {
			if err := c.startGroup(g, maxAppend); err != nil {
				return fmt.Errorf("start group %d: %w", g, err)
			}
			return c.moveHome(ctx, g)
		})
	}
	return all.Wait()
}

// startGroup starts the replicas of a group.
func (c *cluster) startGroup(g, maxAppend int) error {
	var members raft.Configuration
	for h := range c.cfg.Hosts {
		r, err := openReplica(&c.cfg, g, h)
		if r != nil {
			c.groups[g] = append(c.groups[g], r)
		}
		if err != nil {
			return err
		}
		members.Servers = append(members.Servers, raft.Server{
			ID: serverID(h), Address: r.transport.LocalAddr(),
		})
	}
	for _, r := range c.groups[g] {
		if maxAppend > 0 {
			r.config.MaxAppendEntries = maxAppend
		}
		if err := r.start(members); err != nil {
			return err
		}
	}
	return nil
}

// moveHome has a group led by its home host.
func (c *cluster) moveHome(ctx context.Context, g int) error {
	const again = 200 // polls
	at := c.cfg.Home(g)
	home := c.groups[g][at]
	polls := 0
	return system.Until(ctx, fmt.Sprintf("group %d is at home", g), func() bool {
		if home.raft.State() == raft.Leader {
			return true
		}
		leader := c.leader(g)
		if leader != nil && polls%again == 0 {
			// What it refuses is tried again.
			_ = leader.raft.LeadershipTransferToServer(
				serverID(at), home.transport.LocalAddr()).Error()
		}
		if leader != nil {
			polls++
		}
		return false
	})
}

// leader returns the replica that leads a group, or nil.
func (c *cluster) leader(g int) *replica {
	for _, r := range c.groups[g] {
		if r.raft.State() == raft.Leader {
			return r
		}
	}
	return nil
}

// at returns the replica to ask, which is the one at home unless the leader has moved.
func (c *cluster) at(g int) *replica {
	home := c.groups[g][c.cfg.Home(g)]
	if home.raft.State() == raft.Leader {
		return home
	}
	if r := c.leader(g); r != nil {
		return r
	}
	return home
}

// Propose implements [system.System].
func (c *cluster) Propose(_ context.Context, _, g int, command []byte) (uint64, error) {
	future := c.at(g).raft.Apply(command, timeout)
	if err := future.Error(); err != nil {
		return 0, refused(err)
	}
	n, ok := future.Response().(uint64)
	if !ok {
		return 0, fmt.Errorf("the state machine returned %T", future.Response())
	}
	return n, nil
}

// Read implements [system.System]. Whatever was acknowledged before is committed, and a
// leader that is confirmed afterwards and has applied as much may answer.
func (c *cluster) Read(ctx context.Context, _, g int) (uint64, error) {
	r := c.at(g)
	commit := r.raft.CommitIndex()
	if err := r.raft.VerifyLeader().Error(); err != nil {
		return 0, refused(err)
	}
	for r.raft.AppliedIndex() < commit {
		select {
		case <-time.After(50 * time.Microsecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return r.machine.n.Load(), nil
}

// refused marks errors of what was not begun.
func refused(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) {
		return system.Refused(err)
	}
	return err
}

// Close implements [system.System].
func (c *cluster) Close() error {
	all := new(errgroup.Group)
	all.SetLimit(atOnce * c.cfg.Hosts)
	for _, replicas := range c.groups {
		for _, r := range replicas {
			all.Go(r.close)
		}
	}
	return all.Wait()
}

func serverID(h int) raft.ServerID { return raft.ServerID(fmt.Sprintf("host%d", h)) }
