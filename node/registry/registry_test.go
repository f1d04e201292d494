package registry

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

func ids(list ...raftyard.NodeID) []raftyard.NodeID { return list }

func incarnation(b byte) raftyard.Incarnation { return raftyard.Incarnation{b} }

func node(id raftyard.NodeID) Node {
	return Node{ID: id, Peer: fmt.Sprintf("127.0.0.1:%d", 8700+id)}
}

// create is the command from which the tables depart.
func create() CreateGroup {
	return CreateGroup{
		ID: 7, Incarnation: incarnation(1), Kind: "kv", Voters: ids(1, 2, 3), Learners: ids(4),
		SnapshotEntries: 1000, TrailingEntries: 500, Seed: 2,
	}
}

// apply applies one command.
func apply(t testing.TB, r *Registry, cmd []byte) Result {
	t.Helper()
	results, err := r.Apply([]group.Command{{Data: cmd}})
	if err != nil {
		t.Fatalf("Apply = %v", err)
	}
	if len(results) != 1 {
		t.Fatalf("Apply returned %d results, want 1", len(results))
	}
	res, err := DecodeResult(results[0].Data)
	if err != nil {
		t.Fatalf("DecodeResult = %v", err)
	}
	return res
}

// withNodes returns a registry in which the nodes 1 to n are registered, at
// version n.
func withNodes(t testing.TB, n raftyard.NodeID) *Registry {
	t.Helper()
	r := New(nil, nil)
	for id := raftyard.NodeID(1); id <= n; id++ {
		if res := apply(t, r, EncodeSetNode(SetNode{Node: node(id)})); res.Code != Created {
			t.Fatalf("SetNode(%d) = %v %s", id, res.Code, res.Detail)
		}
	}
	return r
}

func TestCreateGroup(t *testing.T) {
	tests := []struct {
		name       string
		edit       func(c *CreateGroup)
		want       Code
		wantDetail string
	}{
		{name: "new", edit: func(*CreateGroup) {}, want: Created},
		{name: "single voter", edit: func(c *CreateGroup) {
			c.Voters, c.Learners, c.Seed = ids(3), nil, 3
		}, want: Created},
		{name: "largest id", edit: func(c *CreateGroup) { c.ID = 1<<64 - 1 }, want: Created},
		{
			name: "system group", edit: func(c *CreateGroup) { c.ID = 0 },
			want: Invalid, wantDetail: "group 0 is the system group",
		},
		{
			name: "no incarnation",
			edit: func(c *CreateGroup) { c.Incarnation = raftyard.Incarnation{} },
			want: Invalid, wantDetail: "the incarnation is zero",
		},
		{
			name: "no voters", edit: func(c *CreateGroup) { c.Voters = nil },
			want: Invalid, wantDetail: "there are no voters",
		},
		{
			name: "voter twice", edit: func(c *CreateGroup) { c.Voters = ids(1, 2, 1) },
			want: Invalid, wantDetail: "node 1 is listed twice",
		},
		{
			name: "voter and learner", edit: func(c *CreateGroup) { c.Learners = ids(3) },
			want: Invalid, wantDetail: "node 3 is listed twice",
		},
		{
			name: "node zero", edit: func(c *CreateGroup) { c.Learners = ids(0) },
			want: Invalid, wantDetail: "node 0 is not a node",
		},
		{
			name: "unregistered voter", edit: func(c *CreateGroup) { c.Voters = ids(1, 2, 9) },
			want: Invalid, wantDetail: "node 9 is not registered",
		},
		{
			name: "unregistered learner", edit: func(c *CreateGroup) { c.Learners = ids(8) },
			want: Invalid, wantDetail: "node 8 is not registered",
		},
		{
			name: "seed is a learner", edit: func(c *CreateGroup) { c.Seed = 4 },
			want: Invalid, wantDetail: "the seed, node 4, is not a voter",
		},
		{
			name: "no seed", edit: func(c *CreateGroup) { c.Seed = 0 },
			want: Invalid, wantDetail: "the seed is zero",
		},
		{
			name: "too many members",
			edit: func(c *CreateGroup) {
				c.Voters = nil
				for id := range raftyard.NodeID(MaxMembers + 1) {
					c.Voters = append(c.Voters, id+1)
				}
				c.Learners = nil
			},
			want: Invalid, wantDetail: "16 members, the limit is 15",
		},
		{
			name: "no kind", edit: func(c *CreateGroup) { c.Kind = "" },
			want: Invalid, wantDetail: "the kind is empty",
		},
		{
			name: "kind too long",
			edit: func(c *CreateGroup) { c.Kind = strings.Repeat("k", MaxKindBytes+1) },
			want: Invalid, wantDetail: "the kind has 65 bytes, the limit is 64",
		},
		{
			name: "longest kind",
			edit: func(c *CreateGroup) { c.Kind = strings.Repeat("k", MaxKindBytes) },
			want: Created,
		},
		{
			name: "kind with a space", edit: func(c *CreateGroup) { c.Kind = "k v" },
			want: Invalid, wantDetail: "the kind has bytes that are not visible ASCII",
		},
		{
			name: "kind beyond ASCII", edit: func(c *CreateGroup) { c.Kind = "größe" },
			want: Invalid, wantDetail: "the kind has bytes that are not visible ASCII",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := withNodes(t, 4)
			c := create()
			tt.edit(&c)
			res := apply(t, r, EncodeCreateGroup(c))
			if res.Code != tt.want || res.Detail != tt.wantDetail {
				t.Fatalf("result = %v %q, want %v %q", res.Code, res.Detail, tt.want, tt.wantDetail)
			}
			g, ok := r.Group(c.ID)
			if wantVersion := uint64(4); tt.want != Created {
				if ok || r.Version() != wantVersion {
					t.Errorf("refused, but Group = %+v, version %d", g, r.Version())
				}
				return
			}
			want := Group{
				ID: c.ID, Incarnation: c.Incarnation, Kind: c.Kind, Voters: c.Voters,
				Learners: c.Learners, SnapshotEntries: 1000, TrailingEntries: 500,
				Seed: c.Seed, Version: 5,
			}
			if diff := cmp.Diff(want, g, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Group (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, res.Group, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateGroupThatExists(t *testing.T) {
	tests := []struct {
		name       string
		edit       func(c *CreateGroup)
		want       Code
		wantDetail string
	}{
		{name: "the same", edit: func(*CreateGroup) {}, want: ExistsSame},
		{name: "members in another order", edit: func(c *CreateGroup) {
			c.Voters = ids(3, 1, 2)
		}, want: ExistsSame},
		{name: "another incarnation and seed", edit: func(c *CreateGroup) {
			c.Incarnation, c.Seed = incarnation(2), 1
		}, want: ExistsSame},
		{
			name: "another kind", edit: func(c *CreateGroup) { c.Kind = "ledger" },
			want: Conflict, wantDetail: "the kind is kv, not ledger",
		},
		{
			name: "fewer voters", edit: func(c *CreateGroup) { c.Voters = ids(1, 2) },
			want: Conflict, wantDetail: "the voters are [1 2 3], not [1 2]",
		},
		{
			name: "no learner", edit: func(c *CreateGroup) { c.Learners = nil },
			want: Conflict, wantDetail: "the learners are [4], not []",
		},
		{
			name: "another snapshot_entries", edit: func(c *CreateGroup) { c.SnapshotEntries++ },
			want: Conflict, wantDetail: "snapshot_entries is 1000, not 1001",
		},
		{
			name: "another trailing_entries", edit: func(c *CreateGroup) { c.TrailingEntries++ },
			want: Conflict, wantDetail: "trailing_entries is 500, not 501",
		},
		// Whoever asks for the impossible learns that first.
		{
			name: "no voters", edit: func(c *CreateGroup) { c.Voters = nil },
			want: Invalid, wantDetail: "there are no voters",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := withNodes(t, 4)
			apply(t, r, EncodeCreateGroup(create()))
			before, _ := r.Group(7)
			c := create()
			tt.edit(&c)
			res := apply(t, r, EncodeCreateGroup(c))
			if res.Code != tt.want || res.Detail != tt.wantDetail {
				t.Errorf("result = %v %q, want %v %q", res.Code, res.Detail, tt.want, tt.wantDetail)
			}
			if tt.want != Invalid {
				if diff := cmp.Diff(before, res.Group); diff != "" {
					t.Errorf("result does not show what is there (-want +got):\n%s", diff)
				}
			}
			after, _ := r.Group(7)
			if diff := cmp.Diff(before, after); diff != "" || r.Version() != 5 {
				t.Errorf("changed the record, version %d (-before +after):\n%s", r.Version(), diff)
			}
		})
	}
}

func TestDeleteGroup(t *testing.T) {
	r := withNodes(t, 4)
	del := EncodeDeleteGroup(DeleteGroup{ID: 7})
	if res := apply(t, r, del); res.Code != NotFound {
		t.Errorf("delete of what never was there = %v, want %v", res.Code, NotFound)
	}
	apply(t, r, EncodeCreateGroup(create()))

	other := DeleteGroup{ID: 7, Incarnation: incarnation(9)}
	if res := apply(t, r, EncodeDeleteGroup(other)); res.Code != Stale || res.Group.Deleted {
		t.Errorf("delete of another incarnation = %+v, want %v", res, Stale)
	}

	want := Group{ID: 7, Incarnation: incarnation(1), Kind: "kv", Version: 6, Deleted: true}
	for range 2 {
		res := apply(t, r, del)
		if res.Code != OK {
			t.Errorf("delete = %v %q, want %v", res.Code, res.Detail, OK)
		}
		if diff := cmp.Diff(want, res.Group); diff != "" {
			t.Errorf("deleted record (-want +got):\n%s", diff)
		}
	}
	if g, ok := r.Group(7); !ok || !g.Deleted {
		t.Errorf("Group = %+v, %t, want the deleted record", g, ok)
	}
	if list := r.Groups(0, 0); len(list) != 0 {
		t.Errorf("Groups lists the deleted group: %+v", list)
	}
}

func TestCreateGroupAgain(t *testing.T) {
	r := withNodes(t, 4)
	apply(t, r, EncodeCreateGroup(create()))
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 7}))

	// A copy of the old command that arrives late must not bring the group back.
	res := apply(t, r, EncodeCreateGroup(create()))
	if res.Code != Invalid || !res.Group.Deleted {
		t.Errorf("the deleted incarnation again = %+v, want %v", res, Invalid)
	}

	c := create()
	c.Incarnation = incarnation(2)
	if res = apply(t, r, EncodeCreateGroup(c)); res.Code != Created || res.Group.Version != 7 {
		t.Errorf("a new incarnation = %+v, want %v, version 7", res, Created)
	}
	// A late copy of the delete that names its incarnation spares the new one.
	late := DeleteGroup{ID: 7, Incarnation: incarnation(1)}
	if res = apply(t, r, EncodeDeleteGroup(late)); res.Code != Stale {
		t.Errorf("late delete = %v, want %v", res.Code, Stale)
	}
	if got, want := r.Counts(), (Counts{Nodes: 4, Groups: 1}); got != want {
		t.Errorf("Counts = %+v, want %+v", got, want)
	}
}

func TestWantMembers(t *testing.T) {
	base := WantMembers{ID: 7, Incarnation: incarnation(1), Voters: ids(4, 3, 2), IfVersion: 5}
	tests := []struct {
		name       string
		edit       func(c *WantMembers)
		want       Code
		wantDetail string
	}{
		{name: "change", edit: func(*WantMembers) {}, want: OK},
		{name: "any version", edit: func(c *WantMembers) { c.IfVersion = 0 }, want: OK},
		{name: "any incarnation", edit: func(c *WantMembers) {
			c.Incarnation = raftyard.Incarnation{}
		}, want: OK},
		{name: "without the seed", edit: func(c *WantMembers) { c.Voters = ids(3, 4) }, want: OK},
		{name: "never there", edit: func(c *WantMembers) { c.ID = 8 }, want: NotFound},
		{name: "deleted", edit: func(c *WantMembers) {
			c.ID, c.Incarnation = 9, incarnation(9)
		}, want: NotFound},
		{
			name: "another version", edit: func(c *WantMembers) { c.IfVersion = 4 },
			want: Stale, wantDetail: "the version is 5, not 4",
		},
		{
			name: "another incarnation",
			edit: func(c *WantMembers) { c.Incarnation = incarnation(3) },
			want: Stale, wantDetail: "another incarnation",
		},
		{
			name: "no voters", edit: func(c *WantMembers) { c.Voters = nil },
			want: Invalid, wantDetail: "there are no voters",
		},
		{
			name: "voter and learner", edit: func(c *WantMembers) { c.Learners = ids(2) },
			want: Invalid, wantDetail: "node 2 is listed twice",
		},
		{
			name: "unregistered", edit: func(c *WantMembers) { c.Learners = ids(5) },
			want: Invalid, wantDetail: "node 5 is not registered",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := withNodes(t, 4)
			apply(t, r, EncodeCreateGroup(create()))
			gone := create()
			gone.ID, gone.Incarnation = 9, incarnation(9)
			apply(t, r, EncodeCreateGroup(gone))
			apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 9}))
			before, _ := r.Group(7)

			c := base
			tt.edit(&c)
			res := apply(t, r, EncodeWantMembers(c))
			if res.Code != tt.want || res.Detail != tt.wantDetail {
				t.Fatalf("result = %v %q, want %v %q", res.Code, res.Detail, tt.want, tt.wantDetail)
			}
			want := before
			if tt.want == OK {
				want.Voters, want.Learners, want.Version = sorted(c.Voters), nil, 8
				want.Before = slices.DeleteFunc(ids(1, 2, 3, 4), func(id raftyard.NodeID) bool {
					return slices.Contains(want.Voters, id)
				})
			}
			got, _ := r.Group(7)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeKeepsItsStore: a wiped directory under an old id is not the node that is
// registered, and a group's seed is tied to the directory that it has.
func TestNodeKeepsItsStore(t *testing.T) {
	r := withNodes(t, 4)
	own := node(2)
	own.Store = Store{2}
	res := apply(t, r, EncodeSetNode(SetNode{Node: own}))
	if res.Code != OK || res.Node.Store != own.Store {
		t.Fatalf("SetNode with a store = %+v", res)
	}
	moved := node(2)
	moved.Peer = "elsewhere:1"
	if res := apply(t, r, EncodeSetNode(SetNode{Node: moved})); res.Node.Store != own.Store {
		t.Errorf("SetNode without a store = %+v, want the store kept", res)
	}
	wiped := own
	wiped.Store = Store{9}
	for _, ifAbsent := range []bool{false, true} {
		res := apply(t, r, EncodeSetNode(SetNode{Node: wiped, IfAbsent: ifAbsent}))
		if res.Code != Conflict || res.Node.Store != own.Store {
			t.Errorf("SetNode with another store = %+v, want Conflict", res)
		}
	}
	c := create()
	c.Seed, c.SeedStore = 2, Store{9}
	if res := apply(t, r, EncodeCreateGroup(c)); res.Group.SeedStore != own.Store {
		t.Errorf("CreateGroup = %+v, want the seed's registered store", res)
	}
	c.ID, c.Incarnation, c.Seed, c.SeedStore = 8, incarnation(8), 1, Store{1}
	if res := apply(t, r, EncodeCreateGroup(c)); res.Group.SeedStore != (Store{1}) {
		t.Errorf("CreateGroup = %+v, want the store that the proposer knows", res)
	}
}

func TestWantMembersTwiceChangesOnce(t *testing.T) {
	r := withNodes(t, 4)
	apply(t, r, EncodeCreateGroup(create()))
	cmd := EncodeWantMembers(WantMembers{ID: 7, Voters: ids(2, 3, 4)})
	first := apply(t, r, cmd)
	second := apply(t, r, cmd)
	if first.Code != OK || second.Code != OK || first.Group.Version != second.Group.Version {
		t.Errorf("results = %+v and %+v, want the same version twice", first, second)
	}
}

func TestSetNode(t *testing.T) {
	labels := make(map[string]string)
	for i := range MaxLabels + 1 {
		labels[fmt.Sprintf("l%02d", i)] = "x"
	}
	long := strings.Repeat("a", MaxAddrBytes+1)
	tests := []struct {
		name       string
		node       Node
		want       Code
		wantDetail string
	}{
		{name: "new", node: node(2), want: Created},
		{name: "labels", node: Node{
			ID: 2, Peer: "h:1", HTTP: "h:2", Labels: map[string]string{"zone": "a", "rack": "7"},
		}, want: Created},
		{name: "zero", node: node(0), want: Invalid, wantDetail: "node 0 is not a node"},
		{
			name: "no address", node: Node{ID: 2},
			want: Invalid, wantDetail: "the peer address is empty",
		},
		{
			name: "long address", node: Node{ID: 2, Peer: long},
			want: Invalid, wantDetail: "an address is longer than 255 bytes",
		},
		{
			name: "long HTTP address", node: Node{ID: 2, Peer: "h:1", HTTP: long},
			want: Invalid, wantDetail: "an address is longer than 255 bytes",
		},
		{
			name: "newline", node: Node{ID: 2, Peer: "h:1\nh:2"},
			want: Invalid, wantDetail: "an address has bytes that are not visible ASCII",
		},
		{
			name: "too many labels", node: Node{ID: 2, Peer: "h:1", Labels: labels},
			want: Invalid, wantDetail: "33 labels, the limit is 32",
		},
		{
			name: "label without key",
			node: Node{ID: 2, Peer: "h:1", Labels: map[string]string{"": "a"}},
			want: Invalid, wantDetail: "a label has no key",
		},
		{
			name: "long label",
			node: Node{ID: 2, Peer: "h:1", Labels: map[string]string{"a": long}},
			want: Invalid, wantDetail: "a label is longer than 255 bytes",
		},
		{
			name: "label not UTF-8",
			node: Node{ID: 2, Peer: "h:1", Labels: map[string]string{"a": "\xff"}},
			want: Invalid, wantDetail: "a label is not UTF-8",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New(nil, nil)
			res := apply(t, r, EncodeSetNode(SetNode{Node: tt.node}))
			if res.Code != tt.want || res.Detail != tt.wantDetail {
				t.Fatalf("result = %v %q, want %v %q", res.Code, res.Detail, tt.want, tt.wantDetail)
			}
			got, ok := r.Node(tt.node.ID)
			if ok != (tt.want == Created) {
				t.Fatalf("Node = %+v, %t", got, ok)
			}
			if ok {
				if diff := cmp.Diff(tt.node, got); diff != "" {
					t.Errorf("Node (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestSetNodeAgain(t *testing.T) {
	r := withNodes(t, 1)
	moved := node(1)
	moved.Peer = "127.0.0.1:1"

	res := apply(t, r, EncodeSetNode(SetNode{Node: moved, IfAbsent: true}))
	if res.Code != OK || res.Node.Peer != node(1).Peer || r.Version() != 1 {
		t.Errorf("IfAbsent: %+v at version %d, want the old address and version", res, r.Version())
	}
	for range 2 {
		res = apply(t, r, EncodeSetNode(SetNode{Node: moved}))
		if res.Code != OK || res.Node.Peer != moved.Peer || r.Version() != 2 {
			t.Errorf("%+v at version %d, want the new address and version 2", res, r.Version())
		}
	}
	moved.Peer = "127.0.0.1:2"
	res = apply(t, r, EncodeSetNode(SetNode{Node: moved, IfPresent: true}))
	if res.Code != OK || res.Node.Peer != moved.Peer {
		t.Errorf("IfPresent: %+v, want the new address", res)
	}
	res = apply(t, r, EncodeSetNode(SetNode{Node: node(2), IfPresent: true}))
	if _, ok := r.Node(2); ok || res.Code != NotFound {
		t.Errorf("IfPresent has registered a node: %+v", res)
	}
}

func TestMalformedCommandsAreInvalid(t *testing.T) {
	valid := EncodeCreateGroup(create())
	tests := map[string][]byte{
		"empty":           nil,
		"only a format":   {commandFormat},
		"another format":  append([]byte{9}, valid[1:]...),
		"unknown kind":    {commandFormat, 200},
		"cut off":         valid[:len(valid)-1],
		"left over":       append(slices.Clone(valid), 0),
		"endless members": {commandFormat, byte(kindCreateGroup), 7, 255, 255, 255, 255},
		"boolean 2":       {commandFormat, byte(kindSetNode), 5, 1, 'p', 0, 0, 2},
		"labels out of order": {
			commandFormat, byte(kindSetNode), 5, 1, 'p', 0, 2, 1, 'b', 0, 1, 'a', 0, 0,
		},
	}
	for name, cmd := range tests {
		t.Run(name, func(t *testing.T) {
			r := withNodes(t, 4)
			res := apply(t, r, cmd)
			if res.Code != Invalid || res.Detail == "" {
				t.Errorf("result = %+v, want %v with a detail", res, Invalid)
			}
			if r.Version() != 4 {
				t.Errorf("version = %d, want 4", r.Version())
			}
		})
	}
}

func TestGenesisIsAnAddressBookOnly(t *testing.T) {
	configured := []Node{node(2), node(1), {ID: 2, Peer: "last:1"}}
	a, b := New(configured, nil), New(nil, nil)

	if diff := cmp.Diff([]Node{node(1), {ID: 2, Peer: "last:1"}}, a.Nodes()); diff != "" {
		t.Errorf("Nodes (-want +got):\n%s", diff)
	}
	if got, ok := a.Node(2); !ok || got.Peer != "last:1" {
		t.Errorf("Node(2) = %+v, %t", got, ok)
	}
	if len(a.Unregistered()) != 2 {
		t.Errorf("Unregistered = %v, want both", a.Unregistered())
	}

	// What the log says does not depend on the configuration.
	c := create()
	c.Voters, c.Learners = ids(1, 2), nil
	for _, cmd := range [][]byte{
		EncodeCreateGroup(c),
		EncodeSetNode(SetNode{Node: node(1), IfAbsent: true}),
		EncodeSetNode(SetNode{Node: Node{ID: 2, Peer: "last:1"}, IfAbsent: true}),
		EncodeCreateGroup(c),
	} {
		if diff := cmp.Diff(apply(t, a, cmd), apply(t, b, cmd)); diff != "" {
			t.Errorf("results differ (-configured +not):\n%s", diff)
		}
	}
	if !bytes.Equal(hash(t, a), hash(t, b)) {
		t.Error("hashes differ")
	}
	if len(a.Unregistered()) != 0 || len(a.Nodes()) != 2 {
		t.Errorf("Unregistered = %v, Nodes = %v", a.Unregistered(), a.Nodes())
	}
}

func TestOnChange(t *testing.T) {
	calls := 0
	r := New(nil, func() { calls++ })
	step := func(name string, want int, do func()) {
		t.Helper()
		calls = 0
		if do(); calls != want {
			t.Errorf("%s: onChange was called %d times, want %d", name, calls, want)
		}
	}
	set := EncodeSetNode(SetNode{Node: node(1)})
	step("a change", 1, func() { apply(t, r, set) })
	step("nothing new", 0, func() { apply(t, r, set) })
	step("a refusal", 0, func() { apply(t, r, nil) })
	step("two in a batch", 1, func() {
		batch := []group.Command{
			{Data: EncodeSetNode(SetNode{Node: node(2)})},
			{Data: EncodeSetNode(SetNode{Node: node(3)})},
		}
		if _, err := r.Apply(batch); err != nil {
			t.Error(err)
		}
	})
	stream := save(t, r)
	step("restore", 1, func() { restore(t, r, stream) })
}

func TestChanges(t *testing.T) {
	r := withNodes(t, 4)
	c := create()
	for id := raftyard.GroupID(1); id <= 1000; id++ {
		c.ID = id
		apply(t, r, EncodeCreateGroup(c))
	}
	all, at := r.Changes(0)
	if len(all) != 1000 || at != 1004 {
		t.Fatalf("Changes(0) = %d records, version %d, want 1000 and 1004", len(all), at)
	}
	apply(t, r, EncodeWantMembers(WantMembers{ID: 500, Voters: ids(1)}))
	apply(t, r, EncodeDeleteGroup(DeleteGroup{ID: 3}))
	changed, next := r.Changes(at)
	var got []raftyard.GroupID
	for _, g := range changed {
		got = append(got, g.ID)
	}
	if !slices.Equal(got, []raftyard.GroupID{3, 500}) || next != at+2 {
		t.Errorf("Changes(%d) = %v, version %d, want 3 and 500, version %d", at, got, next, at+2)
	}
	if changed, _ = r.Changes(next); len(changed) != 0 {
		t.Errorf("Changes(%d) = %v, want none", next, changed)
	}
}

func TestCodeString(t *testing.T) {
	seen := make(map[string]bool)
	for c := OK; c <= Invalid; c++ {
		if s := c.String(); seen[s] || strings.HasPrefix(s, "code") {
			t.Errorf("Code(%d) = %q", c, s)
		}
		seen[c.String()] = true
	}
	if got := Code(99).String(); got != "code 99" {
		t.Errorf("Code(99) = %q", got)
	}
}
