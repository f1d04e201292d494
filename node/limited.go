package node

import (
	"sync/atomic"

	"github.com/raftyard/raftyard/storage"
)

// limit is one of the limits of memory over which the node itself refuses something.
type limit uint8

const (
	workerQueueLimit limit = iota
	proposalLimit
	unsavedLimit
	applyBacklogLimit
	snapshotSendLimit
	numLimits
)

// refuse counts that something was not taken because of a limit.
func (c *counters) refuse(why limit) { c.refused[why].Add(1) }

// A Limited is what is known of one limit of memory.
type Limited struct {
	Used    int64  // now
	Most    int64  // what the limit is; zero: what is limited is not there
	Refused uint64 // how often something was refused, or dropped, for it
}

// Limits are the limits of what a node keeps in memory, with how much of each is used. Sizes
// are in bytes, and of all groups together where nothing else is said.
type Limits struct {
	// PeerRequests and PeerRequestBytes are of requests of other nodes that are served here,
	// and of their answers. Those beyond the share of one node count as PeerRequests.
	PeerRequests, PeerRequestBytes Limited

	// PeerQueueBytes is of messages that wait to be sent to one other node, the one for which
	// most wait. Requests of this node that were refused count, too.
	PeerQueueBytes Limited

	// WorkerQueueBytes is of messages and proposals that wait for one worker, the one for
	// which most wait. Refused is also what was too much in number, reads among it.
	WorkerQueueBytes Limited

	// ProposalBytes: Used is of the proposals that wait in all groups, Most what may wait in
	// each.
	ProposalBytes Limited

	// UnsavedBytes is of entries that leaders have sent and that are not durable yet, and
	// ApplyBacklogBytes of committed commands that wait for state machines. Groups that have
	// none may have as much again.
	UnsavedBytes, ApplyBacklogBytes Limited

	// EntryCacheBytes is of entries that are kept for followers and state machines. Nothing is
	// refused: the oldest go.
	EntryCacheBytes Limited

	// SnapshotSends and SnapshotReceives are of snapshots under way.
	SnapshotSends, SnapshotReceives Limited

	// LogMemtables and StateMemtables are of the write buffers of both databases. Nothing is
	// refused: writes wait. StateBlockCache and StateIndexCache are caches.
	LogMemtables, StateMemtables     Limited
	StateBlockCache, StateIndexCache Limited
}

// limitMetrics are the figures of the limits. All else of m is there.
func (n *Node) limitMetrics(m *Metrics) {
	b, tr, l := &n.cfg.Bounds, &m.Transport, &m.Limits
	refused := func(why limit) uint64 { return n.metrics.refused[why].Load() }
	l.PeerRequests = Limited{
		Used: int64(tr.RequestsServing), Most: int64(b.PeerRequests),
		Refused: tr.RequestsBusy - tr.RequestsNoRoom,
	}
	l.PeerRequestBytes = Limited{
		Used: tr.RequestBytes, Most: b.PeerRequestBytes,
		Refused: tr.RequestsNoRoom + tr.AnswersNoRoom,
	}
	l.PeerQueueBytes = Limited{
		Most:    b.PeerQueueBytes,
		Refused: tr.DroppedBy["queue_full"] + tr.RequestsNotQueued,
	}
	for i := range m.Peers {
		l.PeerQueueBytes.Used = max(l.PeerQueueBytes.Used, m.Peers[i].QueueBytes)
	}
	l.WorkerQueueBytes = Limited{Most: b.WorkerQueueBytes, Refused: refused(workerQueueLimit)}
	for _, w := range n.workers {
		l.WorkerQueueBytes.Used = max(l.WorkerQueueBytes.Used, w.box.waits())
	}
	l.ProposalBytes = Limited{
		Used: n.proposing.Load(), Most: mostQueued(n.cfg.Limits), Refused: refused(proposalLimit),
	}
	l.UnsavedBytes = Limited{
		Used: m.UnsavedBytes, Most: b.UnsavedBytes, Refused: refused(unsavedLimit),
	}
	l.ApplyBacklogBytes = Limited{
		Used: m.ApplyBacklogBytes, Most: b.ApplyBacklogBytes, Refused: refused(applyBacklogLimit),
	}
	l.EntryCacheBytes = Limited{Used: m.Store.CacheBytes, Most: n.cfg.CacheBytes}
	l.SnapshotSends = Limited{
		Used: int64(tr.SnapshotsSending), Most: int64(n.cfg.SnapshotSends),
		Refused: refused(snapshotSendLimit),
	}
	l.SnapshotReceives = Limited{
		Used: int64(tr.SnapshotsReceiving), Most: int64(n.cfg.SnapshotReceives),
		Refused: tr.SnapshotsBusy,
	}
	l.LogMemtables, l.StateMemtables = memtables(&m.LogUpkeep), memtables(&m.StateUpkeep)
	states := &m.StateUpkeep.Memory
	l.StateBlockCache = Limited{Used: states.BlockCacheBytes, Most: states.MaxBlockCacheBytes}
	l.StateIndexCache = Limited{Used: states.IndexCacheBytes, Most: states.MaxIndexCacheBytes}
}

func memtables(u *storage.Upkeep) Limited {
	return Limited{Used: u.Memory.MemtableBytes, Most: u.Memory.MaxMemtableBytes}
}

// countProposals counts anew what waits in a replica's queue of proposals. In one that serves
// nobody any more nothing waits, whatever is left there.
func (w *worker) countProposals(r *replica) {
	var waiting int64
	if r.raft != nil && r.serving() { // or it was never started
		waiting = r.raft.QueuedBytes()
	}
	if more := waiting - r.proposing; more != 0 {
		r.proposing = waiting
		w.node.proposing.Add(more)
	}
}

// refusals are counts by limit.
type refusals [numLimits]atomic.Uint64
