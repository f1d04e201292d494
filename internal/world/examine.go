package world

import (
	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
)

// Examined is what the simulator sees of a node between two of its steps.
type Examined struct {
	Node     raftyard.NodeID
	Replicas []Replica         // by group
	Stored   []storage.Replica // by group, tombstones too
	Starts   Starts
}

// Starts tells how often other nodes were started, as far as a node has noted durably.
type Starts interface {
	// Noted returns the start of a node that was noted last, or zero.
	Noted(id raftyard.NodeID) uint64
}

// Replica is one replica of a node.
type Replica struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	ID          raftyard.ReplicaID

	// Serving is false once the replica serves nobody any more; Fault is why it was
	// stopped, if it was.
	Serving bool
	Fault   error

	// Broken is why its state machine has failed, if it has. The replica may go on without.
	Broken error

	// Lives is how often the replica was opened again since the node has started. Each
	// time its state machine begins anew, where it is durable.
	Lives int

	// Raft's own view as of the replica's last step. It is zero while the replica has
	// no raft state, because it could not be opened.
	Role     group.RaftRole
	Term     uint64
	Vote     raftyard.ReplicaID
	Leader   raftyard.ReplicaID
	Commit   uint64
	First    uint64
	Last     uint64
	HandedTo uint64 // the last index that was handed to the state machine

	// Applied is the last index that the state machine has applied; without one, LogOnly,
	// how far the replica has followed.
	Applied uint64
	LogOnly bool

	// Asleep: it has no state machine, and no state without one: an earlier start's state
	// machine has it.
	Asleep bool

	// Dormant: its group sleeps, and it with it. Wakes is how often it has woken.
	// Without has the nodes of the members of which a leader took the nodes for gone then.
	Dormant bool
	Wakes   uint64
	Without []raftyard.NodeID

	// State is the members as of the last step whose save is under way or done.
	State group.State

	// Log is what is durable; nil while it cannot be opened.
	Log *storage.Log
}
