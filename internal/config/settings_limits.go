package config

import (
	"slices"
	"strconv"
)

// Sizes of what limits are about.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	// minQueue has room for the largest frame between nodes: a queue that a message does not
	// fit into would hold it up for ever.
	minQueue = 16 * mib
	maxBytes = tib
	maxCount = 1 << 20
)

func limitSettings() []Setting { return slices.Concat(requestLimits(), queueLimits()) }

// requestLimits are those of what comes from outside.
func requestLimits() []Setting {
	return []Setting{
		sizeSetting(Setting{
			Key: "limits.memory", Flag: "memory-limit", Default: "1GiB",
			Usage: "from how much memory on garbage is collected more often; $GOMEMLIMIT wins",
		}, 128*mib, func(c *Config) *int64 { return &c.Limits.Memory }),
		countSetting(Setting{
			Key: "limits.http_connections", Flag: "http-connections", Default: "8192",
			Usage: "HTTP connections, and a quarter of the descriptors at most",
		}, 1, func(c *Config) *int { return &c.Limits.HTTPConnections }),
		countSetting(Setting{
			Key: "limits.http_requests", Flag: "http-requests", Default: "4096",
			Usage: "HTTP requests that are served at once",
		}, 1, func(c *Config) *int { return &c.Limits.HTTPRequests }),
		sizeSetting(Setting{
			Key: "limits.http_body_bytes", Flag: "http-body-bytes", Default: "256MiB",
			Usage: "bodies of HTTP requests in memory",
		}, 4*mib, func(c *Config) *int64 { return &c.Limits.HTTPBodyBytes }),
		sizeSetting(Setting{
			Key: "limits.http_answer_bytes", Flag: "http-answer-bytes", Default: "256MiB",
			Usage: "values in memory whose HTTP answers are not sent yet",
		}, 4*mib, func(c *Config) *int64 { return &c.Limits.HTTPAnswerBytes }),
		countSetting(Setting{
			Key: "limits.peer_requests", Flag: "peer-requests", Default: "2048",
			Usage: "requests of other nodes that are served at once",
		}, 64, func(c *Config) *int { return &c.Limits.PeerRequests }),
		sizeSetting(Setting{
			Key: "limits.peer_request_bytes", Flag: "peer-request-bytes", Default: "64MiB",
			Usage: "those requests, and their answers",
		}, minQueue, func(c *Config) *int64 { return &c.Limits.PeerRequestBytes }),
		sizeSetting(Setting{
			Key: "limits.peer_queue_bytes", Flag: "peer-queue-bytes", Default: "64MiB",
			Usage: "messages, and requests, that wait to be sent to one other node",
		}, minQueue, func(c *Config) *int64 { return &c.Limits.PeerQueueBytes }),
	}
}

// queueLimits are those of what the node makes of it.
func queueLimits() []Setting {
	return []Setting{
		sizeSetting(Setting{
			Key: "limits.worker_queue_bytes", Flag: "worker-queue-bytes", Default: "64MiB",
			Usage: "messages and proposals that wait for one worker",
		}, minQueue, func(c *Config) *int64 { return &c.Limits.WorkerQueueBytes }),
		sizeSetting(Setting{
			Key: "limits.proposal_bytes", Flag: "proposal-bytes", Default: "16MiB",
			Usage: "proposals that wait in one group",
		}, 2*mib, func(c *Config) *int64 { return &c.Limits.ProposalBytes }),
		sizeSetting(Setting{
			Key: "limits.unsaved_bytes", Flag: "unsaved-bytes", Default: "128MiB",
			Usage: "entries that leaders have sent and that are not durable yet",
		}, minQueue, func(c *Config) *int64 { return &c.Limits.UnsavedBytes }),
		sizeSetting(Setting{
			Key: "limits.apply_backlog_bytes", Flag: "apply-backlog-bytes", Default: "128MiB",
			Usage: "committed commands that wait for state machines; half of it for one group",
		}, minQueue, func(c *Config) *int64 { return &c.Limits.ApplyBacklogBytes }),
		sizeSetting(Setting{
			Key: "limits.entry_cache_bytes", Flag: "entry-cache-bytes", Default: "64MiB",
			Usage: "entries that are kept for followers and state machines",
		}, mib, func(c *Config) *int64 { return &c.Limits.EntryCacheBytes }),
		countSetting(Setting{
			Key: "limits.snapshot_sends", Flag: "snapshot-sends", Default: "4",
			Usage: "snapshots that are sent at once",
		}, 1, func(c *Config) *int { return &c.Limits.SnapshotSends }),
		countSetting(Setting{
			Key: "limits.snapshot_receives", Flag: "snapshot-receives", Default: "4",
			Usage: "snapshots that are received at once",
		}, 1, func(c *Config) *int { return &c.Limits.SnapshotReceives }),
		sizeSetting(Setting{
			Key: "limits.state_block_cache_bytes", Flag: "state-block-cache-bytes",
			Default: "16MiB",
			Usage:   "the state database's cache of blocks",
		}, mib, func(c *Config) *int64 { return &c.Limits.StateBlockCacheBytes }),
		sizeSetting(Setting{
			Key: "limits.state_index_cache_bytes", Flag: "state-index-cache-bytes",
			Default: "8MiB",
			Usage:   "the state database's cache of indexes",
		}, mib, func(c *Config) *int64 { return &c.Limits.StateIndexCacheBytes }),
	}
}

// sizeSetting makes s one that is a number of bytes, up to a terabyte.
func sizeSetting(s Setting, least int64, of func(c *Config) *int64) Setting {
	s.set = func(d *decoder, v value, key string, c *Config) {
		d.size(v, key, least, maxBytes, of(c))
	}
	s.show = func(c *Config) string { return showSize(*of(c)) }
	return s
}

// countSetting makes s one that is a number of things.
func countSetting(s Setting, least int, of func(c *Config) *int) Setting {
	s.set = func(d *decoder, v value, key string, c *Config) {
		d.integer(v, key, least, maxCount, of(c))
	}
	s.show = func(c *Config) string { return strconv.Itoa(*of(c)) }
	return s
}
