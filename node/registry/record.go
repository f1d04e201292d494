package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/internal/lineage"
)

// What a record may hold. A command over a limit is [Invalid].
const (
	MaxMembers     = 15  // voters and learners of a group together
	MaxBefore      = 64  // former members that a group has not left for certain
	MaxKindBytes   = 64  // length of a kind
	MaxAddrBytes   = 255 // length of an address
	MaxLabels      = 32  // labels of a node
	MaxLabelBytes  = 255 // length of a label's key or value
	maxRecordBytes = 1 << 16
)

// A Node is one node of the cluster.
type Node struct {
	ID     raftyard.NodeID
	Peer   string // host:port for other nodes
	HTTP   string // host:port of its API; empty when it has none
	Labels map[string]string

	// Store is the id of the node's data directory, zero while it is not known.
	// Once known it changes by [ReplaceStore] alone: another directory under the
	// same node id has forgotten what the node has promised.
	Store Store

	// First is the first directory that was registered for the node, zero while
	// none was. It never changes. It is one that no node has, all bits set, if the node
	// founds the cluster and came late; see [SetNode].
	First Store

	// Boot counts the starts of Store: it is the latest that was registered. It
	// is zero while none was. A process with an earlier one runs on an older copy
	// of the directory.
	Boot uint64

	// Process was made at random in that start. It is zero while it is not known.
	Process raftyard.StoreID

	// State is what the node is used for.
	State NodeState

	// Forced says of a leaving node that it is dead for ever, or to be treated so:
	// groups that find nobody in its place go on with fewer voters.
	Forced bool
}

// A Store is the id of a data directory.
type Store = raftyard.StoreID

// A NodeState says what a node is used for. Only [SetNodeState] changes it.
type NodeState uint8

// The states of a node.
const (
	NodeActive  NodeState = iota // in use
	NodeDrained                  // its replicas stay, but are not to lead
	NodeLeaving                  // its replicas are to go; it gets no new ones
	NodeRemoved                  // has left for ever; its id is never used again
)

// String returns the state's name in lower case.
func (s NodeState) String() string {
	switch s {
	case NodeActive:
		return "active"
	case NodeDrained:
		return "drained"
	case NodeLeaving:
		return "leaving"
	case NodeRemoved:
		return "removed"
	default:
		return "state " + strconv.Itoa(int(s))
	}
}

// A Group is what the registry knows of one group.
type Group struct {
	ID          raftyard.GroupID
	Incarnation raftyard.Incarnation

	// Kind names the state machine.
	Kind string

	// Voters and Learners are the nodes that are wanted to hold a replica, in
	// the order of their ids.
	Voters, Learners []raftyard.NodeID

	// Before are the nodes that were wanted as members before and are not any more,
	// in the order of their ids. Until the group has come to what is wanted now, which
	// [Reached] says, what it has may be on them alone. With very many changes that are
	// not waited for, the list is full, and no other ones are wanted.
	Before []raftyard.NodeID

	// SnapshotEntries and TrailingEntries are the group's options, as they were
	// given when it was created.
	SnapshotEntries, TrailingEntries uint64

	// Seed is the node on which the group begins: it alone may found the
	// group's first replica. It never changes, even if the node is no longer
	// wanted as a member.
	Seed raftyard.NodeID

	// SeedStore is the data directory of the seed. In another one, under the same
	// node id, the group was founded before and must not be founded again. It is
	// zero only if nobody knew it when the group was created.
	SeedStore Store

	// Version is the registry's version at the last change of this record. It
	// rises with each change, also over deletion and creation, and is the
	// token of compare-and-set.
	Version uint64

	// Deleted says that the group is gone. Of its record only ID, Incarnation,
	// Kind and Version are kept, for nodes that were down when it was deleted.
	Deleted bool
}

// difference says in what g, which exists, is not what o asks for: in kind,
// members or options. It is empty if they are the same. The incarnation and the
// seed do not count; they are choices of whoever proposed the group.
func (g *Group) difference(o *Group) string {
	switch {
	case g.Kind != o.Kind:
		return fmt.Sprintf("the kind is %s, not %s", g.Kind, o.Kind)
	case !slices.Equal(g.Voters, o.Voters):
		return fmt.Sprintf("the voters are %v, not %v", g.Voters, o.Voters)
	case !slices.Equal(g.Learners, o.Learners):
		return fmt.Sprintf("the learners are %v, not %v", g.Learners, o.Learners)
	case g.SnapshotEntries != o.SnapshotEntries:
		return fmt.Sprintf("snapshot_entries is %d, not %d", g.SnapshotEntries, o.SnapshotEntries)
	case g.TrailingEntries != o.TrailingEntries:
		return fmt.Sprintf("trailing_entries is %d, not %d", g.TrailingEntries, o.TrailingEntries)
	default:
		return ""
	}
}

// check returns what is wrong with g by itself.
func (g *Group) check() error {
	switch {
	case g.ID == raftyard.SystemGroup:
		return errors.New("group 0 is the system group")
	case g.Incarnation.IsZero():
		return errors.New("the incarnation is zero")
	case g.Deleted:
		if len(g.Voters)+len(g.Learners)+len(g.Before) != 0 {
			return errors.New("a deleted group has members")
		}
		return checkKind(g.Kind)
	}
	if err := checkKind(g.Kind); err != nil {
		return err
	}
	if err := checkMembers(g.Voters, g.Learners); err != nil {
		return err
	}
	if err := g.checkBefore(); err != nil {
		return err
	}
	if g.Seed == 0 {
		return errors.New("the seed is zero")
	}
	return nil
}

func (g *Group) checkBefore() error {
	if len(g.Before) > MaxBefore {
		return fmt.Errorf("%d former members, the limit is %d", len(g.Before), MaxBefore)
	}
	for i, id := range g.Before {
		switch {
		case id == 0 || i > 0 && g.Before[i-1] >= id:
			return errors.New("the former members are not in order")
		case g.wants(id):
			return fmt.Errorf("node %d is a member and a former one", id)
		}
	}
	return nil
}

// wants reports whether the group is to have a replica on the node.
func (g *Group) wants(id raftyard.NodeID) bool {
	return slices.Contains(g.Voters, id) || slices.Contains(g.Learners, id)
}

// Names reports whether the group is to have a replica on the node, or may still have one
// there because it was to have one.
func (g *Group) Names(id raftyard.NodeID) bool {
	return g.wants(id) || slices.Contains(g.Before, id)
}

// checkKind allows visible ASCII only: what counts as a letter in Unicode
// depends on the version of its tables, and every node must come to the same
// answer.
func checkKind(kind string) error {
	switch {
	case kind == "":
		return errors.New("the kind is empty")
	case len(kind) > MaxKindBytes:
		return fmt.Errorf("the kind has %d bytes, the limit is %d", len(kind), MaxKindBytes)
	case !visible(kind):
		return errors.New("the kind has bytes that are not visible ASCII")
	}
	return nil
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// CheckMembers returns why no group can have such members, on whatever nodes: nil, or what
// the registry would say. The lists must be sorted.
func CheckMembers(voters, learners []raftyard.NodeID) error {
	return checkMembers(voters, learners)
}

// checkMembers expects sorted lists.
func checkMembers(voters, learners []raftyard.NodeID) error {
	if len(voters) == 0 {
		return errors.New("there are no voters")
	}
	if n := len(voters) + len(learners); n > MaxMembers {
		return fmt.Errorf("%d members, the limit is %d", n, MaxMembers)
	}
	all := slices.Concat(voters, learners)
	slices.Sort(all)
	for i, id := range all {
		if id == 0 {
			return errors.New("node 0 is not a node")
		}
		if i > 0 && all[i-1] == id {
			return fmt.Errorf("node %d is listed twice", id)
		}
	}
	return nil
}

// checkRecord returns what is wrong with a record that is said to be a node of
// a registry.
func (n *Node) checkRecord() error {
	switch {
	case n.State > NodeRemoved:
		return fmt.Errorf("%v is not known", n.State)
	case n.Forced && n.State != NodeLeaving:
		return errors.New("forced to leave, and not leaving")
	case n.Store.IsZero() != n.First.IsZero():
		return errors.New("only one of the present and the first directory is known")
	case n.Store.IsZero() && n.Boot != 0:
		return errors.New("a start of no directory")
	case n.Boot == 0 && !n.Process.IsZero():
		return errors.New("a process of no start")
	case n.State != NodeRemoved:
		return n.check()
	case n.ID == 0:
		return errors.New("node 0 is not a node")
	case n.Peer != "" || n.HTTP != "" || len(n.Labels) != 0 || n.Boot != 0:
		return errors.New("a removed node has addresses, labels or starts")
	}
	return nil
}

// check returns what is wrong with n as a node that is to be registered.
func (n *Node) check() error {
	switch {
	case n.ID == 0:
		return errors.New("node 0 is not a node")
	case n.Peer == "":
		return errors.New("the peer address is empty")
	case len(n.Peer) > MaxAddrBytes || len(n.HTTP) > MaxAddrBytes:
		return fmt.Errorf("an address is longer than %d bytes", MaxAddrBytes)
	case !visible(n.Peer) || !visible(n.HTTP):
		return errors.New("an address has bytes that are not visible ASCII")
	case len(n.Labels) > MaxLabels:
		return fmt.Errorf("%d labels, the limit is %d", len(n.Labels), MaxLabels)
	}
	for k, v := range n.Labels {
		switch {
		case k == "":
			return errors.New("a label has no key")
		case len(k) > MaxLabelBytes || len(v) > MaxLabelBytes:
			return fmt.Errorf("a label is longer than %d bytes", MaxLabelBytes)
		case !utf8.ValidString(k) || !utf8.ValidString(v):
			return errors.New("a label is not UTF-8")
		}
	}
	return nil
}

// Start is the latest start of Store that was registered.
func (n *Node) Start() lineage.Start {
	return lineage.Start{Boot: n.Boot, Process: n.Process}
}

func (n *Node) equal(o *Node) bool {
	return n.ID == o.ID && n.Peer == o.Peer && n.HTTP == o.HTTP &&
		n.Store == o.Store && n.First == o.First && n.Boot == o.Boot &&
		n.Process == o.Process && n.State == o.State && n.Forced == o.Forced &&
		maps.Equal(n.Labels, o.Labels)
}

func (n Node) clone() *Node {
	n.Labels = maps.Clone(n.Labels)
	return &n
}

func compareIDs(a, b raftyard.NodeID) int { return cmp.Compare(a, b) }

// findNode returns where the node is, or belongs, in a list sorted by id.
func findNode(nodes []*Node, id raftyard.NodeID) (int, bool) {
	return slices.BinarySearchFunc(nodes, id, func(n *Node, id raftyard.NodeID) int {
		return compareIDs(n.ID, id)
	})
}

// putNode returns nodes with n added or put in the place of the one with its
// id. It does not touch nodes.
func putNode(nodes []*Node, n *Node) []*Node {
	i, ok := findNode(nodes, n.ID)
	if ok {
		next := slices.Clone(nodes)
		next[i] = n
		return next
	}
	next := make([]*Node, 0, len(nodes)+1)
	next = append(next, nodes[:i]...)
	next = append(next, n)
	return append(next, nodes[i:]...)
}
