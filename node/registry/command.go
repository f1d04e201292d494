package registry

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// commandFormat is the first byte of every command; the second is its
// commandKind. docs/formats/registry.md has the fields.
//
// A node that does not know a command answers Invalid and changes nothing, while
// one that knows it applies it. So a new kind, or a new format, must not be
// proposed before every node of the cluster knows it.
const commandFormat = 1

type commandKind byte

const (
	kindCreateGroup commandKind = 1
	kindDeleteGroup commandKind = 2
	kindWantMembers commandKind = 3
	kindSetNode     commandKind = 4
)

// CreateGroup asks for a group to be there. The result is
//
//   - [Created];
//   - [ExistsSame] if it is there already with the same kind, members and
//     options. Its incarnation and seed may be others: the result has them;
//   - [Conflict] if it is there with others;
//   - [Invalid], among other reasons, if a node is not registered, the seed is
//     not a voter, or the incarnation is that of the deleted group whose id
//     this is.
type CreateGroup struct {
	ID raftyard.GroupID

	// Incarnation is chosen at random by the proposer, for this command alone.
	Incarnation raftyard.Incarnation

	Kind                             string
	Voters, Learners                 []raftyard.NodeID // in any order
	SnapshotEntries, TrailingEntries uint64
	Seed                             raftyard.NodeID // one of Voters

	// SeedStore is the seed's data directory, as the proposer knows it. What the
	// registry knows of the node counts more.
	SeedStore Store
}

// DeleteGroup asks for a group to be gone. The result is [OK], also if it is
// gone already; [NotFound] if it never was there; [Stale] if Incarnation is not
// the one that is there.
type DeleteGroup struct {
	ID raftyard.GroupID

	// Incarnation, unless zero, is the one to delete.
	Incarnation raftyard.Incarnation
}

// WantMembers asks for a group to have other members. The result is [OK], also
// if they are wanted already; [NotFound] if there is no such group, or it is
// deleted; [Stale] if the group is another incarnation or another version than
// the command says; [Invalid].
type WantMembers struct {
	ID raftyard.GroupID

	// Incarnation, unless zero, is the one to change.
	Incarnation raftyard.Incarnation

	Voters, Learners []raftyard.NodeID // in any order

	// IfVersion, unless zero, is what the record's Version must be.
	IfVersion uint64
}

// SetNode registers a node, or changes its addresses and labels. The result is
// [OK], also if nothing changes; [Conflict] if the node is known with another
// data directory; or [Invalid]. A node without a Store keeps the one it has.
type SetNode struct {
	Node Node

	// IfAbsent leaves a node alone that is registered already, whatever its
	// addresses: they may be newer than what the proposer was configured with.
	IfAbsent bool
}

// EncodeCreateGroup returns c as a command for the system group.
func EncodeCreateGroup(c CreateGroup) []byte {
	b := []byte{commandFormat, byte(kindCreateGroup)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	b = wire.AppendID(b, c.Incarnation)
	b = wire.AppendString(b, c.Kind)
	b = appendNodeIDs(b, c.Voters)
	b = appendNodeIDs(b, c.Learners)
	b = wire.AppendUvarint(b, c.SnapshotEntries)
	b = wire.AppendUvarint(b, c.TrailingEntries)
	b = wire.AppendUvarint(b, uint64(c.Seed))
	return wire.AppendID(b, c.SeedStore)
}

// EncodeDeleteGroup returns c as a command for the system group.
func EncodeDeleteGroup(c DeleteGroup) []byte {
	b := []byte{commandFormat, byte(kindDeleteGroup)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	return wire.AppendID(b, c.Incarnation)
}

// EncodeWantMembers returns c as a command for the system group.
func EncodeWantMembers(c WantMembers) []byte {
	b := []byte{commandFormat, byte(kindWantMembers)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	b = wire.AppendID(b, c.Incarnation)
	b = appendNodeIDs(b, c.Voters)
	b = appendNodeIDs(b, c.Learners)
	return wire.AppendUvarint(b, c.IfVersion)
}

// EncodeSetNode returns c as a command for the system group.
func EncodeSetNode(c SetNode) []byte {
	b := []byte{commandFormat, byte(kindSetNode)}
	b = appendNode(b, &c.Node)
	return wire.AppendBool(b, c.IfAbsent)
}

// command is a decoded command.
type command interface {
	apply(st *state) Result
}

func decodeCommand(data []byte) (command, error) {
	r := wire.NewReader(data)
	if format := r.Byte(); r.Err() == nil && format != commandFormat {
		return nil, fmt.Errorf("command format %d is not known", format)
	}
	var c command
	switch kind := commandKind(r.Byte()); kind {
	case kindCreateGroup:
		c = CreateGroup{
			ID:              raftyard.GroupID(r.Uvarint()),
			Incarnation:     r.ID(),
			Kind:            r.String(),
			Voters:          readNodeIDs(r),
			Learners:        readNodeIDs(r),
			SnapshotEntries: r.Uvarint(),
			TrailingEntries: r.Uvarint(),
			Seed:            raftyard.NodeID(r.Uvarint()),
			SeedStore:       r.ID(),
		}
	case kindDeleteGroup:
		c = DeleteGroup{ID: raftyard.GroupID(r.Uvarint()), Incarnation: r.ID()}
	case kindWantMembers:
		c = WantMembers{
			ID:          raftyard.GroupID(r.Uvarint()),
			Incarnation: r.ID(),
			Voters:      readNodeIDs(r),
			Learners:    readNodeIDs(r),
			IfVersion:   r.Uvarint(),
		}
	case kindSetNode:
		c = SetNode{Node: readNode(r), IfAbsent: r.Bool()}
	default:
		r.Fail("command kind %d is not known", kind)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return c, nil
}
