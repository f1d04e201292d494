package config

import "strconv"

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

func limitSettings() []Setting {
	return []Setting{
		sizeSetting("limits.memory", "memory-limit", "1GiB",
			"from how much memory on garbage is collected more often; $GOMEMLIMIT wins",
			128*mib, maxBytes, func(c *Config) *int64 { return &c.Limits.Memory }),
		countSetting("limits.http_connections", "http-connections", "8192",
			"HTTP connections, and a quarter of the descriptors at most",
			1, func(c *Config) *int { return &c.Limits.HTTPConnections }),
		countSetting("limits.http_requests", "http-requests", "4096",
			"HTTP requests that are served at once",
			1, func(c *Config) *int { return &c.Limits.HTTPRequests }),
		sizeSetting("limits.http_body_bytes", "http-body-bytes", "256MiB",
			"bodies of HTTP requests in memory",
			4*mib, maxBytes, func(c *Config) *int64 { return &c.Limits.HTTPBodyBytes }),
		sizeSetting("limits.http_answer_bytes", "http-answer-bytes", "256MiB",
			"values in memory whose HTTP answers are not sent yet",
			4*mib, maxBytes, func(c *Config) *int64 { return &c.Limits.HTTPAnswerBytes }),
		countSetting("limits.peer_requests", "peer-requests", "2048",
			"requests of other nodes that are served at once",
			64, func(c *Config) *int { return &c.Limits.PeerRequests }),
		sizeSetting("limits.peer_request_bytes", "peer-request-bytes", "64MiB",
			"those requests, and their answers",
			minQueue, maxBytes, func(c *Config) *int64 { return &c.Limits.PeerRequestBytes }),
		sizeSetting("limits.peer_queue_bytes", "peer-queue-bytes", "64MiB",
			"messages, and requests, that wait to be sent to one other node",
			minQueue, maxBytes, func(c *Config) *int64 { return &c.Limits.PeerQueueBytes }),
		sizeSetting("limits.worker_queue_bytes", "worker-queue-bytes", "64MiB",
			"messages and proposals that wait for one worker",
			minQueue, maxBytes, func(c *Config) *int64 { return &c.Limits.WorkerQueueBytes }),
		sizeSetting("limits.proposal_bytes", "proposal-bytes", "16MiB",
			"proposals that wait in one group",
			2*mib, maxBytes, func(c *Config) *int64 { return &c.Limits.ProposalBytes }),
		sizeSetting("limits.unsaved_bytes", "unsaved-bytes", "128MiB",
			"entries that leaders have sent and that are not durable yet",
			minQueue, maxBytes, func(c *Config) *int64 { return &c.Limits.UnsavedBytes }),
		sizeSetting("limits.apply_backlog_bytes", "apply-backlog-bytes", "128MiB",
			"committed commands that wait for state machines; half of it for one group",
			minQueue, maxBytes, func(c *Config) *int64 { return &c.Limits.ApplyBacklogBytes }),
		sizeSetting("limits.entry_cache_bytes", "entry-cache-bytes", "64MiB",
			"entries that are kept for followers and state machines",
			mib, maxBytes, func(c *Config) *int64 { return &c.Limits.EntryCacheBytes }),
		countSetting("limits.snapshot_sends", "snapshot-sends", "4",
			"snapshots that are sent at once",
			1, func(c *Config) *int { return &c.Limits.SnapshotSends }),
		countSetting("limits.snapshot_receives", "snapshot-receives", "4",
			"snapshots that are received at once",
			1, func(c *Config) *int { return &c.Limits.SnapshotReceives }),
		sizeSetting("limits.state_block_cache_bytes", "state-block-cache-bytes", "16MiB",
			"the state database's cache of blocks",
			mib, maxBytes, func(c *Config) *int64 { return &c.Limits.StateBlockCacheBytes }),
	}
}

// sizeSetting is a setting that is a number of bytes.
func sizeSetting(
	key, flag, preset, usage string, least, most int64, of func(c *Config) *int64,
) Setting {
	return Setting{
		Key: key, Flag: flag, Default: preset, Usage: usage,
		set: func(d *decoder, v value, key string, c *Config) {
			d.size(v, key, least, most, of(c))
		},
		show: func(c *Config) string { return showSize(*of(c)) },
	}
}

// countSetting is a setting that is a number of things.
func countSetting(key, flag, preset, usage string, least int, of func(c *Config) *int) Setting {
	return Setting{
		Key: key, Flag: flag, Default: preset, Usage: usage,
		set: func(d *decoder, v value, key string, c *Config) {
			d.integer(v, key, least, maxCount, of(c))
		},
		show: func(c *Config) string { return strconv.Itoa(*of(c)) },
	}
}
