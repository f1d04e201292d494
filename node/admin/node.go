package admin

import (
	"context"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/kv"
	"github.com/raftyard/raftyard/node"
)

// A Node is what the handler serves. [node.Node] is one.
type Node interface {
	Groups
	Members
	Replicas
	Cluster
	Nodes
}

// Groups is the registry of groups.
type Groups interface {
	Groups(ctx context.Context, f node.GroupFilter) ([]node.GroupSummary, raftyard.GroupID, error)
	Group(ctx context.Context, id raftyard.GroupID) (node.GroupStatus, error)
	CreateGroup(ctx context.Context, spec node.Spec) (created bool, err error)
	Deletion
}

// Deletion ends groups.
type Deletion interface {
	DeleteGroup(ctx context.Context, id raftyard.GroupID) error
	ForceDeleteGroup(
		ctx context.Context, id raftyard.GroupID, confirm raftyard.Incarnation,
	) error
	ForgetGroup(ctx context.Context, id raftyard.GroupID) error
}

// Members says which nodes shall hold a group.
type Members interface {
	SetMembers(
		ctx context.Context, id raftyard.GroupID, m node.Members, wait bool,
	) (node.GroupStatus, error)
	AddLearner(
		ctx context.Context, id raftyard.GroupID, on raftyard.NodeID,
	) (node.GroupStatus, error)
	RemoveLearner(
		ctx context.Context, id raftyard.GroupID, on raftyard.NodeID,
	) (node.GroupStatus, error)
}

// Replicas acts on the replicas of one group.
type Replicas interface {
	TransferLeader(ctx context.Context, id raftyard.GroupID, to raftyard.NodeID) error
	TakeSnapshot(ctx context.Context, id raftyard.GroupID) (node.SnapshotInfo, error)
	RaftStatus(ctx context.Context, id raftyard.GroupID) (node.RaftStatus, error)
	Hash(ctx context.Context, id raftyard.GroupID, index uint64) (node.HashInfo, error)
	Menders
}

// Cluster is the node itself and the nodes it knows.
type Cluster interface {
	Status(ctx context.Context) node.Status
	Nodes(ctx context.Context) []node.NodeStatus
	NodeStatus(ctx context.Context, id raftyard.NodeID) (node.NodeStatus, error)
	Health
}

// Health is whether the node works, and whether it is part of its cluster.
type Health interface {
	Ready() (bool, []node.Check)
	Live() error
	Outside() error
}

// Nodes has nodes join, rest and leave.
type Nodes interface {
	PutNode(ctx context.Context, spec node.NodeSpec) (created bool, err error)
	DrainNode(ctx context.Context, id raftyard.NodeID) (node.NodeStatus, error)
	UndrainNode(ctx context.Context, id raftyard.NodeID) (node.NodeStatus, error)
	RemoveNode(
		ctx context.Context, id raftyard.NodeID, force bool,
	) (node.NodeStatus, error)
}

// A KeyValues is the data of the groups of kind kv. [kv.Client] is one.
type KeyValues interface {
	Put(
		ctx context.Context, id raftyard.GroupID, key, value []byte, cond kv.Cond,
	) (revision uint64, created bool, err error)
	Get(
		ctx context.Context, id raftyard.GroupID, key []byte, how node.Consistency,
	) (kv.Value, error)
	Delete(
		ctx context.Context, id raftyard.GroupID, key []byte, cond kv.Cond,
	) (deleted bool, revision uint64, err error)
	List(ctx context.Context, id raftyard.GroupID, r kv.ListRequest) (kv.ListResult, error)
	Txn(ctx context.Context, id raftyard.GroupID, t kv.Txn) (kv.TxnResult, error)
}
