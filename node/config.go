package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

const (
	minTickInterval  = time.Millisecond
	maxSystemVoters  = 5
	defaultSnapshots = 10_000
	maxSnapshots     = 1 << 40
	minSnapshotRate  = 1 << 20
	defaultMaxEntry  = 1 << 20  // as group.Limits has it
	defaultMaxQueued = 16 << 20 // as well
)

// A Peer is a node of the cluster and how to reach it.
type Peer struct {
	ID raftyard.NodeID
	// Addr is the host:port on which the node listens for other nodes.
	Addr string
	// HTTP is the host:port of the node's HTTP API, told to users; it may be empty, and that
	// of several nodes.
	HTTP string
	// Labels are told to users; nothing is decided by them.
	Labels map[string]string
}

// advertises reports whether there is an address in p.
func (p Peer) advertises() bool { return p.Addr != "" || p.HTTP != "" }

// clash returns which peer address would be more than that, of p or of another of the nodes, or
// nil. It is a slip of whoever has written it: what is meant for one reaches the other. HTTP
// addresses are told to users, and may be that of something in front of several nodes.
func (p Peer) clash(others []Peer) error {
	if p.Addr != "" && p.Addr == p.HTTP {
		return fmt.Errorf("%s is both its peer and its HTTP address, want two", p.Addr)
	}
	for _, o := range others {
		switch {
		case o.ID == p.ID:
		case o.Addr != "" && (o.Addr == p.Addr || o.Addr == p.HTTP):
			return fmt.Errorf("%s is the peer address of node %d, want another", o.Addr, o.ID)
		case p.Addr != "" && p.Addr == o.HTTP:
			return fmt.Errorf("%s is the HTTP address of node %d, want another", p.Addr, o.ID)
		}
	}
	return nil
}

// Config holds the settings of a [Node]. The zero value of every field but ID,
// Dir, Cluster and Peers means "use the default".
type Config struct {
	// ID names this node: from 1 to [raftyard.MaxNodeID]. It must never be reused, not even
	// after the node is removed.
	ID raftyard.NodeID

	// Dir is the data directory. It belongs to this node alone, for ever. The node
	// uses the names LOCK, IDENTITY, sequence, probe, log and replicas in it; a program may
	// keep its own state beside them, for example in "state".
	Dir string

	// Cluster is the name of the cluster. Nodes of other clusters are refused.
	Cluster string

	// Peers is the first address book: every node that the cluster is founded
	// with, the same on each. Addresses may differ from node to node and may
	// change; the set of ids must not, not even when nodes have left. A node that is
	// not among them joins the cluster later: it waits until [Node.PutNode] has said
	// that it belongs to it.
	Peers []Peer

	// Advertise is where others find this node, and what they are told of it. What
	// it says counts more than this node's line in Peers, and it must have an Addr
	// if there is none. Its ID does not count. A peer address in it that Peers gives to
	// another node is refused by [Open] as long as there is no data directory, and else
	// only warned of: the other one may have moved.
	Advertise Peer

	// Listen is the host:port to listen on for other nodes. Default: the Addr that
	// others find this node at.
	Listen string

	// Listener is used instead of Listen when it is not nil. The node closes it,
	// also when Open fails after it has looked at it.
	Listener net.Listener

	// Network connects the node to its peers instead of TCP when it is not nil:
	// a [transport.Memory] in tests.
	Network Network

	// Kinds maps the name of each kind of group to its state machine. A replica of
	// a kind that is missing is log-only: it keeps the log, votes and can lead, and has
	// no state. What a state machine of it has stored here is left alone.
	Kinds map[string]group.Factory

	// Groups are created when they are missing. One that is missing here is
	// never deleted.
	Groups []Spec

	// TickInterval is the length of one raft tick. Default: 100ms.
	TickInterval time.Duration

	// ElectionTicks is after how many ticks without a leader a follower stands
	// for election; the actual number is random between it and its double.
	// Default: 10.
	ElectionTicks int

	// HeartbeatTicks is how many ticks pass between a leader's heartbeats.
	// Default: 2. It must be less than ElectionTicks.
	HeartbeatTicks int

	// SleepTicks is after how many ticks in which nothing happens a group sleeps: it
	// then costs nothing until something does. It does so only if all of its members'
	// nodes allow that. Default: three times ElectionTicks. Negative: groups never sleep.
	SleepTicks int

	// DefaultTimeout ends a request whose context has no deadline. Default: 10s.
	DefaultTimeout time.Duration

	// Workers is the number of goroutines that run replicas. Default: GOMAXPROCS.
	Workers int

	// Appliers is the number of goroutines that run state machines, which is how
	// many Apply calls are in flight at once. Default: 32.
	Appliers int

	// SnapshotSends bounds the snapshots that are sent at the same time, and
	// SnapshotReceives those that are received. Default: 4 each.
	SnapshotSends    int
	SnapshotReceives int

	// SnapshotRate is how many bytes of snapshots are sent a second, of all together, and how
	// many are received: what they take of the network and of the disk goes to nobody else.
	// At least 1 MiB. Default: 128 MiB. Negative: no bound.
	SnapshotRate int64

	// CacheBytes bounds the log entries of all groups that are kept in memory.
	// Default: 64 MiB.
	CacheBytes int64

	// LogBytes bounds the log of each group, whatever SnapshotEntries and TrailingEntries
	// say: a snapshot is taken when so many bytes of commands were applied since the last
	// one, and about as many stay in the log at most. Of a group whose state is more than
	// eight times as large an eighth of the state counts instead; one whose snapshots are
	// files takes the next no sooner than the log is as large as the state. Default: 64 MiB.
	LogBytes int64

	// MemTableSize sizes the write buffers of the log store. Default: the store's.
	MemTableSize int64

	// ScrubRate is how many bytes of the log store's tables are read a second, in the
	// background, and compared with their checksums, so that damage is found while others have
	// what it concerns. An hour after all were read it begins anew. A slow or full disk is left
	// alone. Default: 4 MiB. Negative: never.
	ScrubRate int64

	// StateUpkeep tells what is done about the files of the database that the state machines
	// share, such as Upkeep of a Store of package kv, for metrics and status, and how much free
	// space it takes to open it again, which disk levels are measured by. It must not wait.
	// Default: nothing is told, and what opening takes is as much as for the log.
	StateUpkeep func() storage.Upkeep

	// SlowSync is how long a sync of the disk takes that is slow. A node whose syncs are
	// as slow on average, and much slower than those of the others, gives its leaderships
	// away, one such node at a time. Default: 1s.
	SlowSync time.Duration

	// StuckSync is how long a sync has not come back when the node resigns all its
	// leaderships, which needs no disk. Default: 10s.
	StuckSync time.Duration

	// FailSync is how long a sync has not come back when the disk counts as failed: the
	// node vouches for nothing any more, see [Node.Failed]. Default: 20s.
	FailSync time.Duration

	// Limits bounds messages, batches and queues of each group. The zero value
	// of every field means its default.
	Limits group.Limits

	// Bounds bounds what waits in memory, of all groups together.
	Bounds Bounds

	// Logger receives what an operator should know; nothing else tells of replicas
	// that are stopped or of peers that are refused. Default: discard.
	Logger *slog.Logger

	// Version is the program's version, told to users.
	Version string

	// diskFree tells how much is free; tests set it.
	diskFree func(dir string) int64

	// logHeld tells whether the log store waits for space; tests set it. Nil: it is asked.
	logHeld func() bool

	// soleAfter is for how long the only founder listens at its first start; tests set it.
	soleAfter time.Duration
}

// A Network makes a node's transport. [transport.Memory] is one.
type Network interface {
	Endpoint(cfg transport.Config) (*transport.MemoryEndpoint, error)
}

func (c Config) withDefaults() Config {
	c.TickInterval = cmp.Or(c.TickInterval, 100*time.Millisecond)
	c.ElectionTicks = cmp.Or(c.ElectionTicks, 10)
	c.HeartbeatTicks = cmp.Or(c.HeartbeatTicks, 2)
	c.SleepTicks = cmp.Or(c.SleepTicks, 3*c.ElectionTicks)
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, 10*time.Second)
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.Appliers = cmp.Or(c.Appliers, 32)
	c.SnapshotSends = cmp.Or(c.SnapshotSends, 4)
	c.SnapshotReceives = cmp.Or(c.SnapshotReceives, 4)
	c.SnapshotRate = cmp.Or(c.SnapshotRate, 128<<20)
	c.CacheBytes = cmp.Or(c.CacheBytes, 64<<20)
	c.LogBytes = cmp.Or(c.LogBytes, 64<<20)
	c.Bounds = c.Bounds.withDefaults()
	c.ScrubRate = cmp.Or(c.ScrubRate, defaultScrubRate)
	c.SlowSync = cmp.Or(c.SlowSync, defaultSlowSync)
	c.StuckSync = cmp.Or(c.StuckSync, max(defaultStuckSync, c.SlowSync))
	c.FailSync = cmp.Or(c.FailSync, max(defaultFailSync, 2*c.StuckSync))
	if c.diskFree == nil {
		c.diskFree = diskFree
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Listen = cmp.Or(c.Listen, c.self().Addr)
	return c
}

// self is this node as others are to know it.
func (c Config) self() Peer {
	self, _ := c.peer(c.ID)
	self.ID = c.ID
	self.Addr = cmp.Or(c.Advertise.Addr, self.Addr)
	self.HTTP = cmp.Or(c.Advertise.HTTP, self.HTTP)
	if len(c.Advertise.Labels) > 0 {
		self.Labels = c.Advertise.Labels
	}
	return self
}

// founds reports whether this node is one of those that the cluster is founded with.
func (c Config) founds() bool {
	_, ok := c.peer(c.ID)
	return ok
}

func (c Config) peer(id raftyard.NodeID) (Peer, bool) {
	for _, p := range c.Peers {
		if p.ID == id {
			return p, true
		}
	}
	return Peer{}, false
}

// Validate reports every problem in c, not only the first one. [Open] calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("node: config: "+format, args...))
		}
	}
	check(c.ID.Check() == nil, "ID is %d, %v", c.ID, c.ID.Check())
	check(c.Dir != "", "Dir must name the data directory")
	check(c.Cluster != "", "Cluster must not be empty")
	check(c.TickInterval >= minTickInterval,
		"TickInterval is %v, want at least %v", c.TickInterval, minTickInterval)
	check(c.HeartbeatTicks > 0, "HeartbeatTicks is %d, want at least 1", c.HeartbeatTicks)
	check(c.ElectionTicks > c.HeartbeatTicks,
		"ElectionTicks is %d, want more than HeartbeatTicks, %d", c.ElectionTicks, c.HeartbeatTicks)
	check(c.DefaultTimeout > 0, "DefaultTimeout is %v, want more than 0", c.DefaultTimeout)
	check(c.Workers > 0, "Workers is %d, want at least 1", c.Workers)
	check(c.Appliers > 0, "Appliers is %d, want at least 1", c.Appliers)
	check(c.SnapshotSends > 0, "SnapshotSends is %d, want at least 1", c.SnapshotSends)
	check(c.SnapshotReceives > 0, "SnapshotReceives is %d, want at least 1", c.SnapshotReceives)
	check(c.SnapshotRate < 0 || c.SnapshotRate >= minSnapshotRate,
		"SnapshotRate is %d, want at least %d, or less than 0", c.SnapshotRate, minSnapshotRate)
	check(c.LogBytes > 0, "LogBytes is %d, want more than 0", c.LogBytes)
	check(c.SlowSync > 0, "SlowSync is %v, want more than 0", c.SlowSync)
	check(c.StuckSync >= c.SlowSync,
		"StuckSync is %v, want at least SlowSync, %v", c.StuckSync, c.SlowSync)
	check(c.FailSync > c.StuckSync,
		"FailSync is %v, want more than StuckSync, %v", c.FailSync, c.StuckSync)
	check(c.Kinds[systemKind] == nil, "Kinds must not hold %q, the registry's kind", systemKind)
	errs = append(errs, c.Bounds.validate()...)
	errs = append(errs, c.validatePeers()...)
	errs = append(errs, c.validateGroups()...)
	return errors.Join(errs...)
}

func (c Config) validatePeers() []error {
	var errs []error
	seen := make(map[raftyard.NodeID]bool, len(c.Peers))
	for i, p := range c.Peers {
		switch {
		case p.ID.Check() != nil:
			errs = append(errs,
				fmt.Errorf("node: config: Peers[%d].ID is %d, %w", i, p.ID, p.ID.Check()))
		case seen[p.ID]:
			errs = append(errs,
				fmt.Errorf("node: config: Peers[%d]: node %d is listed twice", i, p.ID))
		case p.Addr == "":
			errs = append(errs, fmt.Errorf("node: config: Peers[%d]: node %d has no Addr", i, p.ID))
		}
		if err := p.clash(c.Peers[:i]); err != nil {
			errs = append(errs, fmt.Errorf("node: config: Peers[%d]: node %d: %w", i, p.ID, err))
		}
		seen[p.ID] = true
	}
	if err := c.self().clash(nil); err != nil && c.Advertise.advertises() {
		errs = append(errs, fmt.Errorf("node: config: Advertise: %w", err))
	}
	switch {
	case len(c.Peers) == 0:
		errs = append(errs, errors.New("node: config: Peers must list the founding nodes"))
	case c.ID != 0 && !seen[c.ID] && c.Advertise.Addr == "":
		errs = append(errs, fmt.Errorf("node: config: Peers does not list this node, %d, "+
			"and Advertise has no Addr at which the cluster could find it", c.ID))
	}
	return errs
}

func (c Config) validateGroups() []error {
	var errs []error
	seen := make(map[raftyard.GroupID]bool, len(c.Groups))
	for i, s := range c.Groups {
		if seen[s.ID] {
			errs = append(errs,
				fmt.Errorf("node: config: Groups[%d]: group %d is listed twice", i, s.ID))
		}
		seen[s.ID] = true
		if err := c.validateSpec(s); err != nil {
			errs = append(errs, fmt.Errorf("node: config: Groups[%d]: %w", i, err))
		}
	}
	return errs
}

func (c Config) validateSpec(s Spec) error {
	switch {
	case s.ID.CheckUser() != nil:
		return fmt.Errorf("%w: group %d: %w", ErrInvalid, s.ID, s.ID.CheckUser())
	case c.Kinds[s.Kind] == nil:
		return fmt.Errorf("%w: kind %q is not one of %q", ErrInvalid, s.Kind, c.kindNames())
	case len(s.Voters) == 0:
		return fmt.Errorf("%w: a group needs at least one voter", ErrInvalid)
	case s.SnapshotEntries > maxSnapshots || s.TrailingEntries > maxSnapshots:
		return fmt.Errorf("%w: snapshot_entries is %d, trailing_entries %d, want %d at most",
			ErrInvalid, s.SnapshotEntries, s.TrailingEntries, uint64(maxSnapshots))
	}
	return nil
}

func (c Config) kindNames() []string {
	names := make([]string, 0, len(c.Kinds))
	for name := range c.Kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s Spec) withDefaults() Spec {
	s.SnapshotEntries = cmp.Or(s.SnapshotEntries, defaultSnapshots)
	s.TrailingEntries = cmp.Or(s.TrailingEntries, s.SnapshotEntries/2)
	return s
}
