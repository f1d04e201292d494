package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/raftyard/raftyard/node"
)

// limited is a limit of memory and what is known of it.
type limited struct {
	name string // as the configuration of the daemon has it, where it is there
	node.Limited
}

// limits returns those of the server.
func (h *Handler) limits() []limited {
	list := []limited{
		{"http_requests", node.Limited{
			Used: int64(len(h.slots)), Most: int64(cap(h.slots)), Refused: h.busy.Load(),
		}},
		{"http_body_bytes", h.bodies.limited()},
		{"http_answer_bytes", h.answers.limited()},
	}
	if h.cfg.Connections != nil && h.cfg.ConnectionLimit != nil {
		most, refused := h.cfg.ConnectionLimit()
		list = append(list, limited{"http_connections", node.Limited{
			Used: int64(h.cfg.Connections()), Most: int64(most), Refused: refused,
		}})
	}
	return list
}

// nodeLimits returns those of the node.
func nodeLimits(l *node.Limits) []limited {
	return []limited{
		{"peer_requests", l.PeerRequests},
		{"peer_request_bytes", l.PeerRequestBytes},
		{"peer_queue_bytes", l.PeerQueueBytes},
		{"worker_queue_bytes", l.WorkerQueueBytes},
		{"proposal_bytes", l.ProposalBytes},
		{"unsaved_bytes", l.UnsavedBytes},
		{"apply_backlog_bytes", l.ApplyBacklogBytes},
		{"entry_cache_bytes", l.EntryCacheBytes},
		{"snapshot_sends", l.SnapshotSends},
		{"snapshot_receives", l.SnapshotReceives},
		{"log_memtable_bytes", l.LogMemtables},
		{"state_memtable_bytes", l.StateMemtables},
		{"state_block_cache_bytes", l.StateBlockCache},
		{"state_index_cache_bytes", l.StateIndexCache},
	}
}

// refuses reports whether something is refused for want of a limit of this name. Of caches the
// oldest goes, and writes wait for a write buffer.
func refuses(name string) bool {
	switch name {
	case "entry_cache_bytes", "log_memtable_bytes", "state_memtable_bytes",
		"state_block_cache_bytes", "state_index_cache_bytes":
		return false
	default:
		return true
	}
}

// limitDescs are the three families of metrics that all limits are in.
type limitDescs struct{ most, used, refused *prometheus.Desc }

func describeLimits() limitDescs {
	return limitDescs{
		most: describeMetric("limit",
			"How much there may be in memory, by limit: bytes, or a number.", "limit"),
		used: describeMetric("limit_used",
			"How much of it there is, in the queue that has most where there are several.",
			"limit"),
		refused: describeMetric("limit_refusals_total",
			"What was refused, or dropped, because of a limit.", "limit"),
	}
}

func (d *limitDescs) collect(to chan<- prometheus.Metric, list []limited) {
	for i := range list {
		l := &list[i]
		gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
		to <- prometheus.MustNewConstMetric(d.most, gauge, float64(l.Most), l.name)
		to <- prometheus.MustNewConstMetric(d.used, gauge, float64(l.Used), l.name)
		if refuses(l.name) {
			to <- prometheus.MustNewConstMetric(d.refused, counter, float64(l.Refused), l.name)
		}
	}
}
