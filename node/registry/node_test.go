package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/raftyard/raftyard"
)

// setState brings a node into a state by the steps given.
func setState(t *testing.T, r *Registry, id raftyard.NodeID, steps ...NodeState) {
	t.Helper()
	for _, s := range steps {
		if res := apply(t, r, EncodeSetNodeState(SetNodeState{ID: id, State: s})); res.Code != OK {
			t.Fatalf("node %d to %v = %v %s", id, s, res.Code, res.Detail)
		}
	}
}

func TestNodeStates(t *testing.T) {
	ways := map[NodeState][]NodeState{
		NodeActive:  nil,
		NodeDrained: {NodeDrained},
		NodeLeaving: {NodeDrained, NodeLeaving},
		NodeRemoved: {NodeDrained, NodeLeaving, NodeRemoved},
	}
	want := map[[2]NodeState]Code{
		{NodeActive, NodeDrained}: OK, {NodeActive, NodeLeaving}: Conflict,
		{NodeActive, NodeRemoved}: Conflict,
		{NodeDrained, NodeActive}: OK, {NodeDrained, NodeLeaving}: OK,
		{NodeDrained, NodeRemoved}: Conflict,
		{NodeLeaving, NodeActive}:  Conflict, {NodeLeaving, NodeDrained}: OK,
		{NodeLeaving, NodeRemoved}: OK,
		{NodeRemoved, NodeActive}:  Invalid, {NodeRemoved, NodeDrained}: Invalid,
		{NodeRemoved, NodeLeaving}: Invalid,
	}
	for from := NodeActive; from <= NodeRemoved; from++ {
		for to := NodeActive; to <= NodeRemoved; to++ {
			r := withNodes(t, 2)
			setState(t, r, 2, ways[from]...)
			before := r.Version()
			res := apply(t, r, EncodeSetNodeState(SetNodeState{ID: 2, State: to}))
			code, stays := want[[2]NodeState{from, to}], from
			if from == to {
				code = OK
			}
			if code == OK {
				stays = to
			}
			if res.Code != code || res.Node.State != stays {
				t.Errorf("%v to %v = %v %q, node %+v", from, to, res.Code, res.Detail, res.Node)
			}
			if changed := r.Version() != before; changed != (code == OK && from != to) {
				t.Errorf("%v to %v: changed is %t", from, to, changed)
			}
			if other, _ := r.Node(1); other.State != NodeActive {
				t.Errorf("%v to %v: the other node is %v", from, to, other.State)
			}
		}
	}
}

// TestForcedLeave: that a node is to leave whatever it costs is said when it leaves,
// or later, and forgotten when that is taken back.
func TestForcedLeave(t *testing.T) {
	r := withNodes(t, 1)
	steps := []struct {
		set    SetNodeState
		code   Code
		forced bool
	}{
		{SetNodeState{1, NodeActive, true}, OK, false},
		{SetNodeState{1, NodeDrained, true}, OK, false},
		{SetNodeState{1, NodeLeaving, false}, OK, false},
		{SetNodeState{1, NodeLeaving, true}, OK, true},
		{SetNodeState{1, NodeLeaving, false}, OK, true},
		{SetNodeState{1, NodeDrained, false}, OK, false},
		{SetNodeState{1, NodeLeaving, true}, OK, true},
		{SetNodeState{1, NodeActive, true}, Conflict, true},
	}
	for i, s := range steps {
		res := apply(t, r, EncodeSetNodeState(s.set))
		got, _ := r.Node(1)
		if res.Code != s.code || got.Forced != s.forced || res.Node.Forced != s.forced {
			t.Errorf("step %d, %+v = %v, node %+v", i, s.set, res.Code, got)
		}
		restore(t, New(nil, nil), save(t, r))
	}
	setState(t, r, 1, NodeRemoved)
	if got, _ := r.Node(1); got.Forced {
		t.Error("a removed node is forced to leave")
	}
}

func TestRemovedNode(t *testing.T) {
	r := New([]Node{node(1), node(2)}, nil)
	labelled := node(2)
	labelled.Store, labelled.Boot, labelled.Labels = Store{2}, 9, map[string]string{"zone": "a"}
	apply(t, r, EncodeSetNode(SetNode{Node: node(1)}))
	apply(t, r, EncodeSetNode(SetNode{Node: labelled}))
	setState(t, r, 2, NodeDrained, NodeLeaving, NodeRemoved)

	want := Node{ID: 2, Store: Store{2}, First: Store{2}, State: NodeRemoved}
	if n, ok := r.Node(2); !ok || cmp.Diff(want, n) != "" {
		t.Errorf("Node = %+v, %t, want what is kept of it", n, ok)
	}
	// The configuration names it still. It is not to come back by that.
	if list := r.Nodes(); len(list) != 1 || list[0].ID != 1 {
		t.Errorf("Nodes = %+v, want node 1 alone", list)
	}
	if list := r.Unregistered(); len(list) != 0 {
		t.Errorf("Unregistered = %+v, want none", list)
	}
	if c := r.Counts(); c.Nodes != 1 {
		t.Errorf("Counts = %+v, want one node", c)
	}
	for name, cmd := range map[string][]byte{
		"set node":  EncodeSetNode(SetNode{Node: labelled}),
		"if absent": EncodeSetNode(SetNode{Node: node(2), IfAbsent: true}),
		"format 1":  encodeCommand(t, setNodeV1{Node: node(2), IfAbsent: true}),
		"create": EncodeCreateGroup(CreateGroup{
			ID: 7, Incarnation: incarnation(1), Kind: "kv", Voters: ids(1, 2), Seed: 1,
		}),
	} {
		res := apply(t, r, cmd)
		if res.Code != Invalid || res.Detail != "node 2 was removed" {
			t.Errorf("%s = %v %q, want Invalid", name, res.Code, res.Detail)
		}
	}
}

// TestLeavingNode: a node that leaves gets nothing new, but what it has may be
// changed around it, and it is not removed before it has nothing.
func TestLeavingNode(t *testing.T) {
	r := withNodes(t, 4)
	apply(t, r, EncodeCreateGroup(create())) // 1, 2, 3 and the learner 4
	small := create()
	small.ID, small.Voters, small.Learners, small.Seed = 8, ids(1), nil, 1
	apply(t, r, EncodeCreateGroup(small))
	setState(t, r, 4, NodeDrained, NodeLeaving)
	setState(t, r, 3, NodeDrained, NodeLeaving)

	want := func(id raftyard.GroupID, voters, learners []raftyard.NodeID) Result {
		t.Helper()
		return apply(t, r, EncodeWantMembers(WantMembers{
			ID: id, Voters: voters, Learners: learners,
		}))
	}
	remove := EncodeSetNodeState(SetNodeState{ID: 4, State: NodeRemoved})

	if res := want(8, ids(1, 3), nil); res.Code != Invalid || res.Detail != "node 3 is leaving" {
		t.Errorf("a leaving node wanted = %v %q", res.Code, res.Detail)
	}
	if res := want(7, ids(1, 2, 4), ids(3)); res.Code != OK {
		t.Errorf("leaving members in other roles = %v %q", res.Code, res.Detail)
	}
	res := apply(t, r, remove)
	if res.Code != Conflict || res.Detail != "group 7 still names node 4" {
		t.Errorf("removed while wanted = %v %q", res.Code, res.Detail)
	}
	if res := want(7, ids(1, 2), ids(3)); res.Code != OK {
		t.Errorf("a leaving member dropped = %v %q", res.Code, res.Detail)
	}
	if res := want(7, ids(1, 2, 4), ids(3)); res.Code != Invalid {
		t.Errorf("a leaving member back = %v %q", res.Code, res.Detail)
	}
	if res := apply(t, r, remove); res.Code != Conflict {
		t.Errorf("removed before the group has left it = %v %q", res.Code, res.Detail)
	}
	g, _ := r.Group(7)
	reached := Reached{ID: 7, Incarnation: g.Incarnation, Version: g.Version}
	if res := apply(t, r, EncodeReached(reached)); res.Code != OK {
		t.Errorf("reached = %v %q", res.Code, res.Detail)
	}
	if res := apply(t, r, remove); res.Code != OK {
		t.Errorf("removed = %v %q", res.Code, res.Detail)
	}
	// A deleted group wants nothing any more.
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 7}))
	setState(t, r, 3, NodeRemoved)
}

func TestBoots(t *testing.T) {
	r := New(nil, nil)
	at := func(store Store, boot uint64) Node {
		n := node(1)
		n.Store, n.Boot = store, boot
		return n
	}
	steps := []struct {
		name     string
		set      Node
		ifAbsent bool
		code     Code
		wantBoot uint64
	}{
		{"a start of no directory", at(Store{}, 5), false, Created, 0},
		{"the first start", at(Store{1}, 2), true, OK, 2},
		{"the same again", at(Store{1}, 2), false, OK, 2},
		{"a later one", at(Store{1}, 4), true, OK, 4},
		{"an older copy", at(Store{1}, 3), false, Invalid, 4},
		{"an older copy that would leave it alone", at(Store{1}, 3), true, Invalid, 4},
		{"not known", at(Store{1}, 0), false, OK, 4},
		{"neither is the directory", at(Store{}, 9), false, OK, 4},
		{"another directory", at(Store{2}, 9), true, Conflict, 4},
	}
	for _, s := range steps {
		res := apply(t, r, EncodeSetNode(SetNode{Node: s.set, IfAbsent: s.ifAbsent}))
		n, _ := r.Node(1)
		if res.Code != s.code || n.Boot != s.wantBoot {
			t.Errorf("%s = %v %q, boot %d, want %v, boot %d",
				s.name, res.Code, res.Detail, n.Boot, s.code, s.wantBoot)
		}
		if n.Store != n.First {
			t.Errorf("%s: the directory is %v, the first was %v", s.name, n.Store, n.First)
		}
	}
}

// TestIfAbsentTakesTheDirectoryDown: whoever is configured with an old address may
// still say whose directory it has met, and the address stays.
func TestIfAbsentTakesTheDirectoryDown(t *testing.T) {
	r := withNodes(t, 1)
	n := Node{ID: 1, Peer: "old:1", Store: Store{1}, Boot: 3}
	res := apply(t, r, EncodeSetNode(SetNode{Node: n, IfAbsent: true}))
	want := node(1)
	want.Store, want.First, want.Boot = Store{1}, Store{1}, 3
	if diff := cmp.Diff(want, res.Node); res.Code != OK || diff != "" {
		t.Errorf("%v %q (-want +got):\n%s", res.Code, res.Detail, diff)
	}
}

// TestSparse: what a node does not say of itself stays as it was said for it.
func TestSparse(t *testing.T) {
	r := New(nil, nil)
	said := Node{ID: 1, Peer: "h:1", HTTP: "h:2", Labels: map[string]string{"zone": "a"}}
	apply(t, r, EncodeSetNode(SetNode{Node: said}))
	for _, step := range []struct{ set, want Node }{
		{Node{ID: 1, Peer: "h:3"}, Node{ID: 1, Peer: "h:3", HTTP: "h:2", Labels: said.Labels}},
		{
			Node{ID: 1, Peer: "h:1", HTTP: "h:4"},
			Node{ID: 1, Peer: "h:1", HTTP: "h:4", Labels: said.Labels},
		},
		{
			Node{ID: 1, Peer: "h:1", Labels: map[string]string{"rack": "7"}},
			Node{ID: 1, Peer: "h:1", HTTP: "h:4", Labels: map[string]string{"rack": "7"}},
		},
	} {
		res := apply(t, r, EncodeSetNode(SetNode{Node: step.set, Sparse: true}))
		if diff := cmp.Diff(step.want, res.Node); res.Code != OK || diff != "" {
			t.Errorf("%+v = %v (-want +got):\n%s", step.set, res.Code, diff)
		}
	}
	res := apply(t, r, EncodeSetNode(SetNode{Node: node(1)}))
	if diff := cmp.Diff(node(1), res.Node); diff != "" {
		t.Errorf("not sparse (-want +got):\n%s", diff)
	}
}

// TestLate: what a founding node that comes late was founded with is in no directory.
func TestLate(t *testing.T) {
	r := withNodes(t, 2)
	late := node(1)
	late.Store, late.Boot = Store{1}, 1
	res := apply(t, r, EncodeSetNode(SetNode{Node: late, Late: true}))
	if first := res.Node.First; res.Code != OK || first.IsZero() || first == late.Store {
		t.Errorf("a late node = %v, its first directory is %v", res.Code, first)
	}
	known := node(2)
	known.Store, known.Boot = Store{2}, 1
	apply(t, r, EncodeSetNode(SetNode{Node: known}))
	known.Boot = 2
	res = apply(t, r, EncodeSetNode(SetNode{Node: known, Late: true}))
	if res.Code != OK || res.Node.First != known.Store {
		t.Errorf("one that has had a directory = %v, its first is %v", res.Code, res.Node.First)
	}
}

func TestReplaceStore(t *testing.T) {
	r := withNodes(t, 2)
	n := node(1)
	n.Store, n.Boot = Store{1}, 8
	apply(t, r, EncodeSetNode(SetNode{Node: n}))
	setState(t, r, 1, NodeDrained)

	steps := []struct {
		name string
		cmd  ReplaceStore
		code Code
		want Store
	}{
		{"not registered", ReplaceStore{ID: 9, New: Store{9}}, NotFound, Store{1}},
		{"with nothing", ReplaceStore{ID: 1, Old: Store{1}}, Invalid, Store{1}},
		{"another than the present one", ReplaceStore{1, Store{7}, Store{2}}, Conflict, Store{1}},
		{"of no directory", ReplaceStore{ID: 1, New: Store{2}}, Conflict, Store{1}},
		{"the present one", ReplaceStore{1, Store{1}, Store{2}}, OK, Store{2}},
		{"again", ReplaceStore{1, Store{1}, Store{2}}, OK, Store{2}},
		{"a late copy", ReplaceStore{1, Store{1}, Store{3}}, Conflict, Store{2}},
		{"back", ReplaceStore{1, Store{2}, Store{1}}, Invalid, Store{2}},
		{"once more", ReplaceStore{1, Store{2}, Store{3}}, OK, Store{3}},
	}
	for _, s := range steps {
		res := apply(t, r, EncodeReplaceStore(s.cmd))
		got, _ := r.Node(1)
		if res.Code != s.code || got.Store != s.want || got.First != (Store{1}) {
			t.Errorf("%s = %v %q, node %+v", s.name, res.Code, res.Detail, got)
		}
		if replaced := s.want != (Store{1}); (got.Boot == 0) != replaced {
			t.Errorf("%s: boot %d", s.name, got.Boot)
		}
		if got.State != NodeDrained || got.Peer != n.Peer {
			t.Errorf("%s changed more: %+v", s.name, got)
		}
	}
	// The first directory that is known at all.
	if res := apply(t, r, EncodeReplaceStore(ReplaceStore{ID: 2, New: Store{5}})); res.Code != OK ||
		res.Node.Store != (Store{5}) || res.Node.First != (Store{5}) {
		t.Errorf("of a node without a directory = %+v", res)
	}
}

func TestForgetGroup(t *testing.T) {
	r := withNodes(t, 4)
	forget := func(id raftyard.GroupID, in raftyard.Incarnation) Code {
		t.Helper()
		return apply(t, r, EncodeForgetGroup(ForgetGroup{ID: id, Incarnation: in})).Code
	}
	if code := forget(7, incarnation(1)); code != NotFound {
		t.Errorf("never there: %v", code)
	}
	apply(t, r, EncodeCreateGroup(create()))
	if code := forget(7, incarnation(1)); code != Conflict {
		t.Errorf("not deleted: %v", code)
	}
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 7}))
	for _, in := range []raftyard.Incarnation{{}, incarnation(2)} {
		if code := forget(7, in); code != Conflict {
			t.Errorf("incarnation %v: %v", in, code)
		}
	}
	before := r.Version()
	if code := forget(7, incarnation(1)); code != OK || r.Version() != before+1 {
		t.Errorf("deleted: %v, version %d after %d", code, r.Version(), before)
	}
	if g, ok := r.Group(7); ok {
		t.Errorf("Group = %+v, want none", g)
	}
	if got, want := r.Counts(), (Counts{Nodes: 4}); got != want {
		t.Errorf("Counts = %+v, want %+v", got, want)
	}
	// Its id begins anew, and versions never repeat.
	res := apply(t, r, EncodeCreateGroup(create()))
	if res.Code != Created || res.Group.Version != before+2 {
		t.Errorf("created again = %v, version %d", res.Code, res.Group.Version)
	}
}

// TestResultShowsTheNode: the result of each command about a node has its record.
func TestResultShowsTheNode(t *testing.T) {
	n := node(1)
	n.Store, n.First, n.Boot, n.State = Store{1}, Store{2}, 7, NodeLeaving
	n.Labels = map[string]string{"zone": "a"}
	res, err := DecodeResult(Result{Code: OK, Node: n}.encode())
	if diff := cmp.Diff(n, res.Node, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestNodeStateString(t *testing.T) {
	for s, want := range map[NodeState]string{
		NodeActive: "active", NodeDrained: "drained", NodeLeaving: "leaving",
		NodeRemoved: "removed", 9: "state 9",
	} {
		if got := s.String(); got != want {
			t.Errorf("%d = %q, want %q", s, got, want)
		}
	}
}
