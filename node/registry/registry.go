// Package registry is the state machine of the system group: which nodes and
// which groups the cluster has, and what each group is wanted to be.
//
// Every node has a replica of the system group, so every node can list
// everything and can find any other node without asking. What is here changes
// only by commands in that group's log, which makes creating, changing and
// deleting a group linearizable, and lets a node that was down learn of it when
// it is back.
//
//	cmd := registry.EncodeCreateGroup(registry.CreateGroup{ID: 7, Kind: "kv", ...})
//	... propose cmd to raftyard.SystemGroup, take the data of its result ...
//	res, err := registry.DecodeResult(data) // res.Code == registry.Created
//
// The registry says what is wanted. What a group's members really are is in the
// group's own descriptor; its leader brings the two together.
//
// # State
//
// The state is a function of the log alone. The address book of the
// configuration is not part of it, because two nodes may be configured
// differently, be it only while an operator edits one file after the other: it
// is what reads fall back on for a node that is not registered, and
// [Registry.Unregistered] names those for the leader to register.
//
// It lives in memory and is rebuilt from a snapshot and the log after it. It is
// never modified but replaced: each change copies the page of the record that
// it touches and the list of pages, about 5 KiB with 100,000 groups, and shares
// the rest. So a read never waits for Apply, and a [Registry.Snapshot] costs one
// pointer, however many groups there are.
package registry

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// A Registry is one replica of the system group's state. Its reading methods
// may be called from any goroutine at any time; each sees the state between two
// calls of Apply or Restore. What they return is shared: the slices and maps in
// a [Group] or a [Node] must not be modified.
type Registry struct {
	genesis  []*Node // by id; not replicated
	onChange func()
	state    atomic.Pointer[state]
}

var (
	_ group.StateMachine = (*Registry)(nil)
	_ group.Hasher       = (*Registry)(nil)
)

// state is the replicated state at one point of the log. It is immutable once
// it is published, and so is everything that it points at.
type state struct {
	version uint64  // counts the commands that changed something
	nodes   []*Node // by id
	groups  table
}

// New returns an empty registry. genesis is the address book that this node was
// configured with; of two entries with the same id the last one counts.
// onChange, unless nil, is called after each Apply that changed something and
// after each Restore, with no lock held. It must not block, nor call Apply.
func New(genesis []Node, onChange func()) *Registry {
	r := &Registry{onChange: onChange}
	for _, n := range genesis {
		r.genesis = putNode(r.genesis, n.clone())
	}
	r.state.Store(&state{})
	return r
}

// Version counts the commands that have changed something. It never falls,
// except when Restore replaces the state by an older one.
func (r *Registry) Version() uint64 { return r.state.Load().version }

// Group returns the record of a group. The record of a deleted group is there
// too, with Deleted set.
func (r *Registry) Group(id raftyard.GroupID) (Group, bool) {
	g, ok := r.Record(id)
	if !ok {
		return Group{}, false
	}
	return *g, true
}

// Record is Group for whoever keeps the record: it is the registry's own, which never
// changes, and must not be modified.
func (r *Registry) Record(id raftyard.GroupID) (*Group, bool) {
	return r.state.Load().groups.get(id)
}

// Groups returns the groups that are not deleted and whose ids are greater than
// after, in the order of their ids: at most limit of them, or all if limit is
// zero or less.
func (r *Registry) Groups(after raftyard.GroupID, limit int) []Group {
	groups := &r.state.Load().groups
	room := groups.len() - groups.deleted
	if limit > 0 {
		room = min(room, limit)
	}
	list := make([]Group, 0, room)
	for g := range groups.after(after) {
		if len(list) == room {
			break
		}
		if !g.Deleted {
			list = append(list, *g)
		}
	}
	return list
}

// All iterates over every record, those of deleted groups too, in the order of
// their ids. It shows the state as it was when the iteration began.
func (r *Registry) All() iter.Seq[Group] {
	return func(yield func(Group) bool) {
		for g := range r.state.Load().groups.after(0) {
			if !yield(*g) {
				return
			}
		}
	}
}

// Changes returns the records that have changed after the registry was at the
// version since, those of deleted groups too, and the version that it is at now:
// the since of the next call. Records that were forgotten are not among them, nor
// are nodes. They are the registry's own, as those of [Registry.Record]. It costs about
// as much as there are changes, so that a caller can follow a hundred thousand groups.
func (r *Registry) Changes(since uint64) (changed []*Group, version uint64) {
	st := r.state.Load()
	return slices.Collect(st.groups.since(since)), st.version
}

// Nodes returns every node that is not removed, in the order of the ids: the
// registered ones, and those that only this node's configuration knows.
func (r *Registry) Nodes() []Node {
	registered := r.state.Load().nodes
	list := make([]Node, 0, len(registered)+len(r.genesis))
	for _, n := range registered {
		if n.State != NodeRemoved {
			list = append(list, *n)
		}
	}
	for _, n := range r.genesis {
		if _, ok := findNode(registered, n.ID); !ok {
			list = append(list, *n)
		}
	}
	slices.SortFunc(list, func(a, b Node) int { return compareIDs(a.ID, b.ID) })
	return list
}

// Node returns one node, as [Registry.Nodes] lists it, or the record of a removed
// one, with its State set so.
func (r *Registry) Node(id raftyard.NodeID) (Node, bool) {
	for _, nodes := range [][]*Node{r.state.Load().nodes, r.genesis} {
		if i, ok := findNode(nodes, id); ok {
			return *nodes[i], true
		}
	}
	return Node{}, false
}

// Unregistered returns the nodes that this node's configuration knows and the
// registry does not. Groups cannot be placed on them before the leader of the
// system group has registered them, with SetNode and IfAbsent.
func (r *Registry) Unregistered() []Node {
	registered := r.state.Load().nodes
	var list []Node
	for _, n := range r.genesis {
		if _, ok := findNode(registered, n.ID); !ok {
			list = append(list, *n)
		}
	}
	return list
}

// Counts says how much there is of everything.
type Counts struct {
	Nodes   int // registered and not removed
	Groups  int // not deleted
	Deleted int // records of deleted groups
}

// Counts returns the sizes of the registry.
func (r *Registry) Counts() Counts {
	st := r.state.Load()
	nodes := 0
	for _, n := range st.nodes {
		if n.State != NodeRemoved {
			nodes++
		}
	}
	return Counts{
		Nodes:   nodes,
		Groups:  st.groups.len() - st.groups.deleted,
		Deleted: st.groups.deleted,
	}
}

// Apply implements [group.StateMachine]. It never fails: a command that makes no
// sense has the result [Invalid].
func (r *Registry) Apply(batch []group.Command) ([]group.Result, error) {
	next := *r.state.Load()
	before := next.version
	results := make([]group.Result, len(batch))
	for i, c := range batch {
		results[i].Data = next.apply(c.Data).encode()
	}
	if next.version != before {
		r.publish(&next)
	}
	return results, nil
}

// Show makes r show what o has now. It is for a registry that is only read, in front of
// those that come one after the other as the state machines of replicas. It does not
// call onChange.
func (r *Registry) Show(o *Registry) { r.state.Store(o.state.Load()) }

// Close implements [group.StateMachine]. Nothing needs to be released, and the
// last state can still be read.
func (r *Registry) Close() error { return nil }

func (r *Registry) publish(st *state) {
	r.state.Store(st)
	if r.onChange != nil {
		r.onChange()
	}
}
