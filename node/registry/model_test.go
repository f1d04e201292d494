package registry

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/lineage"
)

// model is what a registry must be like, in maps and without any care for cost.
type model struct {
	nodes   map[raftyard.NodeID]Node
	groups  map[raftyard.GroupID]Group
	version uint64
}

func (m *model) record(g Group) {
	m.version++
	g.Version = m.version
	m.groups[g.ID] = g
}

// wellFormed says whether the lists make sense by themselves.
func wellFormed(voters, learners []raftyard.NodeID) bool {
	all := make(map[raftyard.NodeID]bool)
	for _, id := range slices.Concat(voters, learners) {
		if id == 0 || all[id] {
			return false
		}
		all[id] = true
	}
	return len(voters) > 0 && len(all) <= MaxMembers
}

func (m *model) usable(before Group, voters, learners []raftyard.NodeID) bool {
	for _, id := range slices.Concat(voters, learners) {
		n, ok := m.nodes[id]
		if !ok || n.State == NodeRemoved || n.State == NodeLeaving && !before.wantsOn(id) {
			return false
		}
	}
	return true
}

// wantsOn says whether the record wants a replica on the node.
func (g *Group) wantsOn(id raftyard.NodeID) bool {
	return slices.Contains(slices.Concat(g.Voters, g.Learners), id)
}

func (m *model) create(c CreateGroup) Code {
	old, there := m.groups[c.ID]
	g := Group{
		ID: c.ID, Incarnation: c.Incarnation, Kind: c.Kind, Voters: sorted(c.Voters),
		Learners: sorted(c.Learners), SnapshotEntries: c.SnapshotEntries,
		TrailingEntries: c.TrailingEntries, Seed: c.Seed, SeedStore: c.SeedStore,
	}
	ok := c.ID != 0 && !c.Incarnation.IsZero() && c.Kind != "" &&
		wellFormed(c.Voters, c.Learners) && slices.Contains(c.Voters, c.Seed)
	switch {
	case !ok:
		return Invalid
	case there && !old.Deleted:
		g.Version, g.Incarnation = old.Version, old.Incarnation
		g.Seed, g.SeedStore = old.Seed, old.SeedStore
		if cmp.Equal(g, old, cmpopts.EquateEmpty()) {
			return ExistsSame
		}
		return Conflict
	case there && old.Incarnation == c.Incarnation || !m.usable(Group{}, c.Voters, c.Learners):
		return Invalid
	}
	if known := m.nodes[c.Seed].Store; known != (Store{}) {
		g.SeedStore = known
	}
	m.record(g)
	return Created
}

func (m *model) delete(c DeleteGroup) Code {
	old, there := m.groups[c.ID]
	switch {
	case !there:
		return NotFound
	case !c.Incarnation.IsZero() && c.Incarnation != old.Incarnation:
		return Stale
	case !old.Deleted:
		m.record(Group{ID: c.ID, Incarnation: old.Incarnation, Kind: old.Kind, Deleted: true})
	}
	return OK
}

func (m *model) want(c WantMembers) Code {
	old, there := m.groups[c.ID]
	switch {
	case !wellFormed(c.Voters, c.Learners):
		return Invalid
	case !there:
		return NotFound
	case !c.Incarnation.IsZero() && c.Incarnation != old.Incarnation:
		return Stale
	case old.Deleted:
		return NotFound
	case c.IfVersion != 0 && c.IfVersion != old.Version:
		return Stale
	case !m.usable(old, c.Voters, c.Learners):
		return Invalid
	}
	voters, learners := sorted(c.Voters), sorted(c.Learners)
	if !slices.Equal(voters, old.Voters) || !slices.Equal(learners, old.Learners) {
		left := slices.Concat(old.Before, old.Voters, old.Learners)
		slices.Sort(left)
		old.Voters, old.Learners = voters, learners
		old.Before = nil
		for _, id := range slices.Compact(left) {
			if !slices.Contains(voters, id) && !slices.Contains(learners, id) {
				old.Before = append(old.Before, id)
			}
		}
		m.record(old)
	}
	return OK
}

func (m *model) reached(c Reached) Code {
	g, there := m.groups[c.ID]
	switch {
	case !there || g.Deleted:
		return NotFound
	case c.Incarnation != g.Incarnation || c.Version != g.Version:
		return Stale
	case len(g.Before) > 0:
		g.Before = nil
		m.version++
		m.groups[c.ID] = g
	}
	return OK
}

func (m *model) setNode(c SetNode) Code {
	if c.Node.ID == 0 || c.Node.Peer == "" {
		return Invalid
	}
	old, there := m.nodes[c.Node.ID]
	n := c.Node
	n.State, n.First, n.Forced = old.State, old.First, old.Forced
	n.Process = Store(c.Starts.Last().Process)
	if !there && c.IfPresent {
		return NotFound
	}
	switch {
	case there && c.IfAbsent:
		n.Peer, n.HTTP, n.Labels = old.Peer, old.HTTP, old.Labels
	case there && c.Sparse:
		if n.HTTP == "" {
			n.HTTP = old.HTTP
		}
		if len(n.Labels) == 0 {
			n.Labels = old.Labels
		}
	}
	switch {
	case old.State == NodeRemoved:
		return Invalid
	case n.Store == (Store{}):
		n.Store, n.Boot, n.Process = old.Store, old.Boot, old.Process
	case old.Store == (Store{}) && c.Late:
		n.First = Store(slices.Repeat([]byte{0xff}, len(n.First)))
	case old.Store == (Store{}):
		n.First = n.Store
	case old.Store != n.Store:
		return Conflict
	case n.Boot == 0:
		n.Boot, n.Process = old.Boot, old.Process
	case n.Boot < old.Boot:
		return Invalid
	case len(c.Starts.Starts) == 0 && n.Boot == old.Boot:
		n.Process = old.Process
	case len(c.Starts.Starts) == 0 || old.Process == (Store{}):
	case Store(c.Starts.Starts[old.Boot-1].Process) != old.Process:
		return Invalid
	}
	m.node(old, n)
	if !there {
		return Created
	}
	return OK
}

// node records n, unless it is what there is.
func (m *model) node(old, n Node) {
	if !cmp.Equal(old, n, cmpopts.EquateEmpty()) {
		m.version++
		m.nodes[n.ID] = n
	}
}

func (m *model) setState(c SetNodeState) Code {
	old, there := m.nodes[c.ID]
	step := [2]NodeState{old.State, c.State}
	allowed := [][2]NodeState{
		{NodeActive, NodeDrained},
		{NodeDrained, NodeActive},
		{NodeDrained, NodeLeaving},
		{NodeLeaving, NodeDrained},
		{NodeLeaving, NodeRemoved},
	}
	switch {
	case !there:
		return NotFound
	case c.State > NodeRemoved:
		return Invalid
	case c.State == old.State && c.State != NodeLeaving:
		return OK
	case old.State == NodeRemoved:
		return Invalid
	case c.State != old.State && !slices.Contains(allowed, step):
		return Conflict
	}
	n := old
	n.State = c.State
	n.Forced = c.State == NodeLeaving && (c.Forced || old.Forced)
	if c.State == NodeRemoved {
		for id := range m.groups {
			if g := m.groups[id]; g.wantsOn(c.ID) || slices.Contains(g.Before, c.ID) {
				return Conflict
			}
		}
		n = Node{ID: old.ID, State: NodeRemoved, First: old.First, Store: old.Store}
	}
	m.node(old, n)
	return OK
}

func (m *model) replace(c ReplaceStore) Code {
	old, there := m.nodes[c.ID]
	switch {
	case !there:
		return NotFound
	case c.New == (Store{}) || old.State == NodeRemoved:
		return Invalid
	case old.Store == c.New:
		return OK
	case old.Store != c.Old:
		return Conflict
	case old.First == c.New:
		return Invalid
	}
	n := old
	n.Store, n.Boot, n.Process = c.New, 0, Store{}
	if n.First == (Store{}) {
		n.First = c.New
	}
	m.node(old, n)
	return OK
}

func (m *model) forget(c ForgetGroup) Code {
	old, there := m.groups[c.ID]
	switch {
	case !there:
		return NotFound
	case !old.Deleted || old.Incarnation != c.Incarnation:
		return Conflict
	}
	m.version++
	delete(m.groups, c.ID)
	return OK
}

// machine applies the same commands to two registries and the model. The second
// registry is configured differently, gets the commands in other batches, and is
// restored from snapshots now and then.
type machine struct {
	model  model
	a, b   *Registry
	queued []group.Command // applied to a, not yet to b
	wants  [][]byte        // a's results for them
}

func newMachine() *machine {
	return &machine{
		model: model{
			nodes:  make(map[raftyard.NodeID]Node),
			groups: make(map[raftyard.GroupID]Group),
		},
		a: New(nil, nil),
		b: New([]Node{node(1), node(77)}, func() {}),
	}
}

func (m *machine) apply(t *rapid.T, cmd []byte, want Code) {
	results, err := m.a.Apply([]group.Command{{Data: cmd}})
	if err != nil || len(results) != 1 {
		t.Fatalf("Apply = %d results, %v", len(results), err)
	}
	res, err := DecodeResult(results[0].Data)
	if err != nil {
		t.Fatalf("DecodeResult = %v", err)
	}
	if res.Code != want {
		t.Fatalf("result = %v %q, want %v", res.Code, res.Detail, want)
	}
	m.queued = append(m.queued, group.Command{Data: cmd})
	m.wants = append(m.wants, results[0].Data)
}

// catchUp applies to b what it has not had.
func (m *machine) catchUp(t *rapid.T) {
	results, err := m.b.Apply(m.queued)
	if err != nil || len(results) != len(m.queued) {
		t.Fatalf("Apply = %d results, %v", len(results), err)
	}
	for i, res := range results {
		if !bytes.Equal(res.Data, m.wants[i]) {
			t.Fatalf("results differ for command %x", m.queued[i].Data)
		}
	}
	m.queued, m.wants = nil, nil
}

var (
	genNodeID  = rapid.SampledFrom([]raftyard.NodeID{0, 1, 2, 3, 4, 5, 6})
	genGroupID = rapid.SampledFrom([]raftyard.GroupID{0, 1, 2, 3, 1 << 40, 1<<64 - 1})
	genStore   = rapid.SampledFrom([]Store{{}, {}, {1}, {2}})
	genState   = rapid.SampledFrom([]NodeState{
		NodeActive, NodeDrained, NodeLeaving, NodeRemoved, NodeRemoved + 1,
	})
	genMembers = rapid.SliceOfN(genNodeID, 0, 4)
)

func genIncarnation(t *rapid.T) raftyard.Incarnation {
	return incarnation(rapid.ByteRange(0, 3).Draw(t, "incarnation"))
}

func (m *machine) CreateGroup(t *rapid.T) {
	c := CreateGroup{
		ID: genGroupID.Draw(t, "id"), Incarnation: genIncarnation(t),
		Kind:            rapid.SampledFrom([]string{"kv", "ledger", ""}).Draw(t, "kind"),
		Voters:          genMembers.Draw(t, "voters"),
		Learners:        genMembers.Draw(t, "learners"),
		SnapshotEntries: rapid.Uint64Range(0, 2).Draw(t, "snapshot_entries"),
	}
	c.Seed = genNodeID.Draw(t, "seed")
	c.SeedStore = genStore.Draw(t, "seed store")
	if len(c.Voters) > 0 && rapid.Bool().Draw(t, "seed is a voter") {
		c.Seed = c.Voters[0]
	}
	m.apply(t, EncodeCreateGroup(c), m.model.create(c))
}

func (m *machine) DeleteGroup(t *rapid.T) {
	c := DeleteGroup{ID: genGroupID.Draw(t, "id"), Incarnation: genIncarnation(t)}
	m.apply(t, EncodeDeleteGroup(c), m.model.delete(c))
}

func (m *machine) WantMembers(t *rapid.T) {
	c := WantMembers{
		ID: genGroupID.Draw(t, "id"), Incarnation: genIncarnation(t),
		Voters: genMembers.Draw(t, "voters"), Learners: genMembers.Draw(t, "learners"),
	}
	if rapid.Bool().Draw(t, "conditional") {
		c.IfVersion = m.model.groups[c.ID].Version + rapid.Uint64Range(0, 1).Draw(t, "newer")
	}
	m.apply(t, EncodeWantMembers(c), m.model.want(c))
}

func (m *machine) Reached(t *rapid.T) {
	c := Reached{ID: genGroupID.Draw(t, "id"), Incarnation: genIncarnation(t)}
	c.Version = m.model.groups[c.ID].Version + rapid.Uint64Range(0, 1).Draw(t, "newer")
	m.apply(t, EncodeReached(c), m.model.reached(c))
}

func (m *machine) SetNode(t *rapid.T) {
	c := SetNode{
		Node: Node{
			ID:   genNodeID.Draw(t, "id"),
			Peer: rapid.SampledFrom([]string{"h:1", "h:2", ""}).Draw(t, "peer"),
			HTTP: rapid.SampledFrom([]string{"h:8", "h:9", ""}).Draw(t, "http"),
		},
		IfAbsent:  rapid.Bool().Draw(t, "if absent"),
		IfPresent: rapid.IntRange(0, 3).Draw(t, "if present") == 0,
		Sparse:    rapid.Bool().Draw(t, "sparse"),
		Late:      rapid.Bool().Draw(t, "late"),
	}
	c.Node.Store = genStore.Draw(t, "store")
	c.Node.Boot = rapid.Uint64Range(0, 3).Draw(t, "boot")
	if rapid.Bool().Draw(t, "starts") {
		for range c.Node.Boot {
			next := lineage.Start{Boot: c.Starts.Last().Boot + 1}
			next.Process[0] = rapid.SampledFrom([]byte{1, 1, 2}).Draw(t, "process")
			c.Starts.Since = 1
			c.Starts = c.Starts.Then(next, lineage.Start{})
		}
	}
	// These do not count.
	c.Node.Process = genStore.Draw(t, "process")
	c.Node.First = genStore.Draw(t, "first")
	c.Node.State = genState.Draw(t, "state")
	c.Node.Forced = rapid.Bool().Draw(t, "forced")
	if rapid.Bool().Draw(t, "labelled") {
		c.Node.Labels = map[string]string{"zone": "a", "rack": c.Node.ID.String()}
	}
	m.apply(t, EncodeSetNode(c), m.model.setNode(c))
}

func (m *machine) SetNodeState(t *rapid.T) {
	c := SetNodeState{
		ID: genNodeID.Draw(t, "id"), State: genState.Draw(t, "state"),
		Forced: rapid.Bool().Draw(t, "forced"),
	}
	m.apply(t, EncodeSetNodeState(c), m.model.setState(c))
}

func (m *machine) ReplaceStore(t *rapid.T) {
	c := ReplaceStore{
		ID: genNodeID.Draw(t, "id"), Old: genStore.Draw(t, "old"), New: genStore.Draw(t, "new"),
	}
	if rapid.Bool().Draw(t, "the present one") {
		c.Old = m.model.nodes[c.ID].Store
	}
	m.apply(t, EncodeReplaceStore(c), m.model.replace(c))
}

func (m *machine) ForgetGroup(t *rapid.T) {
	c := ForgetGroup{ID: genGroupID.Draw(t, "id"), Incarnation: genIncarnation(t)}
	if rapid.Bool().Draw(t, "the present one") {
		c.Incarnation = m.model.groups[c.ID].Incarnation
	}
	m.apply(t, EncodeForgetGroup(c), m.model.forget(c))
}

// Garbage applies bytes that are not a command.
func (m *machine) Garbage(t *rapid.T) {
	cmd := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "bytes")
	if len(cmd) > 0 && rapid.Bool().Draw(t, "format") {
		cmd[0] = commandFormat
	}
	if _, err := decodeCommand(cmd); err != nil {
		m.apply(t, cmd, Invalid)
	}
}

func (m *machine) RestoreOther(t *rapid.T) {
	m.catchUp(t)
	s, err := m.a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if _, err := s.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	m.b = New(nil, nil)
	if err := m.b.Restore(&buf); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) Compare(t *rapid.T) {
	m.catchUp(t)
	a, errA := m.a.Hash()
	b, errB := m.b.Hash()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Fatalf("hashes differ: %x %v, %x %v", a, errA, b, errB)
	}
}

// Check compares the first registry with the model, after every action.
func (m *machine) Check(t *rapid.T) {
	if m.a.Version() != m.model.version {
		t.Fatalf("Version = %d, want %d", m.a.Version(), m.model.version)
	}
	wantIDs := slices.Sorted(maps.Keys(m.model.groups))
	var gotIDs []raftyard.GroupID
	live := 0
	for g := range m.a.All() {
		gotIDs = append(gotIDs, g.ID)
		if diff := cmp.Diff(m.model.groups[g.ID], g, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("group %d (-want +got):\n%s", g.ID, diff)
		}
		if !g.Deleted {
			live++
		}
	}
	if !slices.Equal(gotIDs, wantIDs) {
		t.Fatalf("groups = %v, want %v", gotIDs, wantIDs)
	}
	var wantNodes []Node
	for _, id := range slices.Sorted(maps.Keys(m.model.nodes)) {
		want := m.model.nodes[id]
		if want.State != NodeRemoved {
			wantNodes = append(wantNodes, want)
		}
		n, _ := m.a.Node(id)
		if diff := cmp.Diff(want, n, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("node %d (-want +got):\n%s", id, diff)
		}
	}
	if diff := cmp.Diff(wantNodes, m.a.Nodes(), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("nodes (-want +got):\n%s", diff)
	}
	counts := Counts{len(wantNodes), live, len(wantIDs) - live}
	if m.a.Counts() != counts {
		t.Fatalf("Counts = %+v, want %+v", m.a.Counts(), counts)
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		for id := raftyard.NodeID(1); id <= 4; id++ {
			c := SetNode{Node: node(id)}
			m.apply(t, EncodeSetNode(c), m.model.setNode(c))
		}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// The table against a plain map, with enough records for many pages, in an order
// that splits pages everywhere.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		want := make(map[raftyard.GroupID]*Group)
		seq := rapid.Uint64Range(1, 1<<40).Draw(t, "seed")
		wide := rapid.SampledFrom([]uint64{50, 3000, 1 << 60}).Draw(t, "id range")
		for i := range rapid.IntRange(0, 2000).Draw(t, "puts") {
			seq = seq*6364136223846793005 + 1442695040888963407
			g := &Group{ID: raftyard.GroupID((seq >> 3) % wide), Version: uint64(i + 1)}
			g.Deleted = seq>>62 == 0
			tab = tab.put(g)
			want[g.ID] = g
		}
		checkTable(t, &tab, want)
		full := tab
		there := maps.Clone(want)
		for _, id := range slices.Sorted(maps.Keys(want)) {
			if seq = seq*6364136223846793005 + 1442695040888963407; seq>>61 != 0 {
				tab = tab.remove(id)
				delete(want, id)
			}
		}
		checkTable(t, &full, there)
		if pages := len(tab.pages); pages > 4*len(want)/pageRecords+2 {
			t.Fatalf("%d records are left on %d pages", len(want), pages)
		}
		checkTable(t, &tab, want)
	})
}

func checkTable(t rapid.TB, tab *table, want map[raftyard.GroupID]*Group) {
	keys := slices.Sorted(maps.Keys(want))
	var got []raftyard.GroupID
	for g := range tab.after(0) {
		got = append(got, g.ID)
	}
	if len(keys) > 0 && keys[0] == 0 {
		keys = keys[1:] // after(0) starts behind it
	}
	if !slices.Equal(got, keys) {
		t.Fatalf("iterated %d records, want %d", len(got), len(keys))
	}
	deleted := 0
	for id, g := range want {
		if found, ok := tab.get(id); !ok || found != g {
			t.Fatalf("get(%d) = %v, %t", id, found, ok)
		}
		if g.Deleted {
			deleted++
		}
	}
	if tab.len() != len(want) || tab.deleted != deleted {
		t.Fatalf("%d records, %d deleted; want %d, %d", tab.len(), tab.deleted, len(want), deleted)
	}
	for i, p := range tab.pages {
		if n := len(p.records); n == 0 || n > pageRecords {
			t.Fatalf("page %d has %d records", i, n)
		}
	}
	for _, start := range keys[:min(len(keys), 20)] {
		at, _ := slices.BinarySearch(keys, start+1)
		for g := range tab.after(start) {
			if g.ID != keys[at] {
				t.Fatalf("after(%d) begins with %d, want %d", start, g.ID, keys[at])
			}
			break
		}
	}
}
