package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/raftyard/raftyard/node"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// A figure is one series of the node's part of the metrics.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	of    func(m *node.Metrics) float64
	label []string // values of the labels
}

// nodeCollector turns a node's figures into metrics, at each scrape, so that
// nothing is counted twice.
type nodeCollector struct {
	read    func() node.Metrics
	figures []figure
	peers   []peerFigure
	byKind  []kindFigure

	ofServer func() []limited
	limits   limitDescs
}

// A peerFigure is one series for each other node: a cluster has few.
type peerFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(p *transport.PeerStatus) float64
}

// A kindFigure is one series for each key of a map whose keys are a short list.
type kindFigure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(m *node.Metrics) map[string]uint64
}

// Describe sends the descriptions.
func (n *nodeCollector) Describe(to chan<- *prometheus.Desc) {
	seen := map[*prometheus.Desc]bool{}
	send := func(d *prometheus.Desc) {
		if !seen[d] {
			seen[d] = true
			to <- d
		}
	}
	for i := range n.figures {
		send(n.figures[i].desc)
	}
	for i := range n.peers {
		send(n.peers[i].desc)
	}
	for i := range n.byKind {
		send(n.byKind[i].desc)
	}
	for _, d := range []*prometheus.Desc{n.limits.most, n.limits.used, n.limits.refused} {
		send(d)
	}
}

// Collect sends the figures as they are now.
func (n *nodeCollector) Collect(to chan<- prometheus.Metric) {
	m := n.read()
	for i := range n.figures {
		f := &n.figures[i]
		to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&m), f.label...)
	}
	for i := range n.peers {
		f := &n.peers[i]
		for j := range m.Peers {
			p := &m.Peers[j]
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(p), p.Node.String())
		}
	}
	for i := range n.byKind {
		f := &n.byKind[i]
		for kind, count := range f.of(&m) {
			to <- prometheus.MustNewConstMetric(
				f.desc, f.kind, float64(count), kind)
		}
	}
	n.limits.collect(to, n.ofServer())
	n.limits.collect(to, nodeLimits(&m.Limits))
}

func newNodeCollector(read func() node.Metrics, ofServer func() []limited) *nodeCollector {
	n := &nodeCollector{read: read, ofServer: ofServer, limits: describeLimits()}
	n.replicaFigures()
	n.workFigures()
	n.storeFigures()
	n.upkeepFigures()
	n.transportFigures()
	return n
}

func describeMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("raftyard_"+name, help, labels, nil)
}

func (n *nodeCollector) gauge(name, help string, of func(m *node.Metrics) float64) {
	n.figures = append(n.figures, figure{
		desc: describeMetric(name, help), kind: prometheus.GaugeValue, of: of,
	})
}

func (n *nodeCollector) counter(name, help string, of func(m *node.Metrics) float64) {
	n.figures = append(n.figures, figure{
		desc: describeMetric(name, help), kind: prometheus.CounterValue, of: of,
	})
}

// A labelled is one value of the only label of a counter.
type labelled struct {
	value string
	of    func(m *node.Metrics) float64
}

func (n *nodeCollector) counters(name, help, label string, values ...labelled) {
	desc := describeMetric(name, help, label)
	for _, v := range values {
		n.figures = append(n.figures, figure{
			desc: desc, kind: prometheus.CounterValue, of: v.of, label: []string{v.value},
		})
	}
}

func (n *nodeCollector) replicaFigures() {
	n.gauge("replicas", "Replicas on this node, without the system group's.",
		func(m *node.Metrics) float64 { return float64(m.Replicas) })
	n.gauge("leaders", "Groups that this node leads, without the system group.",
		func(m *node.Metrics) float64 { return float64(m.Leaders) })
	n.gauge("replicas_stopped", "Replicas that a fault has stopped.",
		func(m *node.Metrics) float64 { return float64(m.Stopped) })
	n.byKind = append(n.byKind, kindFigure{
		desc: describeMetric(
			"replicas_quarantined", "Replicas in quarantine, by reason.", "reason"),
		kind: prometheus.GaugeValue,
		of:   func(m *node.Metrics) map[string]uint64 { return m.Quarantined },
	})
	n.gauge("groups", "Groups in the registry.",
		func(m *node.Metrics) float64 { return float64(m.Groups) })
	n.gauge("nodes", "Nodes in the registry.",
		func(m *node.Metrics) float64 { return float64(m.Nodes) })
	n.gauge("apply_backlog_bytes", "Committed commands that wait for their state machine.",
		func(m *node.Metrics) float64 { return float64(m.ApplyBacklogBytes) })
	n.gauge("unsaved_bytes", "Entries that leaders have sent and that are not durable yet.",
		func(m *node.Metrics) float64 { return float64(m.UnsavedBytes) })
	n.gauge("disk_free_bytes", "Free space on the disk of the data directory.",
		func(m *node.Metrics) float64 { return float64(m.DiskFreeBytes) })
	n.gauge("disk_level", "What the node gives up for want of space: 0 nothing to 3 everything.",
		func(m *node.Metrics) float64 { return float64(m.DiskLevel) })
	n.diskFigures()
}

func (n *nodeCollector) diskFigures() {
	n.flag("disk_held", "Whether the log store is not written to for want of space: 1 or 0.",
		func(m *node.Metrics) bool { return m.DiskHeld })
	n.flag("disk_slow", "Whether syncs are slow, so that leaderships move away: 1 or 0.",
		func(m *node.Metrics) bool { return m.DiskSlow })
	n.flag("disk_stuck", "Whether a sync does not come back, so that nothing is led: 1 or 0.",
		func(m *node.Metrics) bool { return m.DiskStuck })
	n.gauge("sync_seconds", "How long a sync of the log takes, on average.",
		func(m *node.Metrics) float64 { return m.SyncAverage.Seconds() })
	n.gauge("sync_worst_seconds", "How long the slowest sync since the start has taken.",
		func(m *node.Metrics) float64 { return m.SyncWorst.Seconds() })
	n.gauge("sync_in_flight_seconds", "For how long the sync that is under way has been.",
		func(m *node.Metrics) float64 { return m.SyncInFlight.Seconds() })
	n.counter("leaderships_shed_total",
		"Leaderships that another node has taken because of the disk of this one.",
		func(m *node.Metrics) float64 { return float64(m.LeadersShed) })
}

func (n *nodeCollector) flag(name, help string, of func(m *node.Metrics) bool) {
	n.gauge(name, help, func(m *node.Metrics) float64 {
		if of(m) {
			return 1
		}
		return 0
	})
}

func (n *nodeCollector) workFigures() {
	n.counters("proposals_total", "Commands proposed on this node, by outcome.", "outcome",
		labelled{"applied", func(m *node.Metrics) float64 { return float64(m.ProposalsApplied) }},
		labelled{"not_applied", func(m *node.Metrics) float64 {
			return float64(m.ProposalsNotApplied)
		}},
		labelled{"unknown", func(m *node.Metrics) float64 { return float64(m.ProposalsUnknown) }})
	n.counter("reads_total", "Reads of state machines on this node.",
		func(m *node.Metrics) float64 { return float64(m.Reads) })
	n.gauge("replicas_asleep", "Replicas on this node that sleep.",
		func(m *node.Metrics) float64 { return float64(m.Asleep) })
	n.gauge("nodes_live", "Other nodes that say that they live.",
		func(m *node.Metrics) float64 { return float64(m.NodesLive) })
	n.counters("wakes_total", "Replicas that have woken, by what has woken them.", "reason",
		wakesOf("request"), wakesOf("awake_member"), wakesOf("node"), wakesOf("time"))
	n.counter("leader_changes_total", "Changes of leader that this node has seen.",
		func(m *node.Metrics) float64 { return float64(m.LeaderChanges) })
	n.counters("messages_refused_total", "Raft messages that were not taken, by reason.", "reason",
		labelled{"refused", func(m *node.Metrics) float64 { return float64(m.MessagesRefused) }},
		labelled{"overload", func(m *node.Metrics) float64 { return float64(m.MessagesDropped) }},
		labelled{"no_replica", func(m *node.Metrics) float64 { return float64(m.MessagesStrange) }},
		labelled{"no_address", func(m *node.Metrics) float64 {
			return float64(m.MessagesUnaddressed)
		}})
	n.counter("notices_sent_total",
		"Answers to senders of raft messages that could not be used, which say why.",
		func(m *node.Metrics) float64 { return float64(m.NoticesSent) })
	n.counters("snapshots_total", "Snapshots, by what was done with them.", "what",
		labelled{"taken", func(m *node.Metrics) float64 { return float64(m.SnapshotsTaken) }},
		labelled{"sent", func(m *node.Metrics) float64 { return float64(m.SnapshotsSent) }},
		labelled{"failed", func(m *node.Metrics) float64 { return float64(m.SnapshotsFailed) }},
		labelled{"postponed", func(m *node.Metrics) float64 {
			return float64(m.SnapshotsPostponed)
		}},
		labelled{"received", func(m *node.Metrics) float64 { return float64(m.SnapshotsReceived) }},
		labelled{"installed", func(m *node.Metrics) float64 {
			return float64(m.SnapshotsInstalled)
		}})
}

func wakesOf(reason string) labelled {
	return labelled{reason, func(m *node.Metrics) float64 { return float64(m.Wakes[reason]) }}
}

func (n *nodeCollector) storeFigures() {
	n.counter("store_commits_total", "Commits of the log store, each with one sync.",
		func(m *node.Metrics) float64 { return float64(m.Store.Commits) })
	n.counter("store_updates_total", "Updates of single groups in those commits.",
		func(m *node.Metrics) float64 { return float64(m.Store.Updates) })
	n.counter("store_written_bytes_total", "Bytes of records in those commits.",
		func(m *node.Metrics) float64 { return float64(m.Store.Bytes) })
	n.counters("store_entry_reads_total", "Reads of log entries, by where they were found.", "from",
		labelled{"cache", func(m *node.Metrics) float64 { return float64(m.Store.CacheHits) }},
		labelled{"disk", func(m *node.Metrics) float64 { return float64(m.Store.CacheMisses) }})
	n.gauge("store_cache_bytes", "Log entries that are kept in memory.",
		func(m *node.Metrics) float64 { return float64(m.Store.CacheBytes) })
	n.gauge("store_table_bytes", "The log store's tables on disk.",
		func(m *node.Metrics) float64 { return float64(m.Store.TableBytes) })
	n.gauge("store_damaged_replicas", "Replicas whose log cannot be trusted.",
		func(m *node.Metrics) float64 { return float64(m.Store.Damaged) })
	n.gauge("store_tombstones", "Destroyed replicas that are remembered.",
		func(m *node.Metrics) float64 { return float64(m.Store.Tombstones) })
}

// upkeepFigures are what is done about the files of both databases.
func (n *nodeCollector) upkeepFigures() {
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	n.ofDatabases(gauge, "value_bytes",
		"Files that are kept for large records of the log, on disk.",
		func(u *storage.Upkeep) float64 { return float64(u.ValueBytes) })
	n.ofDatabases(gauge, "live_value_bytes", "What counts in them.",
		func(u *storage.Upkeep) float64 { return float64(u.LiveValueBytes) })
	n.ofDatabases(counter, "rewritten_value_bytes_total",
		"Large records that were written anew so that a file could go in which little else "+
			"counted.",
		func(u *storage.Upkeep) float64 { return float64(u.RewrittenBytes) })
	n.ofDatabases(counter, "reclaims_total", "Merges of all tables that have returned disk space.",
		func(u *storage.Upkeep) float64 { return float64(u.Reclaims) })
	n.ofDatabases(counter, "reclaims_ended_total",
		"Merges of all tables that were given up because there was work.",
		func(u *storage.Upkeep) float64 { return float64(u.ReclaimsEnded) })
	n.ofDatabases(counter, "reclaims_failed_total", "Merges of all tables that have failed.",
		func(u *storage.Upkeep) float64 { return float64(u.ReclaimsFailed) })
	n.ofDatabases(counter, "reclaimed_bytes_total",
		"Bytes by which tables have become smaller in such merges.",
		func(u *storage.Upkeep) float64 { return float64(u.ReclaimedBytes) })
	n.ofDatabases(gauge, "reclaimed_timestamp_seconds",
		"When the last such merge was done, as a Unix time; 0: none was.",
		func(u *storage.Upkeep) float64 { return unix(u.Reclaimed) })
	n.ofDatabases(gauge, "reclaim_seconds", "How long the last such merge has taken.",
		func(u *storage.Upkeep) float64 { return u.ReclaimTook.Seconds() })
	n.ofDatabases(counter, "scrubs_total",
		"How often all tables were read and compared with their checksums.",
		func(u *storage.Upkeep) float64 { return float64(u.Scrubs) })
	n.ofDatabases(counter, "scrubs_failed_total", "How often that could not be done to the end.",
		func(u *storage.Upkeep) float64 { return float64(u.ScrubsFailed) })
	n.ofDatabases(counter, "scrubbed_bytes_total", "Bytes of tables that were read for that.",
		func(u *storage.Upkeep) float64 { return float64(u.ScrubbedBytes) })
	n.ofDatabases(gauge, "scrubbed_timestamp_seconds",
		"When that was last done to the end, as a Unix time; 0: never.",
		func(u *storage.Upkeep) float64 { return unix(u.Scrubbed) })
	n.ofDatabases(gauge, "damaged_tables",
		"Tables and files of large records in use that are damaged.",
		func(u *storage.Upkeep) float64 { return float64(len(u.Damaged)) })
}

// ofDatabases adds a series for each of the databases.
func (n *nodeCollector) ofDatabases(
	kind prometheus.ValueType, name, help string, of func(u *storage.Upkeep) float64,
) {
	desc := describeMetric(name, help, "database")
	n.figures = append(n.figures,
		figure{
			desc: desc, kind: kind, label: []string{"log"},
			of: func(m *node.Metrics) float64 { return of(&m.LogUpkeep) },
		},
		figure{
			desc: desc, kind: kind, label: []string{"state"},
			of: func(m *node.Metrics) float64 { return of(&m.StateUpkeep) },
		})
}

// unix is a moment as metrics have it.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

func (n *nodeCollector) transportFigures() {
	n.counters("transport_bytes_total", "Bytes of frames, by direction.", "direction",
		labelled{"sent", func(m *node.Metrics) float64 { return float64(m.Transport.BytesSent) }},
		labelled{"received", func(m *node.Metrics) float64 {
			return float64(m.Transport.BytesReceived)
		}})
	n.counters("transport_frames_total", "Frames, by direction.", "direction",
		labelled{"sent", func(m *node.Metrics) float64 { return float64(m.Transport.FramesSent) }},
		labelled{"received", func(m *node.Metrics) float64 {
			return float64(m.Transport.FramesReceived)
		}})
	n.kinds("transport_messages_sent_total", "Messages given to a connection, by type.", "type",
		func(m *node.Metrics) map[string]uint64 { return m.Transport.Sent })
	n.kinds("transport_messages_received_total", "Messages that arrived, by type.", "type",
		func(m *node.Metrics) map[string]uint64 { return m.Transport.Received })
	n.kinds("transport_messages_dropped_total", "Messages that were not sent, by reason.", "reason",
		func(m *node.Metrics) map[string]uint64 { return m.Transport.DroppedBy })
	n.kinds("transport_messages_refused_total", "Messages that were not accepted, by reason.",
		"reason", func(m *node.Metrics) map[string]uint64 { return m.Transport.RefusedBy })
	n.counter("transport_bad_frames_total", "Connections closed because of what they carried.",
		func(m *node.Metrics) float64 { return float64(m.Transport.BadFrames) })

	n.peer("peer_up", "Whether messages can be sent to the peer: 1 or 0.", prometheus.GaugeValue,
		func(p *transport.PeerStatus) float64 {
			if p.Up {
				return 1
			}
			return 0
		})
	n.peer("peer_queue_bytes", "Messages that wait to be sent to the peer.", prometheus.GaugeValue,
		func(p *transport.PeerStatus) float64 { return float64(p.QueueBytes) })
	n.peer("peer_dropped_total", "Messages to the peer that were dropped.", prometheus.CounterValue,
		func(p *transport.PeerStatus) float64 { return float64(p.Dropped) })
	n.peer("peer_rtt_seconds", "Last measured round trip to the peer.", prometheus.GaugeValue,
		func(p *transport.PeerStatus) float64 { return p.RTT.Seconds() })
}

func (n *nodeCollector) kinds(
	name, help, label string, of func(m *node.Metrics) map[string]uint64,
) {
	n.byKind = append(n.byKind, kindFigure{
		desc: describeMetric(name, help, label), kind: prometheus.CounterValue, of: of,
	})
}

func (n *nodeCollector) peer(
	name, help string, kind prometheus.ValueType, of func(p *transport.PeerStatus) float64,
) {
	n.peers = append(n.peers, peerFigure{
		desc: describeMetric(name, help, "peer"), kind: kind, of: of,
	})
}
