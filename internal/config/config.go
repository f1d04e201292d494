// Package config reads the daemon's configuration: a YAML file, the environment
// and the flags, merged key by key over the defaults.
//
//	loaded, err := config.Load(config.Sources{File: "node.yaml", LookupEnv: os.LookupEnv})
//
// Flags win over the environment, over the file, over the defaults, always key by
// key: one flag never hides a whole file. Every problem of every layer is found in
// one go, and each names where it is, the key, the value and what is wanted.
// Loading reads, and never writes anything anywhere.
package config

import (
	"time"

	"github.com/raftyard/raftyard"
)

// Config is what a daemon needs to know. It is the merged result of all layers.
type Config struct {
	// Cluster is the name of the cluster. Nodes of another one are refused.
	Cluster string

	Node      Node
	Listen    Listen
	Advertise Advertise

	// Nodes is the first address book of the cluster, the same on every node,
	// ordered as written: the nodes that it is founded with. It does not hold this
	// node if this node joins later.
	Nodes []Peer

	// Groups are created when they are missing. They are never deleted because
	// they are missing here.
	Groups []Group

	Raft   Raft
	Disk   Disk
	Limits Limits
	Log    Log
}

// Node is what is said about this node itself.
type Node struct {
	ID      raftyard.NodeID
	DataDir string
}

// Listen holds the addresses to bind, host:port each.
type Listen struct {
	HTTP string // clients and operators
	Peer string // other nodes
}

// Advertise holds the addresses that others dial to reach this node, host:port each.
type Advertise struct {
	HTTP string // may be empty
	Peer string
}

// Peer is one line of the address book.
type Peer struct {
	ID     raftyard.NodeID
	Peer   string // host:port that other nodes dial
	HTTP   string // host:port of its HTTP address, or empty
	Labels map[string]string
}

// Group is a group that shall exist.
type Group struct {
	ID       raftyard.GroupID
	Kind     string
	Voters   []raftyard.NodeID
	Learners []raftyard.NodeID

	// SnapshotEntries and TrailingEntries are zero when not given; the node then
	// uses its defaults.
	SnapshotEntries uint64
	TrailingEntries uint64
}

// Disk says from when on a sync of the disk is slow, stuck and failed. Each is longer than
// the one before it.
type Disk struct {
	SlowSync  time.Duration // leaderships move away
	StuckSync time.Duration // leaderships are resigned
	FailSync  time.Duration // the node ends

	// ScrubRate is how many bytes a second of each database are read to find damage; 0: none.
	ScrubRate int64
	// SnapshotRate is how many bytes of snapshots are sent a second, and how many received.
	SnapshotRate int64
}

// Limits says how much a node may keep in memory of what others make it keep. Sizes are in
// bytes. Zero, which a loaded configuration has nowhere, is the default of what is limited.
type Limits struct {
	// Memory is from how much on garbage is collected more often: no bound, but what the
	// process is held to as long as what is in use allows that.
	Memory int64

	HTTPConnections int   // and a quarter of the descriptors at most
	HTTPRequests    int   // that are served at once
	HTTPBodyBytes   int64 // of requests in memory
	HTTPAnswerBytes int64 // of values in memory whose answers are not sent yet

	PeerRequests     int   // of other nodes that are served at once
	PeerRequestBytes int64 // of those, and of their answers
	PeerQueueBytes   int64 // that wait to be sent to one other node: messages, and requests

	WorkerQueueBytes  int64 // of messages and proposals that wait for one worker
	ProposalBytes     int64 // of proposals that wait in one group
	UnsavedBytes      int64 // of entries that leaders have sent and that are not durable yet
	ApplyBacklogBytes int64 // of committed commands that wait for state machines
	EntryCacheBytes   int64 // of entries that are kept for followers and state machines

	SnapshotSends    int // at once
	SnapshotReceives int

	StateBlockCacheBytes int64 // of the state database
	StateIndexCacheBytes int64
}

// Raft holds raft's clock. The length of an election timeout is Tick times
// ElectionTicks.
type Raft struct {
	Tick           time.Duration
	ElectionTicks  int
	HeartbeatTicks int
	SleepTicks     int // 0: groups never sleep
}

// Log says what the daemon logs, and how.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// Limits of what a configuration may ask for.
const (
	maxFileBytes = 1 << 20
	maxNodes     = 1024
	maxGroups    = 100_000
	maxVoters    = 15

	minSync          = 10 * time.Millisecond
	maxSync          = time.Hour
	minTick          = 5 * time.Millisecond
	maxTick          = 10 * time.Second
	minElectionTicks = 3
	maxTicks         = 1000
	maxScrubRate     = 1 << 30
	// minTickRatio is how many heartbeats an election timeout must hold: with
	// fewer, one lost heartbeat deposes a healthy leader.
	minTickRatio = 3

	maxIndexEntries = 1 << 40 // snapshot_entries, trailing_entries
	maxNameBytes    = 64

	defaultSnapshotEntries = 10_000 // of a group that names none
)

// Levels returns the words that log.level may be, from loud to quiet.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// Formats returns the words that log.format may be.
func Formats() []string { return []string{"text", "json"} }

// Kinds returns the kinds of group that the daemon knows.
func Kinds() []string { return []string{"kv"} }
