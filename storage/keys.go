package storage

import (
	"encoding/binary"

	"github.com/raftyard/raftyard"
)

// Keys of a group sort together, so that one scan recovers group after group:
//
//	'g' | group, 8 bytes big endian | kind | slot, 4 bytes big endian, kindLog only
//
// Keys of the store are 's' and one more byte.
const (
	prefixGroup = 'g'
	prefixStore = 's'

	kindHead     kind = 'H' // hard state and log bounds, when no entries go with them
	kindLog      kind = 'L' // the same with entries, in a slot
	kindMeta     kind = 'M' // the caller's opaque bytes
	kindReplica  kind = 'R' // live or tombstone, and who
	kindSnapshot kind = 'S' // the newest snapshot

	groupKeySize = 10
	logKeySize   = 14
)

// The store's own keys.
const (
	identityKey = "sI"
	sequenceKey = "sQ"
)

type kind byte

func appendKey(b []byte, g raftyard.GroupID, k kind) []byte {
	b = append(b, prefixGroup)
	b = binary.BigEndian.AppendUint64(b, uint64(g))
	return append(b, byte(k))
}

// groupPrefix is what all keys of a group begin with.
func groupPrefix(g raftyard.GroupID) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixGroup}, uint64(g))
}

func appendLogKey(b []byte, g raftyard.GroupID, slot uint32) []byte {
	return binary.BigEndian.AppendUint32(appendKey(b, g, kindLog), slot)
}

// groupKey is a key of a group, taken apart.
type groupKey struct {
	group raftyard.GroupID
	kind  kind
	slot  uint32
}

func parseGroupKey(key []byte) (groupKey, bool) {
	var k groupKey
	if len(key) < groupKeySize || key[0] != prefixGroup {
		return k, false
	}
	k.group = raftyard.GroupID(binary.BigEndian.Uint64(key[1:]))
	k.kind = kind(key[9])
	switch k.kind {
	case kindHead, kindMeta, kindReplica, kindSnapshot:
		return k, len(key) == groupKeySize
	case kindLog:
		if len(key) != logKeySize {
			return k, false
		}
		k.slot = binary.BigEndian.Uint32(key[groupKeySize:])
		return k, true
	default:
		return k, false
	}
}
