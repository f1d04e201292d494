package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/raftyard/raftyard"
)

// EnvPrefix begins the name of every environment variable that is read.
const EnvPrefix = "RAFTYARD_"

// A Setting is one key that can be given in the file, in the environment and as
// a flag.
type Setting struct {
	Key     string // in the file, such as raft.tick
	Env     string // such as RAFTYARD_RAFT_TICK
	Flag    string // such as tick
	Default string // empty: none
	Usage   string // one line

	// isList: the environment and the flag take the value in YAML.
	isList bool
	set    func(d *decoder, v value, key string, c *Config)
	// show returns the effective value, or items each element of one that is a list.
	show  func(c *Config) string
	items func(c *Config) []string
}

func (s *Setting) showValue(c *Config) string {
	if s.isList {
		return showList(s.items(c))
	}
	return s.show(c)
}

func (s *Setting) showItems(c *Config) []string {
	if s.isList {
		return s.items(c)
	}
	return nil
}

// Settings returns every setting, in the order of the file.
func Settings() []Setting {
	list := slices.Concat(identitySettings(), raftSettings(), diskSettings(), limitSettings(),
		logSettings())
	for i := range list {
		if list[i].Env == "" {
			key := strings.ReplaceAll(list[i].Key, ".", "_")
			list[i].Env = EnvPrefix + strings.ToUpper(key)
		}
	}
	return list
}

func identitySettings() []Setting {
	return []Setting{
		{
			Key: "cluster", Flag: "cluster", Usage: "name of the cluster, the same on every node",
			set:  func(d *decoder, v value, key string, c *Config) { d.name(v, key, &c.Cluster) },
			show: func(c *Config) string { return c.Cluster },
		},
		{
			Key: "node.id", Flag: "node-id", Usage: "id of this node, never zero and never reused",
			set: func(d *decoder, v value, key string, c *Config) {
				d.nodeID(v, key, &c.Node.ID)
			},
			show: func(c *Config) string { return showID(c.Node.ID) },
		},
		{
			Key: "node.data_dir", Flag: "data-dir", Env: EnvPrefix + "DATA_DIR",
			Usage: "directory of this node's data",
			set: func(d *decoder, v value, key string, c *Config) {
				d.text(v, key, "the path of a directory", &c.Node.DataDir)
			},
			show: func(c *Config) string { return c.Node.DataDir },
		},
		{
			Key: "listen.http", Flag: "listen-http",
			Usage: "host:port for clients and operators (default: this node's http in nodes)",
			set: func(d *decoder, v value, key string, c *Config) {
				d.address(v, key, &c.Listen.HTTP)
			},
			show: func(c *Config) string { return c.Listen.HTTP },
		},
		{
			Key: "listen.peer", Flag: "listen-peer",
			Usage: "host:port for other nodes (default: this node's peer in nodes)",
			set: func(d *decoder, v value, key string, c *Config) {
				d.address(v, key, &c.Listen.Peer)
			},
			show: func(c *Config) string { return c.Listen.Peer },
		},
		{
			Key: "advertise.http", Flag: "advertise-http",
			Usage: "host:port that clients dial (default: this node's http in nodes, " +
				"or listen.http)",
			set: func(d *decoder, v value, key string, c *Config) {
				d.routable(v, key, &c.Advertise.HTTP)
			},
			show: func(c *Config) string { return c.Advertise.HTTP },
		},
		{
			Key: "advertise.peer", Flag: "advertise-peer",
			Usage: "host:port that other nodes dial (default: this node's peer in nodes, " +
				"or listen.peer)",
			set: func(d *decoder, v value, key string, c *Config) {
				d.routable(v, key, &c.Advertise.Peer)
			},
			show: func(c *Config) string { return c.Advertise.Peer },
		},
		{
			Key: "nodes", Flag: "nodes", isList: true,
			Usage: "the first address book, in YAML",
			set:   func(d *decoder, v value, key string, c *Config) { d.nodes(v, key, &c.Nodes) },
			items: func(c *Config) []string { return showNodes(c.Nodes) },
		},
		{
			Key: "groups", Flag: "groups", Default: "[]", isList: true,
			Usage: "groups to create when missing, in YAML",
			set:   func(d *decoder, v value, key string, c *Config) { d.groups(v, key, &c.Groups) },
			items: func(c *Config) []string { return showGroups(c.Groups) },
		},
	}
}

func raftSettings() []Setting {
	return []Setting{
		{
			Key: "raft.tick", Flag: "tick", Default: "100ms", Usage: "length of one raft tick",
			set: func(d *decoder, v value, key string, c *Config) {
				d.duration(v, key, minTick, maxTick, &c.Raft.Tick)
			},
			show: func(c *Config) string { return showDuration(c.Raft.Tick) },
		},
		{
			Key: "raft.election_ticks", Flag: "election-ticks", Default: "10",
			Usage: "ticks without a leader after which a follower campaigns",
			set: func(d *decoder, v value, key string, c *Config) {
				d.integer(v, key, minElectionTicks, maxTicks, &c.Raft.ElectionTicks)
			},
			show: func(c *Config) string { return strconv.Itoa(c.Raft.ElectionTicks) },
		},
		{
			Key: "raft.heartbeat_ticks", Flag: "heartbeat-ticks", Default: "2",
			Usage: "ticks between a leader's heartbeats",
			set: func(d *decoder, v value, key string, c *Config) {
				d.integer(v, key, 1, maxTicks, &c.Raft.HeartbeatTicks)
			},
			show: func(c *Config) string { return strconv.Itoa(c.Raft.HeartbeatTicks) },
		},
		{
			Key: "raft.sleep_ticks", Flag: "sleep-ticks", Default: "30",
			Usage: "ticks in which nothing happens after which a group sleeps; 0: never",
			set: func(d *decoder, v value, key string, c *Config) {
				d.integer(v, key, 0, maxTicks, &c.Raft.SleepTicks)
			},
			show: func(c *Config) string { return strconv.Itoa(c.Raft.SleepTicks) },
		},
	}
}

func diskSettings() []Setting {
	limit := func(
		key, flag, preset, usage string, of func(c *Config) *time.Duration,
	) Setting {
		return Setting{
			Key: key, Flag: flag, Default: preset, Usage: usage,
			set: func(d *decoder, v value, key string, c *Config) {
				d.duration(v, key, minSync, maxSync, of(c))
			},
			show: func(c *Config) string { return showDuration(*of(c)) },
		}
	}
	return []Setting{
		limit("disk.slow_sync", "slow-sync", "1s",
			"how long a sync takes on a slow disk, which leads nothing if another can",
			func(c *Config) *time.Duration { return &c.Disk.SlowSync }),
		limit("disk.stuck_sync", "stuck-sync", "10s",
			"how long a sync has not come back when the node resigns what it leads",
			func(c *Config) *time.Duration { return &c.Disk.StuckSync }),
		limit("disk.fail_sync", "fail-sync", "20s",
			"how long a sync has not come back when the node ends, with 70",
			func(c *Config) *time.Duration { return &c.Disk.FailSync }),
		{
			Key: "disk.scrub_rate", Flag: "scrub-rate", Default: "4MiB",
			Usage: "bytes a second that are read of each database to find damage; 0: none",
			set: func(d *decoder, v value, key string, c *Config) {
				d.size(v, key, 0, maxScrubRate, &c.Disk.ScrubRate)
			},
			show: func(c *Config) string { return showSize(c.Disk.ScrubRate) },
		},
		sizeSetting(Setting{
			Key: "disk.snapshot_rate", Flag: "snapshot-rate", Default: "128MiB",
			Usage: "bytes a second of snapshots that are sent, and that are received",
		}, mib, func(c *Config) *int64 { return &c.Disk.SnapshotRate }),
	}
}

func logSettings() []Setting {
	return []Setting{
		{
			Key: "log.level", Flag: "log-level", Default: "info",
			Usage: "debug, info, warn or error",
			set: func(d *decoder, v value, key string, c *Config) {
				d.word(v, key, Levels(), &c.Log.Level)
			},
			show: func(c *Config) string { return c.Log.Level },
		},
		{
			Key: "log.format", Flag: "log-format", Default: "text", Usage: "text or json",
			set: func(d *decoder, v value, key string, c *Config) {
				d.word(v, key, Formats(), &c.Log.Format)
			},
			show: func(c *Config) string { return c.Log.Format },
		},
	}
}

func showID(id raftyard.NodeID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

func showDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
