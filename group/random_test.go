package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/raftyard/raftyard"
)

// TestRandomSchedules drives a group of three to five replicas through random
// schedules of everything that a network, a disk and callers can do to it, and
// checks after every step what must hold whatever happens.
func TestRandomSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, rapid.IntRange(3, 5).Draw(t, "replicas"))
		t.Repeat(map[string]func(*rapid.T){
			"campaign": m.campaign,
			"tick":     m.tick,
			"propose":  m.propose,
			"read":     m.read,
			"cancel":   m.cancel,
			"process":  m.process,
			"take":     m.take,
			"deliver":  m.deliverOne,
			"flood":    m.deliverMany,
			"lose":     m.lose,
			"repeat":   m.repeat,
			"crash":    m.crashOne,
			"restart":  m.restartOne,
			"wipe":     m.wipe,
			"snapshot": m.snapshotOne,
			"change":   m.change,
			"transfer": m.transfer,
			"round":    m.round,
			"round 2":  m.round,
			"settle":   m.settle,
			"lead":     m.lead,
			"lead 2":   m.lead,
			"":         m.checkWitnesses,
		})
		m.finish()
	})
}

// A model is an environment with a memory of everything that was ever promised.
type model struct {
	*env
	rt *rapid.T

	leaders   map[uint64]raftyard.ReplicaID // by term
	committed map[uint64][]byte             // entry at each index, encoded
	states    map[uint64][]byte             // state that came from each index
	highest   uint64                        // committed index known to anybody

	tokens  map[*ticket]bool // accepted and without an outcome yet
	all     map[CommandID]*ticket
	applied map[CommandID]uint64 // index at which a command was committed
	next    uint64

	directories uint64 // that nodes have had
}

// A ticket is the token of everything that was asked for.
type ticket struct {
	id    CommandID
	owner *member
	life  *Replica
	read  bool
	after uint64 // for a read: what it must see
	ended bool
	err   error
}

func newModel(t *rapid.T, n int) *model {
	m := &model{
		rt: t, leaders: make(map[uint64]raftyard.ReplicaID), committed: make(map[uint64][]byte),
		states: make(map[uint64][]byte), tokens: make(map[*ticket]bool),
		all: make(map[CommandID]*ticket), applied: make(map[CommandID]uint64),
	}
	m.env = newEnv(&fatalOnly{TB: nil, t: t})
	m.limits = Limits{
		MaxEntryBytes: 1024, MaxBatchCommands: 3, MaxQueuedProposals: 6, MaxReads: 5,
		MaxInflightBatches: rapid.IntRange(1, 3).Draw(t, "inflight"),
		MaxSizePerMsg:      1024, MaxInflightMsgs: 3, MaxCommittedSizePerReady: 1024,
	}
	m.autoJoin = true
	m.stores = make(map[raftyard.NodeID]NodeStore)
	for node := range raftyard.NodeID(6) {
		m.wiped(node + 1)
	}
	m.observe, m.answered = m.checkOutput, m.checkAnswer
	d := testDescriptor(voters(n)...)
	for i := range d.Members {
		d.Members[i].Store = m.stores[d.Members[i].Node].Current
	}
	m.found(d)
	if rapid.Bool().Draw(t, "led") {
		m.must(m.member(1).r.Campaign())
		m.settle(t)
	}
	return m
}

// A fatalOnly lets the environment report to rapid.
type fatalOnly struct {
	testing.TB
	t *rapid.T
}

func (f *fatalOnly) Helper()                   {}
func (f *fatalOnly) Fatal(args ...any)         { f.t.Fatal(args...) }
func (f *fatalOnly) Fatalf(s string, a ...any) { f.t.Fatalf(s, a...) }

// pick returns a member for which ok holds, or nil.
func (m *model) pick(t *rapid.T, ok func(*member) bool) *member {
	var list []*member
	for _, x := range m.members {
		if ok(x) {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(t, "member")
}

func up(x *member) bool { return x.r != nil }

func leading(x *member) bool { return x.r != nil && x.r.view.role == Leader }

func (m *model) campaign(t *rapid.T) {
	if x := m.pick(t, up); x != nil {
		if rapid.Bool().Draw(t, "forget first") {
			for _, other := range m.members {
				if other.r != nil && other.r.usable() == nil {
					m.must(other.r.ForgetLeader())
				}
			}
		}
		m.allow(x.r.Campaign())
	}
}

// allow fails on an error that is none of the package's refusals.
func (m *model) allow(err error) {
	if err != nil && !NotApplied(err) {
		m.rt.Fatalf("unexpected error: %v", err)
	}
}

// tick ticks a leader, or the reads of another replica: after how many ticks raft
// campaigns is random, which no schedule could repeat.
func (m *model) tick(t *rapid.T) {
	x := m.pick(t, up)
	if x == nil {
		return
	}
	for range rapid.IntRange(1, 12).Draw(t, "ticks") {
		if leading(x) {
			x.r.Tick()
		} else {
			x.r.reads.tick(x.r.cfg.ElectionTicks)
		}
	}
}

func (m *model) ticket(x *member) *ticket {
	m.next++
	tk := &ticket{owner: x, life: x.r, after: m.highest}
	binary.BigEndian.PutUint64(tk.id[8:], m.next)
	return tk
}

func (m *model) propose(t *rapid.T) {
	x := m.pick(t, leading)
	if x == nil {
		x = m.pick(t, up)
	}
	if x == nil {
		return
	}
	for range rapid.IntRange(1, 4).Draw(t, "proposals") {
		tk := m.ticket(x)
		size := rapid.SampledFrom([]int{1, 100, 900, 1100}).Draw(t, "size")
		err := x.r.Propose(Proposal{ID: tk.id, Data: make([]byte, size), Token: tk})
		m.allow(err)
		if tk.err = err; err == nil {
			m.tokens[tk] = true
		}
		m.all[tk.id] = tk
	}
}

func (m *model) read(t *rapid.T) {
	if x := m.pick(t, up); x != nil {
		tk := m.ticket(x)
		tk.read = true
		err := x.r.Read(tk)
		m.allow(err)
		if err == nil {
			m.tokens[tk] = true
		}
	}
}

func (m *model) cancel(t *rapid.T) {
	var open []*ticket
	for tk := range m.tokens {
		if tk.owner.r == tk.life {
			open = append(open, tk)
		}
	}
	if len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(a, b *ticket) int { return bytes.Compare(a.id[:], b.id[:]) })
	tk := rapid.SampledFrom(open).Draw(t, "ticket")
	if tk.life.Cancel(tk) {
		m.end(tk, ErrStopped)
	}
}

func (m *model) process(t *rapid.T) {
	if x := m.pick(t, up); x != nil {
		m.drain(x)
	}
}

func (m *model) drain(x *member) {
	if x.taken != nil {
		m.env.finish(x)
	}
	for x.r.HasReady() {
		m.env.take(x)
		m.env.finish(x)
	}
}

// take takes a step and leaves its work undone: other inputs, or a crash, follow.
func (m *model) take(t *rapid.T) {
	x := m.pick(t, func(x *member) bool { return up(x) && x.taken == nil && x.r.HasReady() })
	if x != nil {
		m.env.take(x)
	}
}

func (m *model) deliverOne(t *rapid.T) {
	if n := len(m.network); n > 0 {
		m.refused(m.deliver(rapid.IntRange(0, n-1).Draw(t, "message")))
	}
}

func (m *model) deliverMany(t *rapid.T) {
	for range min(len(m.network), rapid.IntRange(1, 20).Draw(t, "messages")) {
		m.refused(m.deliver(0))
	}
}

// refused fails if a replica calls a message wrong: all of them are a replica's.
func (m *model) refused(err error) {
	if err != nil && !isAny(err, ErrNotMember, ErrRemoved, ErrUninitialised) &&
		!strings.Contains(err.Error(), "a replica without a state") {
		m.rt.Fatalf("message refused: %v", err)
	}
}

func (m *model) lose(t *rapid.T) {
	if n := len(m.network); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(t, "message")
		msg := m.network[i]
		m.network = slices.Delete(m.network, i, i+1)
		for _, x := range m.members {
			if msg.GetType() == raftpb.MsgSnap && uint64(x.id) == msg.GetFrom() && x.r != nil {
				x.r.ReportSnapshot(raftyard.ReplicaID(msg.GetTo()), false)
			}
		}
	}
}

func (m *model) repeat(t *rapid.T) {
	if n := len(m.network); n > 0 && n < 200 {
		msg := m.network[rapid.IntRange(0, n-1).Draw(t, "message")]
		if msg.GetType() != raftpb.MsgSnap {
			m.network = append(m.network, msg)
		}
	}
}

func (m *model) crashOne(t *rapid.T) {
	x := m.pick(t, up)
	if x == nil {
		return
	}
	m.crash(x)
	if rapid.Bool().Draw(t, "state machine lost") {
		m.forget(x)
	}
}

// wipe takes a member's disk. Its node has a new directory from then on, where a replica
// without a state comes to be when the first message arrives for it.
func (m *model) wipe(t *rapid.T) {
	x := m.pick(t, func(x *member) bool { return x.r == nil })
	if x == nil {
		return
	}
	m.wiped(x.node)
	for _, other := range m.members {
		if other.node == x.node {
			m.crash(other)
			*other = *m.newMember(other.id, other.node)
			m.restart(other)
		}
	}
}

// wiped gives a node another directory.
func (m *model) wiped(node raftyard.NodeID) {
	s := m.stores[node]
	m.directories++
	s.Current = raftyard.StoreID{byte(node), byte(m.directories >> 8), byte(m.directories)}
	if s.First.IsZero() {
		s.First = s.Current
	}
	m.stores[node] = s
}

func (m *model) restartOne(t *rapid.T) {
	if x := m.pick(t, func(x *member) bool { return x.r == nil }); x != nil {
		m.restart(x)
	}
}

func (m *model) restart(x *member) {
	if err := m.tryStart(x); err != nil && !isAny(err, ErrRemoved) {
		m.rt.Fatalf("replica %d does not start: %v", x.id, err)
	}
}

func (m *model) snapshotOne(t *rapid.T) {
	x := m.pick(t, func(x *member) bool { return up(x) && x.taken == nil })
	if x == nil {
		return
	}
	trailing := rapid.IntRange(0, 3).Draw(t, "trailing")
	if err := m.snapshot(x, uint64(trailing)); err == nil {
		m.checkStorage(x)
	}
}

func (m *model) change(t *rapid.T) {
	x := m.pick(t, leading)
	if x == nil {
		return
	}
	want := Want{Voters: rapid.SliceOfNDistinct(
		rapid.Map(rapid.Uint64Range(1, 6), func(n uint64) raftyard.NodeID {
			return raftyard.NodeID(n)
		}), 1, 4, rapid.ID).Draw(t, "voters"), Stores: m.stores}
	st := x.r.Status()
	step := Plan(st.State.Descriptor, want, st.Progress, x.id)
	switch step.Kind {
	case StepChange, StepLeave:
		tk := m.ticket(x)
		err := x.r.ChangeMembers(step.Next, tk)
		m.allow(err)
		if err == nil {
			m.tokens[tk] = true
		}
	case StepTransfer:
		m.allow(x.r.TransferLeader(step.To))
	default:
	}
}

func (m *model) transfer(t *rapid.T) {
	if x := m.pick(t, leading); x != nil {
		to := rapid.SampledFrom(x.r.state.Descriptor.Members).Draw(t, "to")
		m.allow(x.r.TransferLeader(to.ID))
	}
}

// settle lets everything that is up come to rest.
func (m *model) settle(*rapid.T) {
	for range 200 {
		for _, x := range m.members {
			if x.r != nil {
				m.drain(x)
			}
		}
		if len(m.network) == 0 {
			return
		}
		for range len(m.network) {
			m.refused(m.deliver(0))
		}
	}
}

// round carries out everything and delivers every message that is there.
func (m *model) round(*rapid.T) {
	for _, x := range m.members {
		if x.r != nil {
			m.drain(x)
		}
	}
	for range len(m.network) {
		m.refused(m.deliver(0))
	}
}

// lead makes sure that somebody leads, so that the schedule gets somewhere.
func (m *model) lead(t *rapid.T) {
	if !slices.ContainsFunc(m.members, leading) {
		m.campaign(t)
		m.settle(t)
	}
	m.propose(t)
}

// finish closes every replica: nothing that was accepted is without an outcome,
// except for what went down with a replica.
func (m *model) finish() {
	for _, x := range m.members {
		if x.r == nil {
			continue
		}
		for _, o := range x.r.Close() {
			m.checkAnswer(x, o.Token, 0, o.Err)
		}
		// What was taken and not carried out has its outcomes with it.
		if x.taken != nil {
			for _, o := range x.taken.Outcomes {
				m.checkAnswer(x, o.Token, 0, o.Err)
			}
			for _, rd := range x.taken.Reads {
				m.checkAnswer(x, rd.Token, rd.Index, nil)
			}
			if a := x.taken.Apply; a != nil {
				for i, c := range a.Commands {
					m.checkAnswer(x, tokensOf(m.t, a)[i], c.Index, nil)
				}
			}
		}
		for tk := range m.tokens {
			if tk.owner == x && tk.life == x.r {
				m.rt.Fatalf("replica %d: %x has no outcome", x.id, tk.id)
			}
		}
	}
	for id, index := range m.applied {
		if tk := m.all[id]; tk == nil || NotApplied(tk.err) {
			m.rt.Fatalf("command %x was not applied, but is committed at %d", id, index)
		}
	}
}

func (m *model) end(tk *ticket, err error) {
	if tk.ended {
		m.rt.Fatalf("%x has a second outcome: %v, then %v", tk.id, tk.err, err)
	}
	tk.ended, tk.err = true, err
	delete(m.tokens, tk)
}

func (m *model) checkAnswer(x *member, token any, index uint64, err error) {
	if token == nil {
		return
	}
	tk, ok := token.(*ticket)
	if !ok || tk.owner != x || tk.life != x.r {
		m.rt.Fatalf("replica %d answers %v, which is not its own", x.id, token)
		return
	}
	if tk.read && err == nil && index < tk.after {
		m.rt.Fatalf("replica %d: read from %d, but %d was committed before", x.id, index, tk.after)
	}
	m.end(tk, err)
}

// checkOutput sees what a replica hands out.
func (m *model) checkOutput(x *member, out Output) {
	if l := out.Leader; l != nil && l.Role == Leader {
		if other, ok := m.leaders[l.Term]; ok && other != x.id {
			m.rt.Fatalf("replicas %d and %d both lead term %d", other, x.id, l.Term)
		}
		m.leaders[l.Term] = x.id
	}
	m.checkMessages(x, out)
	if s := out.Save; s != nil && s.State != nil {
		m.checkState(x, *s.State)
	}
	if a := out.Apply; a != nil {
		m.checkApply(x, a)
	}
}

// checkApply compares with what was committed at the same indexes before.
func (m *model) checkApply(x *member, a *Apply) {
	entries := make(map[uint64][]byte)
	for i := a.First; i <= a.Last; i++ {
		entries[i] = nil
	}
	for _, c := range a.Commands {
		entries[c.Index] = append(append(entries[c.Index], c.ID[:]...), byte(c.Offset))
		m.applied[c.ID] = c.Index
	}
	for i, e := range entries {
		if before, ok := m.committed[i]; ok && !bytes.Equal(before, e) {
			m.rt.Fatalf("replica %d applies another entry at %d", x.id, i)
		}
		m.committed[i] = e
	}
	m.highest = max(m.highest, a.Last)
}

func (m *model) checkState(x *member, s State) {
	b := s.Encode()
	if before, ok := m.states[s.Index]; ok && !bytes.Equal(before, b) {
		m.rt.Fatalf("replica %d has another state from %d", x.id, s.Index)
	}
	m.states[s.Index] = b
}

// checkMessages is a tap on the wire: nothing leaves before the Save that it
// vouches for.
func (m *model) checkMessages(x *member, out Output) {
	hs, _, err := x.log.InitialState()
	m.must(err)
	last, err := x.log.LastIndex()
	m.must(err)
	for _, msg := range out.Messages {
		if msg.GetTerm() > hs.GetTerm() && msg.GetType() != raftpb.MsgPreVote &&
			msg.GetType() != raftpb.MsgPreVoteResp {
			m.rt.Fatalf("replica %d sends %s before its term is saved", x.id, describeMessage(msg))
		}
		switch msg.GetType() {
		case raftpb.MsgAppResp:
			if !msg.GetReject() && msg.GetIndex() > last {
				m.rt.Fatalf("replica %d sends %s, its log ends at %d",
					x.id, describeMessage(msg), last)
			}
		case raftpb.MsgVoteResp:
			if !msg.GetReject() && hs.GetVote() != msg.GetTo() {
				m.rt.Fatalf("replica %d sends %s before its vote is saved",
					x.id, describeMessage(msg))
			}
		default:
		}
	}
}

// checkStorage checks that a replica can start from what is on its disk.
func (m *model) checkStorage(x *member) {
	if x.state.IsZero() {
		return
	}
	c := &x.r.cfg
	cfg := Config{
		Group: c.Group, Incarnation: c.Incarnation, Node: c.Node, Replica: c.Replica,
		Store: c.Store, Storage: c.Storage, State: x.state, Applied: x.list.applied,
	}
	if _, err := readStart(cfg); err != nil && !isAny(err, ErrRemoved) {
		m.rt.Fatalf("replica %d: %v", x.id, err)
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool {
		return errors.Is(err, target)
	})
}
