package registry

import (
	"maps"
	"slices"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/wire"
)

// The parts that commands, results and snapshots are made of. They have no
// version of their own: what contains them has.

func appendNodeIDs(b []byte, ids []raftyard.NodeID) []byte {
	b = wire.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = wire.AppendUvarint(b, uint64(id))
	}
	return b
}

func readNodeIDs(r *wire.Reader) []raftyard.NodeID {
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	ids := make([]raftyard.NodeID, n)
	for i := range ids {
		ids[i] = raftyard.NodeID(r.Uvarint())
	}
	return ids
}

// appendNode appends a record.
func appendNode(b []byte, n *Node) []byte {
	b = appendNodeSpec(b, n)
	b = wire.AppendID(b, n.First)
	b = wire.AppendUvarint(b, n.Boot)
	b = wire.AppendID(b, n.Process)
	b = append(b, byte(n.State))
	return wire.AppendBool(b, n.Forced)
}

// readNode reads a record as results and snapshots of a format have it. Before format 4 no
// process is known; in format 1 a node had one data directory for ever, no state, and no
// starts.
func readNode(r *wire.Reader, format byte) Node {
	n := readNodeSpec(r)
	if format == 1 {
		n.First = n.Store
		return n
	}
	n.First, n.Boot = r.ID(), r.Uvarint()
	if format > 3 {
		n.Process = r.ID()
	}
	n.State, n.Forced = NodeState(r.Byte()), r.Bool()
	return n
}

// appendNodeSpec appends what is said of a node. The labels come in the order of
// their keys, so that equal nodes have equal bytes.
func appendNodeSpec(b []byte, n *Node) []byte {
	b = wire.AppendUvarint(b, uint64(n.ID))
	b = wire.AppendString(b, n.Peer)
	b = wire.AppendString(b, n.HTTP)
	b = wire.AppendID(b, n.Store)
	b = wire.AppendUvarint(b, uint64(len(n.Labels)))
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		b = wire.AppendString(b, k)
		b = wire.AppendString(b, n.Labels[k])
	}
	return b
}

func readNodeSpec(r *wire.Reader) Node {
	n := Node{
		ID: raftyard.NodeID(r.Uvarint()), Peer: r.String(), HTTP: r.String(), Store: r.ID(),
	}
	count := r.Count(2)
	if count == 0 {
		return n
	}
	// Not allocated for count at once: a map takes much more than the two
	// bytes that an entry takes in the input.
	n.Labels = make(map[string]string)
	last := ""
	for i := range count {
		k, v := r.String(), r.String()
		if i > 0 && k <= last {
			r.Fail("label %q does not come after %q", k, last)
		}
		if r.Err() != nil {
			return Node{}
		}
		n.Labels[k], last = v, k
	}
	return n
}

func appendGroup(b []byte, g *Group) []byte {
	b = wire.AppendUvarint(b, uint64(g.ID))
	b = wire.AppendID(b, g.Incarnation)
	b = wire.AppendString(b, g.Kind)
	b = wire.AppendUvarint(b, g.Version)
	b = wire.AppendBool(b, g.Deleted)
	if g.Deleted {
		return b
	}
	b = appendNodeIDs(b, g.Voters)
	b = appendNodeIDs(b, g.Learners)
	b = wire.AppendUvarint(b, g.SnapshotEntries)
	b = wire.AppendUvarint(b, g.TrailingEntries)
	b = wire.AppendUvarint(b, uint64(g.Seed))
	b = wire.AppendID(b, g.SeedStore)
	return appendNodeIDs(b, g.Before)
}

// readGroup reads a record as results and snapshots of a format have it. Before format 3
// nothing is known of former members.
func readGroup(r *wire.Reader, format byte) Group {
	g := Group{
		ID:          raftyard.GroupID(r.Uvarint()),
		Incarnation: r.ID(),
		Kind:        r.String(),
		Version:     r.Uvarint(),
		Deleted:     r.Bool(),
	}
	if g.Deleted {
		return g
	}
	g.Voters = readNodeIDs(r)
	g.Learners = readNodeIDs(r)
	g.SnapshotEntries = r.Uvarint()
	g.TrailingEntries = r.Uvarint()
	g.Seed = raftyard.NodeID(r.Uvarint())
	g.SeedStore = r.ID()
	if format > 2 {
		g.Before = readNodeIDs(r)
	}
	return g
}
