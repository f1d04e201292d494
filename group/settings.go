package group

import (
	"go.etcd.io/raft/v3"

	"github.com/raftyard/raftyard"
)

// settings are what a replica keeps of its [Config] for as long as it lives: there may be
// many thousands of them, most of which have nothing to do.
type settings struct {
	Group       raftyard.GroupID
	Incarnation raftyard.Incarnation
	Node        raftyard.NodeID
	Replica     raftyard.ReplicaID
	Store       raftyard.StoreID
	Storage     raft.Storage

	ElectionTicks  int
	HeartbeatTicks int
}

func (c *Config) settings() settings {
	return settings{
		Group: c.Group, Incarnation: c.Incarnation, Node: c.Node, Replica: c.Replica,
		Store: c.Store, Storage: c.Storage,
		ElectionTicks: c.ElectionTicks, HeartbeatTicks: c.HeartbeatTicks,
	}
}

// owns reports whether the member may be this replica, as far as the directories tell.
func (s *settings) owns(m Member) bool {
	return s.Store.IsZero() || m.Store.IsZero() || s.Store == m.Store
}

// proposalLimits are those of [Limits] that concern proposals.
type proposalLimits struct {
	MaxEntryBytes      int64
	MaxBatchCommands   int
	MaxInflightBatches int
	MaxQueuedProposals int
	MaxQueuedBytes     int64
}

func (l *Limits) ofProposals() proposalLimits {
	return proposalLimits{
		MaxEntryBytes: l.MaxEntryBytes, MaxBatchCommands: l.MaxBatchCommands,
		MaxInflightBatches: l.MaxInflightBatches, MaxQueuedProposals: l.MaxQueuedProposals,
		MaxQueuedBytes: l.MaxQueuedBytes,
	}
}
