package check

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// fakeLog is a durable log that a test writes as it likes.
type fakeLog struct {
	term, commit uint64
	vote         raftyard.ReplicaID
	start        uint64   // the index before the first entry
	terms        []uint64 // from start on
	snap         *raftpb.Snapshot
	snapErr      error
}

func (l *fakeLog) HardState() *raftpb.HardState {
	return &raftpb.HardState{
		Term: new(l.term), Vote: new(uint64(l.vote)), Commit: new(l.commit),
	}
}

func (l *fakeLog) last() uint64 { return l.start + uint64(len(l.terms)) - 1 }

func (l *fakeLog) Bounds() (first, last uint64) { return l.start + 1, l.last() }

func (l *fakeLog) Term(index uint64) (uint64, error) {
	switch {
	case index < l.start:
		return 0, raft.ErrCompacted
	case index > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.terms[index-l.start], nil
}

func (l *fakeLog) Snapshot() (*raftpb.Snapshot, error) {
	if l.snapErr != nil {
		return nil, l.snapErr
	}
	if l.snap == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return l.snap, nil
}

// compact cuts the log behind index 3 and keeps a snapshot of it.
func (l *fakeLog) compact(st group.State) {
	const index = 3
	term := l.terms[index-l.start]
	l.snap = group.NewSnapshot(index, term, group.Manifest{State: st})
	l.terms = append([]uint64(nil), l.terms[index-l.start:]...)
	l.start = index
}

// A bench is a cluster of three nodes with one group, as a checker sees it. Replica
// n is on node n.
type bench struct {
	t     *testing.T
	c     *Checker
	nodes map[raftyard.NodeID]*Examined
	logs  map[raftyard.ReplicaID]*fakeLog
}

const benchGroup = 7

func incarnation() raftyard.Incarnation { return raftyard.Incarnation{1} }

func descriptor(epoch uint64, members ...group.Member) group.Descriptor {
	next := raftyard.ReplicaID(1)
	for _, m := range members {
		next = max(next, m.ID+1)
	}
	return group.Descriptor{
		Group: benchGroup, Incarnation: incarnation(), Kind: "k", Epoch: epoch,
		NextReplica: next, Members: members,
	}
}

func threeVoters() group.State {
	return group.State{Index: 1, Descriptor: descriptor(1,
		group.Member{ID: 1, Node: 1, Role: group.Voter},
		group.Member{ID: 2, Node: 2, Role: group.Voter},
		group.Member{ID: 3, Node: 3, Role: group.Voter},
	)}
}

// newBench returns a cluster in which replica 1 leads term 2, and entries 2 and 3
// are committed and applied everywhere.
func newBench(t *testing.T, c Config) *bench {
	t.Helper()
	b := &bench{
		t: t, c: New(c),
		nodes: make(map[raftyard.NodeID]*Examined),
		logs:  make(map[raftyard.ReplicaID]*fakeLog),
	}
	b.c.logOf = func(r *Replica) Log {
		if l := b.logs[r.ID]; l != nil {
			return l
		}
		return nil
	}
	for i := range 3 {
		b.add(raftyard.NodeID(i+1), raftyard.ReplicaID(i+1))
	}
	b.elect(1, 2)
	b.write(1)
	b.write(1)
	b.none()
	return b
}

// add puts a replica on a node, which is opened.
func (b *bench) add(node raftyard.NodeID, id raftyard.ReplicaID) *Replica {
	b.t.Helper()
	st := threeVoters()
	b.logs[id] = &fakeLog{
		term: 1, commit: 1, start: 1, terms: []uint64{1},
		snap: group.NewSnapshot(1, 1, group.Manifest{State: st, Empty: true}),
	}
	b.nodes[node] = &Examined{Node: node, Replicas: []Replica{{
		Group: benchGroup, Incarnation: incarnation(), ID: id, Serving: true,
		Term: 1, Commit: 1, First: 2, Last: 1, HandedTo: 1, Applied: 1, State: st,
	}}}
	b.nodes[node].Stored = []storage.Replica{b.stored(id)}
	b.c.MachineOpened(b.identity(id), 0)
	b.c.Opened(node, b.nodes[node])
	return b.r(node)
}

func (b *bench) stored(id raftyard.ReplicaID) storage.Replica {
	return storage.Replica{Group: benchGroup, Incarnation: incarnation(), ID: id}
}

func (b *bench) identity(id raftyard.ReplicaID) Identity {
	return Identity{benchGroup, incarnation(), id, raftyard.NodeID(id)}
}

// r returns the replica on a node.
func (b *bench) r(node raftyard.NodeID) *Replica { return &b.nodes[node].Replicas[0] }

func (b *bench) log(node raftyard.NodeID) *fakeLog { return b.logs[b.r(node).ID] }

func (b *bench) step(nodes ...raftyard.NodeID) {
	for _, n := range nodes {
		b.c.Stepped(n, b.nodes[n])
	}
}

// send sends a message from one node to another; what it has of term and type is
// the caller's.
func (b *bench) send(from, to raftyard.NodeID, m *raftpb.Message) {
	b.c.Sent(from, b.envelope(from, to, m), false)
}

func (b *bench) envelope(from, to raftyard.NodeID, m *raftpb.Message) *transport.Envelope {
	m.From, m.To = new(uint64(from)), new(uint64(to))
	return &transport.Envelope{
		Group: benchGroup, Incarnation: incarnation(),
		From: transport.Endpoint{Node: from, Replica: raftyard.ReplicaID(from)},
		To:   transport.Endpoint{Node: to, Replica: raftyard.ReplicaID(to)}, Message: m,
	}
}

// message returns a message of a type, a term and an index.
func message(typ raftpb.MessageType, term, index uint64) *raftpb.Message {
	return &raftpb.Message{Type: typ.Enum(), Term: new(term), Index: new(index)}
}

func (b *bench) others(node raftyard.NodeID) []raftyard.NodeID {
	var others []raftyard.NodeID
	for n := range raftyard.NodeID(3) {
		if n+1 != node && b.nodes[n+1] != nil {
			others = append(others, n+1)
		}
	}
	return others
}

// vote makes a node give its vote, durably, and show it.
func (b *bench) vote(node, to raftyard.NodeID, term uint64) {
	l, r := b.log(node), b.r(node)
	l.term, l.vote = term, raftyard.ReplicaID(to)
	r.Term, r.Vote, r.Role, r.Leader = term, l.vote, group.Follower, 0
}

// elect makes a node the leader of a term, with the votes of all.
func (b *bench) elect(node raftyard.NodeID, term uint64) {
	b.vote(node, node, term)
	l := b.log(node)
	for _, n := range b.others(node) {
		m := message(raftpb.MsgVote, term, l.last())
		m.LogTerm = new(l.terms[len(l.terms)-1])
		b.send(node, n, m)
		b.vote(n, node, term)
		b.send(n, node, message(raftpb.MsgVoteResp, term, 0))
		b.step(n)
	}
	b.r(node).Role, b.r(node).Leader = group.Leader, raftyard.ReplicaID(node)
	b.step(node)
}

// replicate has a leader send its newest entry, and the others acknowledge it.
func (b *bench) replicate(leader raftyard.NodeID, to ...raftyard.NodeID) uint64 {
	term, l := b.r(leader).Term, b.log(leader)
	before := l.terms[len(l.terms)-1]
	l.terms = append(l.terms, term)
	l.term = term
	index := l.last()
	b.r(leader).Last = index
	for _, n := range to {
		m := message(raftpb.MsgApp, term, index-1)
		m.LogTerm, m.Commit = new(before), new(b.r(leader).Commit)
		m.Entries = []*raftpb.Entry{{Term: new(term), Index: new(index)}}
		b.send(leader, n, m)
		b.log(n).terms = append(b.log(n).terms[:index-b.log(n).start], term)
		b.r(n).Last, b.r(n).Leader = index, raftyard.ReplicaID(leader)
		b.step(n)
		b.send(n, leader, message(raftpb.MsgAppResp, term, index))
	}
	return index
}

// commit has a node learn that an index is committed, and apply a command of it.
func (b *bench) commit(node raftyard.NodeID, index uint64) {
	r := b.r(node)
	r.Commit, r.HandedTo = index, index
	b.step(node)
	if r.Applied < index {
		b.apply(node, index)
	}
}

func (b *bench) apply(node raftyard.NodeID, index uint64) {
	b.c.Applied(b.identity(b.r(node).ID), commands(index), results("done"))
	b.r(node).Applied = index
	b.step(node)
}

func commands(index uint64) []group.Command {
	return []group.Command{{Index: index, Data: []byte{byte(index)}}}
}

func results(text string) []group.Result { return []group.Result{{Data: []byte(text)}} }

// write has a leader commit an entry, which all apply.
func (b *bench) write(leader raftyard.NodeID) uint64 {
	index := b.replicate(leader, b.others(leader)...)
	b.commit(leader, index)
	for _, n := range b.others(leader) {
		b.commit(n, index)
	}
	return index
}

// restart crashes a node and opens it with what is durable: its state machine
// lives in memory and has a snapshot of what was applied.
func (b *bench) restart(node raftyard.NodeID, loss Loss) {
	b.c.Crashed(node, loss)
	b.reopen(node)
}

func (b *bench) reopen(node raftyard.NodeID) {
	r, l := b.r(node), b.log(node)
	if r.Serving {
		b.c.MachineOpened(b.identity(r.ID), 0)
		if r.Applied > 1 {
			b.c.Restored(b.identity(r.ID), r.Applied)
		}
	}
	r.Term, r.Vote, r.Role, r.Leader = l.term, l.vote, group.Follower, 0
	r.Commit = max(l.commit, r.Applied)
	r.HandedTo, r.Last = r.Applied, l.last()
	b.c.Opened(node, b.nodes[node])
}

// none fails the test if a rule was violated.
func (b *bench) none() {
	b.t.Helper()
	if err := b.c.Err(); err != nil {
		b.t.Fatalf("nothing is wrong, but: %v", err)
	}
}

// want fails the test unless the rule is the first that was violated.
func (b *bench) want(rule Rule) {
	b.t.Helper()
	switch vs := b.c.Violations(); {
	case len(vs) == 0:
		b.t.Fatalf("a violation of %v was not noticed", rule)
	case vs[0].Rule != rule:
		b.t.Fatalf("first violation is %v, want %v", vs[0], rule)
	default:
		b.t.Log(vs[0])
	}
}

// A breach is something that must be noticed.
type breach struct {
	name string
	rule Rule
	do   func(b *bench)
}

// try tries each breach on a cluster that is well.
func try(t *testing.T, breaches []breach) {
	t.Helper()
	for _, br := range breaches {
		t.Run(br.name, func(t *testing.T) {
			b := newBench(t, Config{})
			br.do(b)
			b.want(br.rule)
		})
	}
}
