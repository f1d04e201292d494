package node

import (
	"time"

	"github.com/raftyard/raftyard"
)

// A Spec says what a group shall be. See [Node.CreateGroup].
type Spec struct {
	// ID names the group; it must not be zero, which is the system group's.
	ID raftyard.GroupID `json:"id"`

	// Kind names the state machine, one of [Config].Kinds.
	Kind string `json:"kind"`

	// Voters and Learners are the nodes that shall hold a replica.
	Voters   []raftyard.NodeID `json:"voters"`
	Learners []raftyard.NodeID `json:"learners,omitempty"`

	// SnapshotEntries is after how many applied entries the group takes a
	// snapshot and cuts its log, at most 2^40. Default: 10000. There is no way to have none
	// taken: the log would grow for ever.
	SnapshotEntries uint64 `json:"snapshot_entries,omitempty"`

	// TrailingEntries is how many entries before the snapshot stay in the log
	// for followers that are a little behind, at most 2^40. Default: half of
	// SnapshotEntries.
	TrailingEntries uint64 `json:"trailing_entries,omitempty"`
}

// Members is the wanted membership of a group. See [Node.SetMembers].
type Members struct {
	Voters   []raftyard.NodeID `json:"voters"`
	Learners []raftyard.NodeID `json:"learners,omitempty"`

	// ExpectEpoch, when not zero, is the epoch that the group must be at when its leader is
	// asked. Between that and the decision the leader may make the next step of a change
	// that is under way; a change of the record in between is always found.
	ExpectEpoch uint64 `json:"expect_epoch,omitempty"`

	// Force takes members that are down, or short of disk space, too.
	Force bool `json:"force,omitempty"`
}

// MemberStatus is one member of a group, as its descriptor lists it.
type MemberStatus struct {
	Replica raftyard.ReplicaID `json:"replica"`
	Node    raftyard.NodeID    `json:"node"`
	// Role is voter, learner, or during a joint change incoming, outgoing or
	// demoting.
	Role string `json:"role"`
	// Store is the data directory that the replica was given to, or empty if its group
	// does not say.
	Store string `json:"store,omitempty"`
}

// GroupSummary is one line of a list of groups.
type GroupSummary struct {
	ID          raftyard.GroupID  `json:"id"`
	Kind        string            `json:"kind"`
	Incarnation string            `json:"incarnation"`
	Epoch       uint64            `json:"epoch"`
	Voters      []raftyard.NodeID `json:"voters"`   // wanted
	Learners    []raftyard.NodeID `json:"learners"` // wanted
	Members     []MemberStatus    `json:"members"`  // actual, as far as this node knows
	Leader      raftyard.NodeID   `json:"leader"`   // zero: none known
	Term        uint64            `json:"term"`
	// Problems are stable words: no_replica (nobody that was asked has one), seed_lost (nobody
	// has one, and the directory in which the group was to begin is lost or came late),
	// no_leader, joint (a change of voters has been halfway for more than a minute),
	// orphan_learner (a learner that is to be a voter, or to go, has been one for more than
	// ten minutes), under_replicated (a wanted member is missing or not what it is to be,
	// or does not answer), lagging (a member is far behind),
	// faulty (a replica is in quarantine), damaged (one that has lost something that it
	// had stored is among those), poison (the state machines of a majority fail at the same
	// entry), log_only_leader (the leader has no state machine of
	// the kind, so that requests go through other members).
	Problems []string `json:"problems"`
	// Since says when problems began, in UTC: joint and orphan_learner. The replicas that
	// were asked have seen it themselves, so that it is no earlier than their start.
	Since map[string]time.Time `json:"since,omitempty"`
}

// ReplicaStatus is one replica as its own node sees it.
type ReplicaStatus struct {
	Node    raftyard.NodeID    `json:"node"`
	Replica raftyard.ReplicaID `json:"replica"`
	// Role is leader, follower, candidate, pre_candidate, learner or none.
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
	Bytes    int64              `json:"log_bytes"`
	Lag      uint64             `json:"lag"` // behind the highest commit index known for the group
	// Fault says why the replica is in quarantine, or is empty.
	Fault string `json:"fault,omitempty"`
	// Quarantine says more about that; nil: the replica is not in quarantine.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	// SnapshotFault says why its state machine could not give a snapshot for another
	// member the last time, or is empty.
	SnapshotFault string `json:"snapshot_fault,omitempty"`
	// Error says why the node could not be asked, or is empty.
	Error string `json:"error,omitempty"`
	// LogOnly: the node has no state machine of the group's kind, so that the replica
	// keeps the log and has no state. Applied is how far it has followed.
	LogOnly bool `json:"log_only,omitempty"`
	// Asleep: the group has nothing to do, and the replica is not ticked until something
	// happens to it. To be asked for its status does not wake it.
	Asleep bool `json:"asleep,omitempty"`
}

// GroupStatus is everything about one group.
type GroupStatus struct {
	GroupSummary
	SnapshotEntries uint64 `json:"snapshot_entries"`
	TrailingEntries uint64 `json:"trailing_entries"`
	NextReplica     uint64 `json:"next_replica"`
	// Steering is what the leader waits for on its way to the wanted members, or why nobody
	// has a replica, or empty.
	Steering string `json:"steering,omitempty"`
	// Poison is an entry at which the state machines of a majority fail; nil: none.
	Poison   *Poison         `json:"poison,omitempty"`
	Replicas []ReplicaStatus `json:"replicas"`
}

// PeerProgress is what a leader knows of one member.
type PeerProgress struct {
	Replica      raftyard.ReplicaID `json:"replica"`
	Node         raftyard.NodeID    `json:"node"`
	Match        uint64             `json:"match"`
	Next         uint64             `json:"next"`
	State        string             `json:"state"` // probe, replicate, snapshot
	RecentActive bool               `json:"recent_active"`
	Paused       bool               `json:"paused"`
	Inflight     int                `json:"inflight"`
	Learner      bool               `json:"learner"`
}

// RaftStatus is raft's own view of one group on this node.
type RaftStatus struct {
	Group GroupRef `json:"group"`
	ReplicaStatus
	Members      []MemberStatus `json:"members"`
	Progress     []PeerProgress `json:"progress,omitempty"`
	Queued       int            `json:"queued_proposals"`
	Inflight     int            `json:"inflight_proposals"`
	WaitingReads int            `json:"waiting_reads"`
	ApplyQueue   int            `json:"apply_queue"`
	Transferee   uint64         `json:"transferee,omitempty"`
	// Installing: the replica is receiving a snapshot, or its state machine is being
	// restored from one.
	Installing     bool   `json:"installing,omitempty"`
	DurableApplied uint64 `json:"durable_applied"`
	NextReplica    uint64 `json:"next_replica"`
	// Steering is what the leader waits for on its way to the wanted members.
	Steering string `json:"steering,omitempty"`
}

// GroupRef names a group with its incarnation.
type GroupRef struct {
	ID          raftyard.GroupID `json:"id"`
	Incarnation string           `json:"incarnation"`
}

// NodeStatus is one node of the cluster as this node sees it.
type NodeStatus struct {
	ID       raftyard.NodeID   `json:"id"`
	Peer     string            `json:"peer"`
	HTTP     string            `json:"http"`
	Labels   map[string]string `json:"labels,omitempty"`
	Self     bool              `json:"self,omitempty"`
	Live     bool              `json:"live"`
	Replicas int               `json:"replicas"`
	Leaders  int               `json:"leaders"`
	// LogOnly is how many of the replicas have no state machine.
	LogOnly int `json:"log_only,omitempty"`
	// DiskFree and DiskLevel (ok, soft, hard, floor) are of the data directory.
	DiskFree  int64  `json:"disk_free"`
	DiskLevel string `json:"disk_level"`
	// DiskSpeed is ok, slow or stuck, and empty if the node does not tell. SyncMicros is
	// how long a sync takes there, on average, and SyncedMillis how long the last one is
	// ago; a node that has nothing to write writes something every few seconds.
	DiskSpeed    string `json:"disk_speed,omitempty"`
	SyncMicros   int64  `json:"sync_us,omitempty"`
	SyncedMillis int64  `json:"synced_ms,omitempty"`
	// Databases are the node's two databases, with what it has done about their files.
	Databases []DatabaseStatus `json:"databases,omitempty"`

	Version   string `json:"version,omitempty"`
	Boot      uint64 `json:"boot,omitempty"`
	RTTMicros int64  `json:"rtt_us,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// State is active, drained, leaving or removed.
	State string `json:"state"`
	// Store is the data directory that the registry knows, or empty.
	Store string `json:"store,omitempty"`
	// Problem says, for people, why the node is not as it should be, or is empty.
	Problem string `json:"problem,omitempty"`
}

// Status is what GET /v1/status answers: this node and what it knows of the cluster.
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
	Nodes     []NodeStatus    `json:"nodes"`
	Groups    GroupCounts     `json:"groups"`
	// System is the system group, which holds the registry.
	System GroupSummary `json:"system"`
	// Problems lists the groups that need somebody's attention, at most 100.
	Problems []GroupSummary `json:"problems"`
}

// GroupCounts sums the groups up.
type GroupCounts struct {
	Total       int `json:"total"`
	Replicas    int `json:"replicas"` // on this node
	Leaders     int `json:"leaders"`  // on this node
	WithProblem int `json:"with_problem"`
}

// Check is one named part of a node's readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// SnapshotInfo describes a snapshot that was taken.
type SnapshotInfo struct {
	Group raftyard.GroupID `json:"group"`
	Node  raftyard.NodeID  `json:"node"`
	Index uint64           `json:"index"`
	Term  uint64           `json:"term"`
	Bytes int64            `json:"bytes"`
}

// HashInfo is a state machine's content hash on one node.
type HashInfo struct {
	Group raftyard.GroupID `json:"group"`
	Node  raftyard.NodeID  `json:"node"`
	Index uint64           `json:"index"`
	Hash  string           `json:"hash"` // hexadecimal
}
