package registry

import (
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
	"github.com/raftyard/raftyard/internal/wire"
)

// commandFormat is the first byte of every command; the second is its
// commandKind. docs/formats/registry.md has the fields.
//
// A node that does not know a command answers Invalid and changes nothing, while
// one that knows it applies it. So a new kind, or a new format, must not be
// proposed before every node of the cluster knows it.
//
// Format 1, which is still read, differs in what set node has. Format 3 has set node
// alone, with the fields of format 2, and says of the node that it is late. Format 4 has
// set node alone, of a node that shows its starts. All else is still written as format 2.
const (
	commandFormat       = 2
	commandFormatV1     = 1
	commandFormatLate   = 3
	commandFormatStarts = 4
)

type commandKind byte

const (
	kindCreateGroup  commandKind = 1
	kindDeleteGroup  commandKind = 2
	kindWantMembers  commandKind = 3
	kindSetNode      commandKind = 4
	kindSetNodeState commandKind = 5
	kindReplaceStore commandKind = 6
	kindForgetGroup  commandKind = 7
	kindReached      commandKind = 8
)

// CreateGroup asks for a group to be there. The result is
//
//   - [Created];
//   - [ExistsSame] if it is there already with the same kind, members and
//     options. Its incarnation and seed may be others: the result has them;
//   - [Conflict] if it is there with others;
//   - [Invalid], among other reasons, if a node is not registered, is leaving or
//     removed, the seed is not a voter, or the incarnation is that of the deleted
//     group whose id this is.
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
// the command says; [Invalid], among other reasons, if a node is not registered or
// removed, or is leaving and was not wanted before.
type WantMembers struct {
	ID raftyard.GroupID

	// Incarnation, unless zero, is the one to change.
	Incarnation raftyard.Incarnation

	Voters, Learners []raftyard.NodeID // in any order

	// IfVersion, unless zero, is what the record's Version must be.
	IfVersion uint64
}

// SetNode registers a node, or changes its addresses and labels, and takes down
// its data directory and the latest start of it. The result is [OK], also if
// nothing changes; [Created] if the node was not registered; [NotFound] if it was
// not and is not to be; [Conflict] if it is known with another data directory; or
// [Invalid], among other reasons, if it was removed, or Boot is lower than the one
// that is registered, or Starts do not show that one: the process runs on an older copy of
// the directory. A node without a Store or a Boot keeps what is registered. First, Process,
// State and Forced do not count.
type SetNode struct {
	Node Node

	// Starts, if there are any, are those of the directory up to Boot.
	Starts lineage.Lineage

	// IfAbsent leaves the addresses and labels of a node alone that is registered
	// already: they may be newer than what the proposer was configured with.
	IfAbsent bool

	// IfPresent registers no node that is not registered.
	IfPresent bool

	// Sparse leaves of a node that is registered what the command does not say: an
	// HTTP address that is empty, and no labels.
	Sparse bool

	// Late says of a node that founds the cluster that, as far as the proposer knows, it
	// has taken no part in that in Store. If no directory of the node was registered before,
	// then what the cluster was founded with on the node is in none: First becomes one that
	// no node has.
	Late bool
}

// SetNodeState changes what a node is used for. The result is [OK], also if it is
// used so already; [NotFound] if the node is not registered; [Invalid] if it was
// removed; or [Conflict] if it cannot go there from its present state. The ways are
//
//	active ⇄ drained ⇄ leaving → removed
//
// and the last step is refused, with Conflict, while a group that is not deleted
// wants a replica on the node. Of a removed node only the id and the data
// directories are kept.
type SetNodeState struct {
	ID    raftyard.NodeID
	State NodeState

	// Forced is for a node that is leaving: it goes whatever it costs. It is set
	// once the node is leaving, or later, and gone when that is taken back.
	Forced bool
}

// ReplaceStore says that the node goes on with another data directory, in which
// nothing is of what it had. The result is [OK], also if New is registered
// already; [NotFound] if the node is not registered; [Conflict] if the registered
// directory is not Old; or [Invalid] if the node was removed, New is zero, or New
// is the directory that the node had first.
type ReplaceStore struct {
	ID       raftyard.NodeID
	Old, New Store
}

// ForgetGroup drops the record of a deleted group. The result is [OK]; [NotFound]
// if there is no record; or [Conflict] if the group is not deleted, or is another
// incarnation. What remembers that the group is gone is gone with the record, a
// late copy of the command that created it, too: forgetting is for when nothing is
// left anywhere.
type ForgetGroup struct {
	ID          raftyard.GroupID
	Incarnation raftyard.Incarnation
}

// Reached says that the group has the members that are wanted and no others, so that
// nothing of it that counts is on nodes where it was wanted before. Whoever proposes it
// leads the group. The result is [OK]; [NotFound] if there is no such group, or it is
// deleted; or [Stale] if Incarnation or Version is not the record's.
type Reached struct {
	ID          raftyard.GroupID
	Incarnation raftyard.Incarnation
	Version     uint64
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
	shows := len(c.Starts.Starts) > 0
	switch {
	case shows:
		b[0] = commandFormatStarts
	case c.Late:
		b[0] = commandFormatLate
	}
	b = appendNodeSpec(b, &c.Node)
	b = wire.AppendUvarint(b, c.Node.Boot)
	b = wire.AppendBool(b, c.IfAbsent)
	b = wire.AppendBool(b, c.IfPresent)
	b = wire.AppendBool(b, c.Sparse)
	if shows {
		b = wire.AppendBool(b, c.Late)
		b = c.Starts.Append(b)
	}
	return b
}

// EncodeSetNodeState returns c as a command for the system group.
func EncodeSetNodeState(c SetNodeState) []byte {
	b := []byte{commandFormat, byte(kindSetNodeState)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	b = append(b, byte(c.State))
	return wire.AppendBool(b, c.Forced)
}

// EncodeReplaceStore returns c as a command for the system group.
func EncodeReplaceStore(c ReplaceStore) []byte {
	b := []byte{commandFormat, byte(kindReplaceStore)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	return wire.AppendID(wire.AppendID(b, c.Old), c.New)
}

// EncodeForgetGroup returns c as a command for the system group.
func EncodeForgetGroup(c ForgetGroup) []byte {
	b := []byte{commandFormat, byte(kindForgetGroup)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	return wire.AppendID(b, c.Incarnation)
}

// EncodeReached returns c as a command for the system group.
func EncodeReached(c Reached) []byte {
	b := []byte{commandFormat, byte(kindReached)}
	b = wire.AppendUvarint(b, uint64(c.ID))
	return wire.AppendUvarint(wire.AppendID(b, c.Incarnation), c.Version)
}

// command is a decoded command.
type command interface {
	apply(st *state) Result
}

func decodeCommand(data []byte) (command, error) {
	r := wire.NewReader(data)
	format := r.Byte()
	if r.Err() == nil && (format < commandFormatV1 || format > commandFormatStarts) {
		return nil, fmt.Errorf("command format %d is not known", format)
	}
	kind := commandKind(r.Byte())
	c := readCommand(r, format, kind)
	if c == nil {
		r.Fail("command kind %d is not known in format %d", kind, format)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return c, nil
}

// readCommand returns nil for a kind that is not known in the format.
func readCommand(r *wire.Reader, format byte, kind commandKind) command {
	switch {
	case kind == kindSetNode && format == commandFormatV1:
		return setNodeV1{Node: readNodeSpec(r), IfAbsent: r.Bool()}
	case kind == kindSetNode:
		return readSetNode(r, format)
	case format > commandFormat:
		return nil
	}
	c := readGroupCommand(r, kind)
	if c == nil && format == commandFormat {
		return readNodeCommand(r, kind)
	}
	return c
}

func readSetNode(r *wire.Reader, format byte) SetNode {
	c := SetNode{Node: readNodeSpec(r), Late: format == commandFormatLate}
	c.Node.Boot = r.Uvarint()
	c.IfAbsent, c.IfPresent, c.Sparse = r.Bool(), r.Bool(), r.Bool()
	if format == commandFormatStarts {
		c.Late, c.Starts = r.Bool(), lineage.Read(r)
		if len(c.Starts.Starts) == 0 {
			r.Fail("no starts are shown")
		}
	}
	return c
}

// readGroupCommand returns nil for a kind that is not known in every format.
func readGroupCommand(r *wire.Reader, kind commandKind) command {
	switch kind {
	case kindCreateGroup:
		return CreateGroup{
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
		return DeleteGroup{ID: raftyard.GroupID(r.Uvarint()), Incarnation: r.ID()}
	case kindWantMembers:
		return WantMembers{
			ID:          raftyard.GroupID(r.Uvarint()),
			Incarnation: r.ID(),
			Voters:      readNodeIDs(r),
			Learners:    readNodeIDs(r),
			IfVersion:   r.Uvarint(),
		}
	default:
		return nil
	}
}

// readNodeCommand returns nil for a kind that is not new in format 2.
func readNodeCommand(r *wire.Reader, kind commandKind) command {
	switch kind {
	case kindSetNodeState:
		return SetNodeState{
			ID: raftyard.NodeID(r.Uvarint()), State: NodeState(r.Byte()), Forced: r.Bool(),
		}
	case kindReplaceStore:
		return ReplaceStore{ID: raftyard.NodeID(r.Uvarint()), Old: r.ID(), New: r.ID()}
	case kindForgetGroup:
		return ForgetGroup{ID: raftyard.GroupID(r.Uvarint()), Incarnation: r.ID()}
	case kindReached:
		return Reached{
			ID: raftyard.GroupID(r.Uvarint()), Incarnation: r.ID(), Version: r.Uvarint(),
		}
	default:
		return nil
	}
}
