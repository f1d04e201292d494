package client

import (
	"time"

	"github.com/raftyard/raftyard"
)

// Spec says what a group shall be.
type Spec struct {
	Kind     string            `json:"kind"`
	Voters   []raftyard.NodeID `json:"voters"`
	Learners []raftyard.NodeID `json:"learners,omitempty"`
	// Zero means the node's default.
	SnapshotEntries uint64 `json:"snapshot_entries,omitempty"`
	TrailingEntries uint64 `json:"trailing_entries,omitempty"`
}

// Members is the wanted membership of a group.
type Members struct {
	Voters      []raftyard.NodeID `json:"voters"`
	Learners    []raftyard.NodeID `json:"learners,omitempty"`
	ExpectEpoch uint64            `json:"expect_epoch,omitempty"` // zero: any
	// Force takes voters of whom no majority is alive.
	Force bool `json:"force,omitempty"`
}

// Member is one member of a group.
type Member struct {
	Replica raftyard.ReplicaID `json:"replica"`
	Node    raftyard.NodeID    `json:"node"`
	Role    string             `json:"role"`
	Store   string             `json:"store,omitempty"`
}

// GroupSummary is one line of a list of groups.
type GroupSummary struct {
	ID          raftyard.GroupID  `json:"id"`
	Kind        string            `json:"kind"`
	Incarnation string            `json:"incarnation"`
	Epoch       uint64            `json:"epoch"`
	Voters      []raftyard.NodeID `json:"voters"`
	Learners    []raftyard.NodeID `json:"learners"`
	Members     []Member          `json:"members"`
	Leader      raftyard.NodeID   `json:"leader"`
	Term        uint64            `json:"term"`
	Problems    []string          `json:"problems"`
	// Since says when problems began, as far as that is known.
	Since map[string]time.Time `json:"since,omitempty"`
}

// Replica is one replica of a group as its own node sees it.
type Replica struct {
	Node     raftyard.NodeID    `json:"node"`
	Replica  raftyard.ReplicaID `json:"replica"`
	Role     string             `json:"role"`
	Term     uint64             `json:"term"`
	Vote     raftyard.ReplicaID `json:"vote"`
	Leader   raftyard.ReplicaID `json:"leader"`
	Epoch    uint64             `json:"epoch"`
	First    uint64             `json:"first"`
	Last     uint64             `json:"last"`
	Commit   uint64             `json:"commit"`
	Applied  uint64             `json:"applied"`
	Snapshot uint64             `json:"snapshot"`
	LogBytes int64              `json:"log_bytes"`
	Lag      uint64             `json:"lag"`
	Fault    string             `json:"fault,omitempty"`
	// Quarantine is why it is out of service; nil: it is not.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// SnapshotFault is why it could not give a snapshot for another member the last time.
	SnapshotFault string `json:"snapshot_fault,omitempty"`
	Error         string `json:"error,omitempty"`
	// LogOnly: its node does not know the group's kind. It keeps the log and votes,
	// and has no state.
	LogOnly bool `json:"log_only,omitempty"`
	// Asleep: the group has nothing to do, and the replica costs nothing until something
	// happens to it.
	Asleep bool `json:"asleep,omitempty"`
}

// Quarantine says why a replica is out of service.
type Quarantine struct {
	// Reason is damaged_log, damaged_state, machine_failed, machine_panicked,
	// raft_panicked, poison_entry or refused_write. There may be more in later versions.
	Reason string `json:"reason"`
	Detail string `json:"detail"` // for people
	// Index is the entry of the log that it is about, in Term; zero: none, or not known.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`
	// EntryBytes is the size of that entry, EntryHash the SHA-256 of its first 4096 bytes.
	EntryBytes int64     `json:"entry_bytes,omitempty"`
	EntryHash  string    `json:"entry_hash,omitempty"`
	Since      time.Time `json:"since"`
	// Votes: it keeps its log and votes; only its state machine stands still.
	Votes bool `json:"votes,omitempty"`
	// Events are the last things that happened to it, the oldest first.
	Events []string `json:"events,omitempty"`
}

// Poison is an entry of a group's log at which the state machines of a majority fail. See
// [Client.SkipEntry].
type Poison struct {
	Index uint64            `json:"index"`
	Term  uint64            `json:"term"`
	Bytes int64             `json:"bytes"`
	Hash  string            `json:"hash"` // SHA-256 of its first 4096 bytes, hexadecimal
	Nodes []raftyard.NodeID `json:"nodes"`
}

// Group is everything about one group.
type Group struct {
	GroupSummary
	SnapshotEntries uint64 `json:"snapshot_entries"`
	TrailingEntries uint64 `json:"trailing_entries"`
	NextReplica     uint64 `json:"next_replica"`
	// Steering is what the leader waits for on its way to the wanted members; empty:
	// for nothing.
	Steering string `json:"steering,omitempty"`
	// Poison is an entry at which the state machines of a majority fail; nil: none.
	Poison   *Poison   `json:"poison,omitempty"`
	Replicas []Replica `json:"replicas"`
}

// CreatedGroup answers the creation of a group.
type CreatedGroup struct {
	Group
	Created bool `json:"created"` // it was not there before
}

// Groups is one page of a list of groups.
type Groups struct {
	Groups     []GroupSummary `json:"groups"`
	NextCursor string         `json:"next_cursor,omitempty"` // empty: that was all
}

// Node is one node of the cluster as the asked one sees it.
type Node struct {
	ID       raftyard.NodeID   `json:"id"`
	Peer     string            `json:"peer"`
	HTTP     string            `json:"http"`
	Labels   map[string]string `json:"labels,omitempty"`
	Self     bool              `json:"self,omitempty"`
	Live     bool              `json:"live"`
	Replicas int               `json:"replicas"`
	Leaders  int               `json:"leaders"`
	// LogOnly is how many of the replicas have no state machine.
	LogOnly   int    `json:"log_only,omitempty"`
	DiskFree  int64  `json:"disk_free"`
	DiskLevel string `json:"disk_level"`
	// DiskSpeed is ok, slow or stuck; SyncMicros is how long a sync takes on average, and
	// SyncedMillis how long the last one is ago.
	DiskSpeed    string `json:"disk_speed,omitempty"`
	SyncMicros   int64  `json:"sync_us,omitempty"`
	SyncedMillis int64  `json:"synced_ms,omitempty"`
	// Databases are its two databases, with what it has done about their files.
	Databases []Database `json:"databases,omitempty"`

	Version   string `json:"version,omitempty"`
	Boot      uint64 `json:"boot,omitempty"`
	RTTMicros int64  `json:"rtt_us,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// State is active, drained, leaving or removed.
	State string `json:"state"`
	// Store is the UUID of its data directory, as the registry knows it; empty: it has
	// not been there yet.
	Store string `json:"store,omitempty"`
	// Problem is why it is not as it should be, for people; empty: it is.
	Problem string `json:"problem,omitempty"`
}

// Database is one of a node's two databases, with what the node has done about its files since
// it was started.
type Database struct {
	Name       string `json:"name"` // log or state
	TableBytes int64  `json:"table_bytes"`
	// ValueBytes are the files that are kept for large records of the log, and LiveValueBytes
	// what counts in them.
	ValueBytes     int64 `json:"value_bytes,omitempty"`
	LiveValueBytes int64 `json:"live_value_bytes,omitempty"`
	// Reclaims is how often disk space was returned, ReclaimsFailed how often that failed, and
	// ReclaimedBytes how much it was; Reclaimed is when it was last done.
	Reclaims       uint64    `json:"reclaims"`
	ReclaimsFailed uint64    `json:"reclaims_failed"`
	ReclaimedBytes uint64    `json:"reclaimed_bytes"`
	Reclaimed      time.Time `json:"reclaimed,omitzero"`
	// Scrubs is how often all tables were read and compared with their checksums, and
	// Scrubbed when that was last done.
	Scrubs   uint64    `json:"scrubs"`
	Scrubbed time.Time `json:"scrubbed,omitzero"`
	// Damaged are the tables in use that are damaged, and what is wrong with them.
	Damaged []string `json:"damaged,omitempty"`
}

// NodeSpec says where a node is reached.
type NodeSpec struct {
	Peer   string            `json:"peer"` // by other nodes, host:port
	HTTP   string            `json:"http"` // host:port
	Labels map[string]string `json:"labels,omitempty"`
}

// PutNode answers [Client.PutNode].
type PutNode struct {
	Node
	Created bool `json:"created"` // it was not there before
}

// Nodes is the list of nodes.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Check is one named part of a node's readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Counts sums the groups up.
type Counts struct {
	Total       int `json:"total"`
	Replicas    int `json:"replicas"`
	Leaders     int `json:"leaders"`
	WithProblem int `json:"with_problem"`
}

// Status is a node and what it knows of the cluster.
type Status struct {
	Cluster   string          `json:"cluster"`
	ClusterID string          `json:"cluster_id"`
	Node      raftyard.NodeID `json:"node"`
	Store     string          `json:"store"`
	Boot      uint64          `json:"boot"`
	Version   string          `json:"version"`
	Started   time.Time       `json:"started"`
	Ready     bool            `json:"ready"`
	Checks    []Check         `json:"checks"`
	Nodes     []Node          `json:"nodes"`
	Groups    Counts          `json:"groups"`
	// System is the system group, which holds the registry.
	System GroupSummary `json:"system"`
	// Problems are groups with one, at most 100.
	Problems []GroupSummary `json:"problems"`
}

// Snapshot describes a snapshot that was taken.
type Snapshot struct {
	Group raftyard.GroupID `json:"group"`
	Node  raftyard.NodeID  `json:"node"`
	Index uint64           `json:"index"`
	Term  uint64           `json:"term"`
	Bytes int64            `json:"bytes"`
}

// Hash is the content hash of a group's state machine on one node.
type Hash struct {
	Group raftyard.GroupID `json:"group"`
	Node  raftyard.NodeID  `json:"node"`
	Index uint64           `json:"index"`
	Hash  string           `json:"hash"`
}

// Transferred answers a transfer of leadership.
type Transferred struct {
	Group  raftyard.GroupID `json:"group"`
	Leader raftyard.NodeID  `json:"leader"`
}

// Transfer asks for one.
type Transfer struct {
	To raftyard.NodeID `json:"to"`
}

// Deleted answers the deletion of a group.
type Deleted struct {
	Group   raftyard.GroupID `json:"group"`
	Deleted bool             `json:"deleted"`
	// Pending says which members are not known to have stopped: they stop when they hear
	// of the deletion. Empty: nothing is acknowledged by the group any more.
	Pending string `json:"pending,omitempty"`
}

// Forgotten answers [Client.ForgetGroup].
type Forgotten struct {
	Group     raftyard.GroupID `json:"group"`
	Forgotten bool             `json:"forgotten"`
}
