// Package system is what all systems have in common that are compared: some hosts in this
// process, which replicate commands of many groups.
package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// A System is a replication library, or raftyard, with all its hosts. The state machine of
// each group counts the commands that it has applied, in memory. Logs are synced before
// anything is acknowledged. Propose and Read are safe for concurrent use.
type System interface {
	// Start starts all hosts and groups, and returns when every group is led by its home
	// host, see [Config.Home].
	Start(ctx context.Context, cfg Config) error

	// Propose replicates a command, and returns the group's count after it was applied.
	// The command is not modified and not kept.
	Propose(ctx context.Context, client, group int, command []byte) (count uint64, err error)

	// Read returns the group's count, not older than when Read began.
	Read(ctx context.Context, client, group int) (count uint64, err error)

	// Close stops everything. It may be called after Start has failed.
	Close() error
}

// Config says what to start.
type Config struct {
	Dir     string // exists, is empty, and is on the disk that is measured
	Hosts   int
	Groups  int
	Clients int // how many there will be

	Tick          time.Duration // between heartbeats
	ElectionTicks int
	SnapshotEvery uint64 // entries between snapshots of a group
	Options       Options
}

// Home returns the host that shall lead a group.
func (c *Config) Home(group int) int { return group % c.Hosts }

// ErrRefused marks errors of what certainly had no effect, because there was too much to
// do or the leader has moved: a client tries again after a pause.
var ErrRefused = errors.New("refused")

// Refused returns err marked as refused.
func Refused(err error) error { return errors.Join(ErrRefused, err) }

// Options are settings that only one system has.
type Options map[string]string

// Int returns an option that is a number, or otherwise a default.
func (o Options) Int(name string, otherwise int) (int, error) {
	text, ok := o[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("option %s is %q, want a number", name, text)
	}
	return n, nil
}

// Only returns an error when there are options with other names than these.
func (o Options) Only(names ...string) error {
	for name := range o {
		if !slices.Contains(names, name) {
			return fmt.Errorf("there is no option %q, only %q", name, names)
		}
	}
	return nil
}

// Until polls a condition until it holds.
func Until(ctx context.Context, what string, holds func() bool) error {
	const every = 5 * time.Millisecond
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for !holds() {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// FreeAddrs returns loopback addresses that nobody listens at.
func FreeAddrs(ctx context.Context, n int) ([]string, error) {
	var addrs []string
	var taken []net.Listener // so that none is returned twice
	var errs []error
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			errs = append(errs, err)
			break
		}
		taken = append(taken, l)
		addrs = append(addrs, l.Addr().String())
	}
	for _, l := range taken {
		errs = append(errs, l.Close())
	}
	return addrs, errors.Join(errs...)
}
