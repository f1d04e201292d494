package sim

import (
	"cmp"
	"io"
	"math/rand/v2"
	"time"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/test/sim/internal/turns"
)

// FS is the file system of a simulated node. It has MkdirAll, Create, CreateNew, Open,
// OpenWrite, ReadFile, ReadDir, Exists, Rename, Remove, RemoveAll, SyncDir and Lock,
// which work as those of package os do. A program that keeps files has an interface
// of those that it needs, with package os behind it in production.
type FS = vfs.FS

// File is an open file of an [FS]: a reader and a writer, also at a position, with
// Sync and Close.
type File = vfs.File

// A Kind returns the factory of a node's state machines. It is called at each start
// of a node, and what it makes must share nothing with other nodes and starts.
//
// What state machines keep on disk they must keep in files, below [group.Env.Dir],
// or a crash does not touch it: what was written and not synced may be lost then, in
// whole or in part, and so may names in a directory that was not synced. They must
// start no goroutines, look at no clock and throw no dice. A sync takes virtual time,
// in which other processes of the node run: a lock that is held over one, and that
// Query takes too, stops the simulation for good.
type Kind func(files FS) group.Factory

// Config says what is simulated. The zero value of every field means "the seed
// decides".
type Config struct {
	Seed uint64

	// Nodes and Groups are how many there are, and Clients how many work with them
	// at a time, each asking Ops times.
	Nodes, Groups, Clients, Ops int

	// SleepTicks is that of the nodes. Zero: the seed decides.
	SleepTicks int

	// Guests is how many nodes more there are to join the cluster.
	Guests int

	// Chaos is how long the first phase lasts in virtual time, if clients are not done
	// before. It lasts longer if hardly anything was done by then.
	Chaos time.Duration

	// Schedule are the faults. Nil: those that the seed makes. Empty: none.
	Schedule Schedule

	// LifeCycle has groups, members and replicas come and go all the time, amid faults,
	// rather than everything fail now and then.
	LifeCycle bool

	// Kinds are the state machines of groups, of which the seed takes one for each.
	// Default: registers in memory, and on disk.
	//
	// They are watched: what they apply, answer and restore, and their hashes if they
	// have any, must be the same on all replicas, and what a client was told. So
	// [node.View] does not see them by their own types; [View] does.
	Kinds map[string]Kind

	// Lacking are nodes that know no kind: their replicas keep the log only. Nil: with
	// the default Kinds the seed decides, in some seeds one node, at most of its starts;
	// with others none. A group whose members all lack its kind can answer nothing.
	Lacking []raftyard.NodeID

	// Bare leaves Kinds unwatched, for a program that uses node.View itself. Then only
	// the workload tells whether its state is right.
	Bare bool

	// Workload is what a client does, until it returns; it must return soon after
	// [Client.Running] has become false. Default: it reads and writes registers,
	// and the history is checked.
	Workload func(c *Client)

	// Audit, if set, is called once, when all faults are over and everything is well.
	// What is asked then must succeed.
	Audit func(c *Client)

	// Prepare, if set, is called at the beginning of each run with the run's own copy
	// of the configuration. A Workload that remembers something belongs here: a
	// failure is run again many times to make it smaller, and must find nothing
	// from the run before.
	Prepare func(c *Config)

	// Lines is how many events are kept to be shown after a failure. Default: 200.
	Lines int

	// Live gets every event as it comes.
	Live io.Writer
}

// setup is what the seed has decided about a cluster.
type setup struct {
	nodes, groups, clients, ops int
	guests                      int
	chaos                       time.Duration

	tick      time.Duration
	election  int
	heartbeat int
	workers   int
	appliers  int
	limits    group.Limits
	policy    turns.Policy
	latency   time.Duration
	deadAfter time.Duration
	syncTime  time.Duration // of a sync
	drift     float64       // clocks run so much faster or slower at the most

	snapshotEntries, trailing uint64

	sleep int // ticks after which groups sleep; negative: never

	lacking raftyard.NodeID // does not know the kinds now and then; zero: none
}

// newSetup lets the dice decide what the configuration leaves open.
func newSetup(c *Config, d *rand.Rand) setup {
	s := setup{
		nodes:   3 + 2*d.IntN(2) - d.IntN(2)*d.IntN(2),
		groups:  1 + d.IntN(3),
		clients: 2 + d.IntN(5),
		ops:     20 + d.IntN(60),
		chaos:   time.Duration(3+d.IntN(6)) * time.Second,

		tick:     time.Duration(20+d.IntN(80)) * time.Millisecond,
		election: 3 + d.IntN(8),
		workers:  1 + d.IntN(2),
		appliers: 1 + d.IntN(3),
		policy:   turns.Policy(d.IntN(3)),
		latency:  time.Duration(100+d.IntN(2000)) * time.Microsecond,
		syncTime: time.Duration(d.IntN(3)*d.IntN(2000)) * time.Microsecond,
		drift:    float64(d.IntN(3)) * 0.1,

		snapshotEntries: 3 + d.Uint64N(1+d.Uint64N(50)),
		trailing:        1 + d.Uint64N(1+d.Uint64N(20)),
	}
	s.heartbeat = 1
	if s.election > 4 {
		s.heartbeat = 1 + d.IntN(2)
	}
	s.deadAfter = time.Duration(200+d.IntN(1800)) * time.Millisecond
	if d.IntN(3) == 0 {
		s.limits = group.Limits{
			MaxEntryBytes: 4096, MaxSizePerMsg: 4096, MaxInflightMsgs: 1 + d.IntN(2),
			MaxInflightBytes: 8192, MaxCommittedSizePerReady: 4096,
			MaxBatchCommands: 1 + d.IntN(4), MaxInflightBatches: 1 + d.IntN(3),
		}
	}
	lacks, lacking := d.IntN(3) == 0, d.Uint64()
	s.guests = c.Guests
	if c.LifeCycle {
		s.guests = cmp.Or(s.guests, d.IntN(3))
	}
	s.nodes = cmp.Or(c.Nodes, s.nodes)
	s.groups = cmp.Or(c.Groups, s.groups)
	s.clients = cmp.Or(c.Clients, s.clients)
	s.ops = cmp.Or(c.Ops, s.ops)
	s.chaos = cmp.Or(c.Chaos, s.chaos)
	s.sleep = 1 + d.IntN(2*s.election)
	if d.IntN(5) == 0 {
		s.sleep = -1
	}
	s.sleep = cmp.Or(c.SleepTicks, s.sleep)
	if lacks && s.nodes > 2 && c.Kinds == nil {
		s.lacking = raftyard.NodeID(lacking%uint64(s.nodes) + 1)
	}
	return s
}
