package main

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/raftyard/raftyard"
)

const (
	shards = 64 // fixed for ever: another number would send keys to other groups
	copies = 3
)

// groupOf routes a key: every key belongs to one of the shards, every shard is a
// group.
func groupOf(key string) raftyard.GroupID {
	return raftyard.GroupID(1 + hash([]byte(key))%shards)
}

// place returns the nodes that shall hold a group, the one that shall lead it
// first: those with the highest scores for it (rendezvous hashing). A node that is
// added takes its share of the groups from all others, and nothing moves between
// those.
func place(g raftyard.GroupID, nodes []raftyard.NodeID) []raftyard.NodeID {
	score := func(id raftyard.NodeID) uint64 {
		b := binary.BigEndian.AppendUint64(nil, uint64(g))
		return hash(binary.BigEndian.AppendUint64(b, uint64(id)))
	}
	ranked := slices.SortedFunc(slices.Values(nodes), func(a, b raftyard.NodeID) int {
		return cmp.Compare(score(b), score(a))
	})
	return ranked[:min(copies, len(ranked))]
}

// hash spreads inputs that differ in their last bits only, which FNV alone does
// not do well.
func hash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}
