package main

import (
	"github.com/raftyard/raftyard/test/peers/internal/dragonboat"
	"github.com/raftyard/raftyard/test/peers/internal/etcd"
	"github.com/raftyard/raftyard/test/peers/internal/hashicorp"
	"github.com/raftyard/raftyard/test/peers/internal/raftyard"
	"github.com/raftyard/raftyard/test/peers/internal/system"
)

// systems returns everything that can be compared, by name.
func systems() map[string]func() system.System {
	return map[string]func() system.System{
		"raftyard":   raftyard.New,
		"dragonboat": dragonboat.New,
		"hashicorp":  hashicorp.New,
		"etcd":       etcd.New,
	}
}

// maxGroups returns how many groups a system can have. With more, hashicorp needs more open
// files than systems commonly allow.
func maxGroups() map[string]int {
	return map[string]int{"etcd": 1, "hashicorp": 500}
}

// bestKnown returns the configurations that were best in some cell.
func bestKnown() []string {
	return []string{
		"raftyard", "dragonboat", "dragonboat:shards=1", "dragonboat:shards=2",
		"hashicorp", "hashicorp:maxappend=512", "etcd",
	}
}

// modules returns the modules whose versions a report names.
func modules() []string {
	return []string{
		"github.com/lni/dragonboat/v3", "github.com/hashicorp/raft",
		"github.com/hashicorp/raft-wal", "go.etcd.io/etcd/server/v3",
	}
}
