package group

import (
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// reads are the linearizable reads that wait for their index. All that wait when a
// round begins share it; the others wait for the next.
//
//	Read ─▶ waiting ─▶ round ─▶ Output.Reads
//	           ▲          │ no answer within an election timeout,
//	           └──────────┘ or another leader
type reads struct {
	replica raftyard.ReplicaID
	boot    uint64
	limit   int

	waiting []any
	round   []any
	// rounds counts the rounds; asked is the question of the present one.
	rounds uint64
	asked  []byte
	age    int // of the present round, in ticks

	// held are the questions of followers that came before this leader knew what
	// is committed, one for each member.
	held map[uint64]*raftpb.Message
}

// Read asks for the index from which a linearizable read may be answered: that of
// everything that was committed when Read was called. Unless it is cancelled,
// exactly one of [Output.Reads] and [Output.Outcomes] follows. While no leader is
// known the read waits; the caller cancels it when its time is up. token must be
// comparable, and unique among what waits.
func (r *Replica) Read(token any) error {
	if err := r.usable(); err != nil {
		return err
	}
	if n := len(r.reads.waiting) + len(r.reads.round); n >= r.reads.limit {
		return fmt.Errorf("%w: %d reads wait", ErrOverloaded, n)
	}
	r.reads.waiting = append(r.reads.waiting, token)
	return nil
}

// tick ages the present round and gives it up when no answer comes: raft drops
// questions without saying so.
func (q *reads) tick(limit int) {
	if q.asked == nil {
		return
	}
	if q.age++; q.age >= limit {
		q.restart()
	}
}

// restart puts the readers of the present round before the others. Another round
// asks for all of them, with another question: the answer to this one may still
// come, and be too old for those who came later.
func (q *reads) restart() {
	if q.asked == nil {
		return
	}
	q.waiting = append(q.round, q.waiting...)
	q.round, q.asked, q.age = nil, nil, 0
}

// begin makes a round of all that wait and returns its question.
func (q *reads) begin() []byte {
	q.rounds++
	q.round, q.waiting = q.waiting, nil
	q.age = 0
	q.asked = binary.BigEndian.AppendUint64(nil, uint64(q.replica))
	q.asked = binary.BigEndian.AppendUint64(q.asked, q.boot)
	q.asked = binary.BigEndian.AppendUint64(q.asked, q.rounds)
	return q.asked
}

// finish ends the present round if one of the answers is to its question.
func (q *reads) finish(dst []ReadReady, answers []raft.ReadState) []ReadReady {
	for _, a := range answers {
		if q.asked == nil || !slices.Equal(a.RequestCtx, q.asked) {
			continue
		}
		for _, token := range q.round {
			dst = append(dst, ReadReady{Token: token, Index: a.Index})
		}
		q.round, q.asked, q.age = nil, nil, 0
	}
	return dst
}

func (q *reads) cancel(token any) bool {
	for _, list := range []*[]any{&q.round, &q.waiting} {
		if i := slices.Index(*list, token); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			return true
		}
	}
	return false
}

// drop ends all reads with err.
func (q *reads) drop(dst []Outcome, err error) []Outcome {
	q.restart()
	for _, token := range q.waiting {
		dst = append(dst, Outcome{Token: token, Err: err})
	}
	q.waiting, q.held = nil, nil
	return dst
}

// canRead reports whether a round can begin: raft would answer a leader that leads
// alone before the first entry of its term is committed, from a commit index that
// may be older than what it acknowledged before it was started again.
func (r *Replica) canRead() bool {
	if r.reads.asked != nil || len(r.reads.waiting) == 0 || r.usable() != nil {
		return false
	}
	if r.view.role == Leader {
		return r.view.ownTermCommitted()
	}
	return r.view.leader != 0
}

// canAnswer reports whether questions of followers were held that raft can take now.
func (r *Replica) canAnswer() bool {
	return len(r.reads.held) > 0 && r.view.ownTermCommitted()
}

// stepReads gives raft the questions that can be asked now.
func (r *Replica) stepReads() {
	if r.canAnswer() {
		for _, id := range sortedKeys(r.reads.held) {
			r.step(r.reads.held[id])
		}
		r.reads.held = nil
	}
	if r.canRead() {
		r.rn.ReadIndex(r.reads.begin())
	}
}

// stepReadIndex takes a follower's question for the commit index.
func (r *Replica) stepReadIndex(m *raftpb.Message) error {
	if len(m.GetEntries()) != 1 {
		return refuse(m, "%d questions, want one", len(m.GetEntries()))
	}
	if n := len(m.GetEntries()[0].GetData()); n == 0 || n > maxContext {
		return refuse(m, "question of %d bytes", n)
	}
	if !r.isMember(m.GetFrom()) {
		return fmt.Errorf("%w: %s from replica %d", ErrNotMember, m.GetType(), m.GetFrom())
	}
	switch {
	case r.view.role != Leader:
		// raft would send it on, in circles if two followers take each other
		// for the leader. Whoever asked asks again.
		return nil
	case !r.view.ownTermCommitted():
		if r.reads.held == nil {
			r.reads.held = make(map[uint64]*raftpb.Message)
		}
		r.reads.held[m.GetFrom()] = m
		return nil
	default:
		return r.rn.Step(m)
	}
}

func (r *Replica) stepReadIndexResp(m *raftpb.Message) error {
	if len(m.GetEntries()) != 1 || len(m.GetEntries()[0].GetData()) > maxContext {
		return refuse(m, "%d answers, want one", len(m.GetEntries()))
	}
	if !r.isMember(m.GetFrom()) {
		return fmt.Errorf("%w: %s from replica %d", ErrNotMember, m.GetType(), m.GetFrom())
	}
	return r.rn.Step(m)
}

// noteReadMark remembers how far the heartbeats that leave ask.
func (v *view) noteReadMark(msgs []*raftpb.Message) {
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgHeartbeat && len(m.GetContext()) == readMarkSize {
			v.readMark = max(v.readMark, readMark(m.GetContext()))
		}
	}
}

func readMark(ctx []byte) uint64 { return binary.LittleEndian.Uint64(ctx) }
