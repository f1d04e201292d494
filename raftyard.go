// Package raftyard is the vocabulary of a multi-group raft storage node: one
// process that is a member of many raft groups at once.
//
// The package holds the identifiers that every other package speaks in and
// nothing else; it imports nothing of the project. The parts are:
//
//   - [github.com/raftyard/raftyard/node] runs thousands of replicas and is
//     what an embedding program imports;
//   - [github.com/raftyard/raftyard/group] is one replica of one group, and the
//     StateMachine contract that embedders implement;
//   - [github.com/raftyard/raftyard/storage] keeps the raft logs of all groups
//     of a node in one crash-safe store;
//   - [github.com/raftyard/raftyard/transport] carries messages and snapshots
//     between nodes;
//   - [github.com/raftyard/raftyard/kv] is the built-in, durable, ordered
//     key-value state machine.
//
// # Words
//
// A node is one process with one data directory. A group is one replicated log
// with its members and its state machine. A replica is a node's member of one
// group. A group's incarnation is a UUID given to it when it is created: a
// group deleted and created again under the same id is another incarnation, and
// nothing of the old one is ever visible in the new one. A group's epoch counts
// the membership changes it has applied.
package raftyard

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// SystemGroup is the group that holds the registry: which nodes and which
// groups the cluster has. Every node has a replica of it.
const SystemGroup GroupID = 0

// GroupID names a group in its cluster. Zero is [SystemGroup]; every other value is
// free to be used.
type GroupID uint64

// String returns the id in decimal.
func (id GroupID) String() string { return strconv.FormatUint(uint64(id), 10) }

// ParseGroupID reads what String writes, and nothing else: no sign, no leading zero. The
// error says only what is wanted.
func ParseGroupID(text string) (GroupID, error) {
	id, ok := parseID(text)
	if !ok {
		return 0, fmt.Errorf("want a group id, a decimal number from 0 to %d",
			uint64(math.MaxUint64))
	}
	return GroupID(id), nil
}

// CheckUser returns nil if a group with the id may be created and deleted, which the system
// group may not. The error says only what is wanted.
func (id GroupID) CheckUser() error {
	if id == SystemGroup {
		return fmt.Errorf("want a group id, a decimal number from 1 to %d: 0 is the system group",
			uint64(math.MaxUint64))
	}
	return nil
}

// NodeID names a node in its cluster. Its operator chooses it, from 1 to [MaxNodeID]; it
// is never given to another data directory, not even after the node is gone.
type NodeID uint64

// MaxNodeID is the largest id of a node. It is typed by people and read by whatever reads
// JSON: up to here a floating point number holds every integer.
const MaxNodeID = 1<<53 - 1

// String returns the id in decimal.
func (id NodeID) String() string { return strconv.FormatUint(uint64(id), 10) }

// Check returns nil if a node may have the id. The error says only what is wanted.
func (id NodeID) Check() error {
	if id == 0 || id > MaxNodeID {
		return fmt.Errorf("want a node id, a decimal number from 1 to %d", MaxNodeID)
	}
	return nil
}

// ParseNodeID reads what String writes, and nothing else, of an id that a node may have.
// The error is that of [NodeID.Check].
func ParseNodeID(text string) (NodeID, error) {
	id, ok := parseID(text)
	if !ok {
		id = 0
	}
	return NodeID(id), NodeID(id).Check()
}

// parseID reads a decimal number as it is printed: what one reader takes for octal and
// another does not is no id.
func parseID(text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil && strconv.FormatUint(id, 10) == text
}

// ReplicaID names a member of one group. The group gives it out when it applies
// the membership change that adds the member; it is not zero and never reused.
// It is the id by which raft knows the member.
type ReplicaID uint64

// String returns the id in decimal.
func (id ReplicaID) String() string { return strconv.FormatUint(uint64(id), 10) }

// Incarnation tells two groups apart that bore the same [GroupID] one after the
// other. It is a UUID; the zero value names no incarnation.
type Incarnation [16]byte

// IsZero reports whether in names no incarnation.
func (in Incarnation) IsZero() bool { return in == Incarnation{} }

// String returns the usual form of a UUID, 8-4-4-4-12 hexadecimal digits.
func (in Incarnation) String() string { return uuidText(in) }

// StoreID names a data directory. It is a UUID that is made with the directory:
// a node that is started with an empty directory, under whichever node id, has
// another one. The zero value names no directory.
type StoreID [16]byte

// IsZero reports whether s names no directory.
func (s StoreID) IsZero() bool { return s == StoreID{} }

// String returns the usual form of a UUID, 8-4-4-4-12 hexadecimal digits.
func (s StoreID) String() string { return uuidText(s) }

func uuidText(id [16]byte) string {
	var buf [36]byte
	hex.Encode(buf[0:8], id[0:4])
	buf[8] = '-'
	hex.Encode(buf[9:13], id[4:6])
	buf[13] = '-'
	hex.Encode(buf[14:18], id[6:8])
	buf[18] = '-'
	hex.Encode(buf[19:23], id[8:10])
	buf[23] = '-'
	hex.Encode(buf[24:36], id[10:16])
	return string(buf[:])
}
