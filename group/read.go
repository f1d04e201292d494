package group

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// reads are the linearizable reads that wait for their index. All that wait when a
// question is asked share it; the others wait for the next one.
//
//	Read ─▶ waiting ─▶ asking ─▶ Output.Reads
//	                   ▲    │ no answer within an election timeout,
//	                   └────┘ or another leader: another question, for all of them
//
// An answer that comes after another question has been asked is as good for those for whom
// its own question was. Where answers take longer than an election timeout, because the
// network is slow or everybody is busy, no other ever comes.
type reads struct {
	replica raftyard.ReplicaID
	boot    uint64
	limit   int

	waiting []any
	asking  []asker
	// rounds counts the questions; open: the latest of them waits for its answer.
	rounds uint64
	open   bool
	age    int // of the latest question, in ticks

	// held are the questions of followers that came before this leader knew what
	// is committed, one for each member.
	held map[uint64]*raftpb.Message
}

// An asker is a read for which questions were asked, the first of them in a given round.
type asker struct {
	token any
	since uint64
}

// count returns how many reads wait.
func (q *reads) count() int { return len(q.waiting) + len(q.asking) }

// Read asks for the index from which a linearizable read may be answered: that of
// everything that was committed when Read was called. Unless it is cancelled,
// exactly one of [Output.Reads] and [Output.Outcomes] follows. While no leader is
// known the read waits; the caller cancels it when its time is up. token must be
// comparable, and unique among what waits.
func (r *Replica) Read(token any) error {
	if err := r.usable(); err != nil {
		return err
	}
	if n := r.reads.count(); n >= r.reads.limit {
		return fmt.Errorf("%w: %d reads wait", ErrOverloaded, n)
	}
	r.reads.waiting = append(r.reads.waiting, token)
	return nil
}

// tick ages the latest question and gives it up when no answer comes: raft drops
// questions without saying so.
func (q *reads) tick(limit int) {
	if !q.open {
		return
	}
	if q.age++; q.age >= limit {
		q.restart()
	}
}

// restart has another question asked, for all who wait. The answer to the one before may
// still come, and be too old for those who came later.
func (q *reads) restart() { q.open, q.age = false, 0 }

// begin returns another question, for all that wait.
func (q *reads) begin() []byte {
	q.rounds++
	q.asking = slices.Grow(q.asking, len(q.waiting))
	for _, token := range q.waiting {
		q.asking = append(q.asking, asker{token: token, since: q.rounds})
	}
	q.waiting = nil
	q.open, q.age = true, 0
	b := q.question(q.rounds)
	return b[:]
}

// questionSize is the length of a question: replica, boot, round.
const questionSize = 3 * 8

// question returns the question of a round. No other one is like it, also not one of another
// start of the replica.
func (q *reads) question(round uint64) (b [questionSize]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(q.replica))
	binary.BigEndian.PutUint64(b[8:], q.boot)
	binary.BigEndian.PutUint64(b[16:], round)
	return b
}

// roundOf returns in which round a question was asked, zero if it is not one of these.
func (q *reads) roundOf(question []byte) uint64 {
	if len(question) != questionSize {
		return 0
	}
	round := binary.BigEndian.Uint64(question[16:])
	if b := q.question(round); round > q.rounds || !bytes.Equal(question, b[:]) {
		return 0
	}
	return round
}

// finish ends the reads to whose questions there are answers.
func (q *reads) finish(dst []ReadReady, answers []raft.ReadState) []ReadReady {
	for _, a := range answers {
		round := q.roundOf(a.RequestCtx)
		q.asking = slices.DeleteFunc(q.asking, func(k asker) bool {
			answered := k.since <= round
			if answered {
				dst = append(dst, ReadReady{Token: k.token, Index: a.Index})
			}
			return answered
		})
	}
	q.settle()
	return dst
}

// settle closes the latest question when nobody waits for its answer any more: those who
// wait for the next one need not.
func (q *reads) settle() {
	if len(q.asking) == 0 {
		q.restart()
	}
}

func (q *reads) cancel(token any) bool {
	if i := slices.Index(q.waiting, token); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return true
	}
	i := slices.IndexFunc(q.asking, func(k asker) bool { return k.token == token })
	if i < 0 {
		return false
	}
	q.asking = slices.Delete(q.asking, i, i+1)
	q.settle()
	return true
}

// drop ends all reads with err.
func (q *reads) drop(dst []Outcome, err error) []Outcome {
	for _, k := range q.asking {
		dst = append(dst, Outcome{Token: k.token, Err: err})
	}
	for _, token := range q.waiting {
		dst = append(dst, Outcome{Token: token, Err: err})
	}
	q.waiting, q.asking, q.held = nil, nil, nil
	q.restart()
	return dst
}

// canRead reports whether a question can be asked: raft would answer a leader that leads
// alone before the first entry of its term is committed, from a commit index that
// may be older than what it acknowledged before it was started again.
func (r *Replica) canRead() bool {
	if r.reads.open || r.reads.count() == 0 || r.usable() != nil {
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
