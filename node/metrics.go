package node

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// counters are what a node counts while it works. All but asleep rise only.
type counters struct {
	messagesRefused     atomic.Uint64 // by raft or by the node's own checks
	messagesDropped     atomic.Uint64 // a worker's mailbox was full
	messagesStrange     atomic.Uint64 // for a replica that is not here
	messagesUnaddressed atomic.Uint64 // to a member whose node is not known
	noticesSent         atomic.Uint64 // to senders of messages that could not be used

	proposalsApplied    atomic.Uint64
	proposalsNotApplied atomic.Uint64
	proposalsUnknown    atomic.Uint64
	reads               atomic.Uint64
	leaderChanges       atomic.Uint64
	replicasStopped     atomic.Uint64
	refused             refusals      // by limit
	leadersShed         atomic.Uint64 // that others have taken because of the disk
	asleep              atomic.Int64  // replicas, now
	wakes               [numWakeReasons]atomic.Uint64

	snapshotsTaken     atomic.Uint64
	snapshotsSent      atomic.Uint64
	snapshotsFailed    atomic.Uint64 // could not be sent
	snapshotsPostponed atomic.Uint64 // could not be taken
	snapshotsReceived  atomic.Uint64
	snapshotsInstalled atomic.Uint64
}

type outcome uint8

const (
	applied outcome = iota
	notApplied
	unknown
)

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return applied
	case errors.Is(err, ErrUnknownOutcome):
		return unknown
	default:
		return notApplied
	}
}

func (c *counters) count(o outcome) {
	switch o {
	case applied:
		c.proposalsApplied.Add(1)
	case notApplied:
		c.proposalsNotApplied.Add(1)
	case unknown:
		c.proposalsUnknown.Add(1)
	}
}

// Metrics are figures of a node since its start, or as they are now.
type Metrics struct {
	Replicas, Leaders, Stopped int // now, without the system group
	Groups, Nodes              int // in the registry, now
	ApplyBacklogBytes          int64
	UnsavedBytes               int64 // entries from leaders that are not durable yet
	// Quarantined is how many replicas are in quarantine now, by reason.
	Quarantined map[string]uint64

	MessagesRefused, MessagesDropped, MessagesStrange, MessagesUnaddressed uint64
	NoticesSent                                                            uint64

	ProposalsApplied, ProposalsNotApplied, ProposalsUnknown uint64
	Reads, LeaderChanges                                    uint64

	SnapshotsTaken, SnapshotsSent, SnapshotsFailed, SnapshotsPostponed uint64
	SnapshotsReceived, SnapshotsInstalled                              uint64

	DiskFreeBytes int64
	DiskLevel     DiskLevel
	DiskHeld      bool // nothing is written to the log store for want of space

	SyncAverage, SyncWorst, SyncInFlight time.Duration
	DiskSlow, DiskStuck                  bool
	LeadersShed                          uint64 // that others have taken because of the disk

	// Asleep is how many replicas sleep now, and Wakes how often one has woken, by reason:
	// request, awake_member, node, or time. NodesLive is how many other nodes say that they live.
	Asleep    int
	Wakes     map[string]uint64
	NodesLive int

	Store storage.Stats
	// LogUpkeep and StateUpkeep are what is done about the files of both databases.
	LogUpkeep, StateUpkeep storage.Upkeep
	Transport              transport.Stats
	// Limits are those of memory, with what of them is used.
	Limits Limits
	Peers  []transport.PeerStatus
}

// Metrics returns the node's figures. It is cheap enough to be called often.
func (n *Node) Metrics() Metrics {
	c := &n.metrics
	m := Metrics{
		MessagesRefused: c.messagesRefused.Load(), MessagesDropped: c.messagesDropped.Load(),
		MessagesStrange:     c.messagesStrange.Load(),
		MessagesUnaddressed: c.messagesUnaddressed.Load(),
		NoticesSent:         c.noticesSent.Load(),
		ProposalsApplied:    c.proposalsApplied.Load(),
		ProposalsNotApplied: c.proposalsNotApplied.Load(),
		ProposalsUnknown:    c.proposalsUnknown.Load(),
		Reads:               c.reads.Load(), LeaderChanges: c.leaderChanges.Load(),
		SnapshotsTaken: c.snapshotsTaken.Load(), SnapshotsSent: c.snapshotsSent.Load(),
		SnapshotsFailed:    c.snapshotsFailed.Load(),
		SnapshotsPostponed: c.snapshotsPostponed.Load(),
		SnapshotsReceived:  c.snapshotsReceived.Load(),
		SnapshotsInstalled: c.snapshotsInstalled.Load(),
		DiskFreeBytes:      n.disk.free.Load(),
		DiskLevel:          n.disk.current(),
		Store:              n.store.Stats(),
		Transport:          n.transport.Stats(),
		Peers:              n.transport.Peers(),
	}
	m.ApplyBacklogBytes, m.UnsavedBytes = n.appliers.backlog.Load(), n.unsaved.Load()
	m.LogUpkeep, m.StateUpkeep = n.upkeep()
	n.diskMetrics(&m)
	n.limitMetrics(&m)
	m.Asleep, m.NodesLive = int(c.asleep.Load()), n.liveness.load().count()
	m.Wakes = make(map[string]uint64, numWakeReasons)
	for why := wokenByRequest; why < numWakeReasons; why++ {
		m.Wakes[wakeReasons[why]] = c.wakes[why].Load()
	}
	m.Replicas, m.Leaders = n.countReplicas()
	rs := n.allReplicas()
	m.Quarantined = countQuarantined(rs)
	for _, r := range rs {
		if r.fault() != nil {
			m.Stopped++
		}
	}
	counts := n.registry.Counts()
	m.Groups, m.Nodes = counts.Groups, counts.Nodes
	return m
}

// diskMetrics are the figures of the disk's speed.
func (n *Node) diskMetrics(m *Metrics) {
	now := n.world.now()
	times, c := n.slow.times(now), n.slow.condition(now)
	m.SyncAverage, m.SyncWorst, m.SyncInFlight = times.average, times.worst, times.inFlight
	m.DiskSlow, m.DiskStuck, m.DiskHeld = c.Slow, c.Stuck, n.store.Held()
	m.LeadersShed = n.metrics.leadersShed.Load()
}
