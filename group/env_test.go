package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// testIncarnation is that of the group of every test.
var testIncarnation = raftyard.Incarnation{0: 0xaa, 15: 0x01}

// testDescriptor returns a group with the roles given, replica i+1 on node i+1.
func testDescriptor(roles ...Role) Descriptor {
	d := Descriptor{
		Group: 7, Incarnation: testIncarnation, Kind: "list", Epoch: 1,
		NextReplica: raftyard.ReplicaID(len(roles) + 1), SnapshotEntries: 100, TrailingEntries: 10,
	}
	for i, role := range roles {
		d.Members = append(d.Members, Member{
			ID: raftyard.ReplicaID(i + 1), Node: raftyard.NodeID(i + 1), Role: role,
		})
	}
	return d
}

func voters(n int) []Role { return slices.Repeat([]Role{Voter}, n) }

// An env is a group of replicas with everything around them that a node is to
// them: disks, state machines and a network. Nothing happens in it by itself.
type env struct {
	t        testing.TB
	out      strings.Builder // what happened since the last command
	members  []*member       // by id
	network  []*raftpb.Message
	contents map[uint64][]string // of every snapshot, by index
	limits   Limits
	boots    uint64

	// stores, unless nil, are the directories of the nodes.
	stores map[raftyard.NodeID]NodeStore
	// autoJoin makes a replica when the first message for it arrives.
	autoJoin bool
	// observe, when set, sees every output before it is carried out.
	observe func(m *member, out Output)
	// answered, when set, sees every applied command with its token, every read
	// and every outcome.
	answered func(m *member, token any, index uint64, err error)
}

// A member is one replica with its disk.
type member struct {
	id   raftyard.ReplicaID
	node raftyard.NodeID
	r    *Replica // nil while it is down

	// What survives a crash.
	store  raftyard.StoreID
	log    *raft.MemoryStorage
	state  State
	list   list
	skipAt uint64
	skips  []Skip

	taken *Output // by Ready, not carried out yet
}

// GoString keeps rapid's reports short.
func (m *member) GoString() string { return fmt.Sprintf("replica %d", m.id) }

// A list is the state machine of the tests: it keeps every command in order.
type list struct {
	applied uint64
	items   []string
}

func newEnv(t testing.TB) *env {
	t.Helper()
	return &env{t: t, contents: make(map[uint64][]string)}
}

func (e *env) printf(format string, args ...any) { fmt.Fprintf(&e.out, format+"\n", args...) }

func (e *env) member(id int) *member {
	i := slices.IndexFunc(e.members, func(m *member) bool { return m.id == raftyard.ReplicaID(id) })
	if i < 0 {
		e.t.Fatalf("no replica %d", id)
	}
	return e.members[i]
}

// found starts the members of a new group.
func (e *env) found(d Descriptor) {
	snap, hs := Genesis(d)
	for _, desc := range d.Members {
		m := e.newMember(desc.ID, desc.Node)
		e.must(m.log.ApplySnapshot(snap))
		e.must(m.log.SetHardState(hs))
		m.state = State{Descriptor: d, Index: genesisIndex}
		e.members = append(e.members, m)
		e.start(m)
	}
}

func (e *env) newMember(id raftyard.ReplicaID, node raftyard.NodeID) *member {
	return &member{
		id: id, node: node, log: raft.NewMemoryStorage(), store: e.stores[node].Current,
	}
}

// join makes a replica that has heard nothing yet.
func (e *env) join(id raftyard.ReplicaID, node raftyard.NodeID) {
	m := e.newMember(id, node)
	e.members = append(e.members, m)
	slices.SortFunc(e.members, func(a, b *member) int { return int(a.id) - int(b.id) })
	e.start(m)
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) start(m *member) {
	e.t.Helper()
	e.must(e.tryStart(m))
}

func (e *env) tryStart(m *member) error {
	e.boots++
	r, err := New(Config{
		Group: 7, Incarnation: testIncarnation, Node: m.node, Replica: m.id, Store: m.store,
		Storage: m.log, State: m.state, Applied: m.list.applied, Boot: e.boots,
		ElectionTicks: 5, HeartbeatTicks: 1, Limits: e.limits,
		SkipAt: m.skipAt, Skips: m.skips,
	})
	if err != nil {
		return err
	}
	m.r = r
	m.list.applied = r.Status().Applied // an empty state machine is as far as the genesis
	return nil
}

// crash takes a replica away, with everything that is not on its disk.
func (e *env) crash(m *member) {
	m.r, m.taken = nil, nil
}

// forget takes the state machine back to the stored snapshot, as one that is not
// durable begins.
func (e *env) forget(m *member) {
	snap, err := m.log.Snapshot()
	e.must(err)
	index := snap.GetMetadata().GetIndex()
	m.list = list{applied: index, items: slices.Clone(e.contents[index])}
}

// take takes a step of the replica without carrying it out.
func (e *env) take(m *member) {
	out := m.r.Ready()
	m.taken = &out
	if e.observe != nil {
		e.observe(m, out)
	}
	e.describe(m, out)
	e.send(out.Messages)
}

// finish carries out what was taken.
func (e *env) finish(m *member) {
	out := *m.taken
	m.taken = nil
	if in := out.Install; in != nil {
		m.list = list{applied: in.Index, items: slices.Clone(e.contents[in.Index])}
		e.contents[in.Index] = slices.Clone(m.list.items)
	}
	if out.Save != nil {
		e.save(m, out.Save)
	}
	e.send(out.After)
	if a := out.Apply; a != nil {
		e.apply(m, a)
	}
	if e.answered != nil {
		for _, rd := range out.Reads {
			e.answered(m, rd.Token, rd.Index, nil)
		}
		for _, o := range out.Outcomes {
			e.answered(m, o.Token, 0, o.Err)
		}
	}
	m.r.Advance()
}

func (e *env) save(m *member, s *Save) {
	m.skipAt = max(m.skipAt, s.SkipAt)
	if s.Reset {
		e.must(m.log.ApplySnapshot(s.Snapshot))
	}
	e.must(m.log.Append(s.Entries))
	if s.HardState != nil {
		e.must(m.log.SetHardState(s.HardState))
	}
	if s.State != nil {
		m.state = *s.State
	}
}

func (e *env) apply(m *member, a *Apply) {
	if a.First != m.list.applied+1 {
		e.t.Fatalf("replica %d: apply of %d..%d after %d", m.id, a.First, a.Last, m.list.applied)
	}
	m.skips = append(m.skips, a.Skipped...)
	for i, c := range a.Commands {
		m.list.items = append(m.list.items, string(c.Data))
		if e.answered != nil {
			e.answered(m, tokensOf(e.t, a)[i], c.Index, nil)
		}
	}
	m.list.applied = a.Last
}

// snapshot takes a snapshot of what is applied and cuts the log, except for the
// trailing entries.
func (e *env) snapshot(m *member, trailing uint64) error {
	index := m.list.applied
	state := m.r.State()
	snap, err := m.log.Snapshot()
	e.must(err)
	switch {
	case state.Index > index:
		return fmt.Errorf("the state is of %d, applied %d", state.Index, index)
	case index <= snap.GetMetadata().GetIndex():
		return errors.New("nothing new")
	}
	e.contents[index] = slices.Clone(m.list.items)
	manifest := Manifest{State: state, Size: int64(len(m.list.items))}
	_, err = m.log.CreateSnapshot(index, state.Descriptor.ConfState(), manifest.Encode())
	e.must(err)
	if first, _ := m.log.FirstIndex(); index > trailing && index-trailing >= first {
		e.must(m.log.Compact(index - trailing))
		m.r.Compacted(index - trailing)
	}
	return nil
}

func (e *env) send(msgs []*raftpb.Message) { e.network = append(e.network, msgs...) }

// deliver gives the i-th message of the network to its receiver.
func (e *env) deliver(i int) error {
	msg := e.network[i]
	e.network = slices.Delete(e.network, i, i+1)
	return e.step(msg)
}

func (e *env) step(msg *raftpb.Message) error {
	find := func(id uint64) int {
		return slices.IndexFunc(e.members, func(m *member) bool { return uint64(m.id) == id })
	}
	j := find(msg.GetTo())
	if i := find(msg.GetFrom()); j < 0 && e.autoJoin && i >= 0 {
		to := raftyard.ReplicaID(msg.GetTo())
		if desc, ok := e.members[i].state.Descriptor.Member(to); ok {
			e.join(to, desc.Node)
			j = find(msg.GetTo())
		}
	}
	up := j >= 0 && e.members[j].r != nil
	if msg.GetType() == raftpb.MsgSnap {
		// The sender is told what became of it, as if by the stream's end.
		for _, m := range e.members {
			if uint64(m.id) == msg.GetFrom() && m.r != nil {
				m.r.ReportSnapshot(raftyard.ReplicaID(msg.GetTo()), up)
			}
		}
	}
	if !up {
		return nil
	}
	return e.members[j].r.Step(msg)
}

// stabilize carries out and delivers until nothing is left to do.
func (e *env) stabilize(ids ...int) {
	for range 10_000 {
		busy := false
		for _, m := range e.members {
			if m.r != nil && m.taken == nil && m.r.HasReady() && e.selected(m.id, ids) {
				e.take(m)
				e.finish(m)
				busy = true
			}
		}
		for i := 0; i < len(e.network); {
			if !e.selected(raftyard.ReplicaID(e.network[i].GetTo()), ids) {
				i++
				continue
			}
			busy = true
			to, typ := e.network[i].GetTo(), e.network[i].GetType()
			if err := e.deliver(i); err != nil {
				e.printf("%d: refused %s: %v", to, typ, err)
			}
		}
		if !busy {
			return
		}
	}
	e.t.Fatal("the group does not come to rest")
}

func (e *env) selected(id raftyard.ReplicaID, ids []int) bool {
	return len(ids) == 0 || slices.Contains(ids, int(id))
}

// describe prints an output.
func (e *env) describe(m *member, out Output) {
	line := func(format string, args ...any) {
		e.printf("%d: "+format, append([]any{m.id}, args...)...)
	}
	if l := out.Leader; l != nil {
		line("%s in term %d, leader %d", l.Role, l.Term, l.Leader)
	}
	for _, msg := range out.Messages {
		line("send %s", describeMessage(msg))
	}
	if in := out.Install; in != nil {
		line("install %d/%d, epoch %d of %d", in.Term, in.Index,
			in.Manifest.State.Descriptor.Epoch, in.Manifest.State.Index)
	}
	if s := out.Save; s != nil {
		line("save%s", describeSave(s))
	}
	for _, msg := range out.After {
		line("then send %s", describeMessage(msg))
	}
	if a := out.Apply; a != nil {
		line("apply %d..%d%s", a.First, a.Last, describeCommands(a.Commands, tokensOf(e.t, a)))
	}
	for _, rd := range out.Reads {
		line("read %v from %d", rd.Token, rd.Index)
	}
	for _, o := range out.Outcomes {
		line("outcome of %v: %s", o.Token, describeError(o.Err))
	}
	if out.Removed {
		line("removed")
	}
}

func describeError(err error) string {
	if err == nil {
		return "done"
	}
	if NotApplied(err) {
		return err.Error() + " (not applied)"
	}
	return err.Error()
}

func describeSave(s *Save) string {
	var b strings.Builder
	if s.HardState != nil {
		fmt.Fprintf(&b, " {%s}", raft.DescribeHardState(s.HardState))
	}
	if s.Reset {
		fmt.Fprintf(&b, " reset to %d", s.Snapshot.GetMetadata().GetIndex())
	}
	for _, e := range s.Entries {
		fmt.Fprintf(&b, " [%s]", describeEntry(e))
	}
	if s.State != nil {
		fmt.Fprintf(&b, " epoch %d of %d: %s", s.State.Descriptor.Epoch, s.State.Index,
			describeMembers(s.State.Descriptor))
	}
	return b.String()
}

func describeMembers(d Descriptor) string {
	var parts []string
	for _, m := range d.Members {
		part := fmt.Sprintf("%d@%d %s", m.ID, m.Node, m.Role)
		if s := m.Store; !s.IsZero() {
			part += fmt.Sprintf(" in %d.%d", s[0], s[1])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// tokensOf returns one token for each command, nil for those of others.
func tokensOf(t interface{ Fatalf(string, ...any) }, a *Apply) []any {
	switch len(a.Tokens) {
	case len(a.Commands):
		return a.Tokens
	case 0:
		return make([]any, len(a.Commands))
	default:
		t.Fatalf("%d tokens of %d commands", len(a.Tokens), len(a.Commands))
		return nil
	}
}

func describeCommands(commands []Command, tokens []any) string {
	var b strings.Builder
	for i, c := range commands {
		if len(c.Data) > 64 {
			fmt.Fprintf(&b, " <%d bytes>", len(c.Data))
		} else {
			fmt.Fprintf(&b, " %s", c.Data)
		}
		if tokens[i] != nil {
			fmt.Fprintf(&b, "(%v)", tokens[i])
		}
	}
	return b.String()
}

func describeEntry(e *raftpb.Entry) string {
	if e.GetType() != raftpb.EntryNormal {
		l, err := decodeConfChange(e)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d/%d change to epoch %d", e.GetTerm(), e.GetIndex(), l.next.Epoch)
	}
	if isSkip(e) {
		s, err := decodeSkip(e)
		return fmt.Sprintf("%d/%d skip of %d %v", e.GetTerm(), e.GetIndex(), s.Index, err)
	}
	commands, err := DecodeEntry(e)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d/%d%s", e.GetTerm(), e.GetIndex(),
		describeCommands(commands, make([]any, len(commands))))
}

func describeMessage(m *raftpb.Message) string {
	var b strings.Builder
	name := strings.TrimPrefix(m.GetType().String(), "Msg")
	fmt.Fprintf(&b, "%d→%d %s", m.GetFrom(), m.GetTo(), name)
	if m.GetTerm() != 0 {
		fmt.Fprintf(&b, " term %d", m.GetTerm())
	}
	if m.GetIndex() != 0 || m.GetLogTerm() != 0 {
		fmt.Fprintf(&b, " at %d/%d", m.GetLogTerm(), m.GetIndex())
	}
	if m.GetCommit() != 0 {
		fmt.Fprintf(&b, " commit %d", m.GetCommit())
	}
	if m.GetReject() {
		fmt.Fprintf(&b, " rejected, hint %d", m.GetRejectHint())
	}
	if len(m.GetContext()) == readMarkSize {
		fmt.Fprintf(&b, " reads %d", readMark(m.GetContext()))
	} else if len(m.GetContext()) > 0 {
		fmt.Fprintf(&b, " %s", m.GetContext())
	}
	if s := m.GetSnapshot(); s != nil {
		fmt.Fprintf(&b, " snapshot %d/%d", s.GetMetadata().GetTerm(), s.GetMetadata().GetIndex())
	}
	for _, e := range m.GetEntries() {
		if t := m.GetType(); t == raftpb.MsgReadIndex || t == raftpb.MsgReadIndexResp {
			fmt.Fprintf(&b, " question %d", binary.BigEndian.Uint64(e.GetData()[16:]))
			continue
		}
		fmt.Fprintf(&b, " [%s]", describeEntry(e))
	}
	return b.String()
}
