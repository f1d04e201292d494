package group

import (
	"fmt"
	"reflect"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/internal/mutant"
)

// A Proposal is a command on its way into the log.
type Proposal struct {
	ID   CommandID
	Data []byte

	// Token finds the proposer again: it comes back in the proposal's outcome. It
	// must be comparable, and unique among what waits.
	Token any

	// skip is the data of an entry that has another one skipped; nil: it is a command.
	skip []byte
}

// size is what the proposal counts in the queue.
func (p *Proposal) size() int64 {
	if p.skip != nil {
		return 0
	}
	return int64(commandSize(len(p.Data)))
}

// proposals are the commands that this replica has taken as the leader.
//
//	Propose ─▶ queue ─▶ a batch in the log ─▶ committed: Output.Apply
//	             │                │
//	             │                ├─▶ another entry there: ErrDropped
//	             │                └─▶ passed by a snapshot: ErrUnknown
//	             └─▶ leadership lost: *NotLeaderError
type proposals struct {
	limits proposalLimits

	queue []Proposal
	bytes int64 // of the queue, encoded
	taken int   // how many went into the last batch: so much room the next queue is given

	// inflight are the batches in the log that are not decided, by index.
	inflight []batch

	// refused: raft took no proposal and would not now; see Ready.
	refused bool
}

// A batch is an entry that this replica has proposed.
type batch struct {
	index, term uint64
	tokens      []any
}

// Propose queues a command. An error means that it was refused and will never be
// applied: [ErrTooLarge], [ErrOverloaded], a *[NotLeaderError], or the replica
// takes no part in its group. Otherwise exactly one outcome follows: the command
// with its token in [Output.Apply], or an error in [Output.Outcomes].
//
// Commands that wait together enter the log as one entry; a command that waits
// alone enters at the next step. p.Data must not be modified afterwards.
func (r *Replica) Propose(p Proposal) error {
	if err := r.mustLead(); err != nil {
		return err
	}
	q := &r.proposals
	size := int64(commandSize(len(p.Data)))
	if total := int64(len(p.Data)) + int64(batchOverhead); total > q.limits.MaxEntryBytes {
		return fmt.Errorf("%w: a command of %d bytes, want at most %d",
			ErrTooLarge, len(p.Data), q.limits.MaxEntryBytes-int64(batchOverhead))
	}
	if len(q.queue) >= q.limits.MaxQueuedProposals || q.bytes+size > q.limits.MaxQueuedBytes {
		return fmt.Errorf("%w: %d proposals of %d bytes wait", ErrOverloaded, len(q.queue), q.bytes)
	}
	if q.queue == nil {
		q.queue = make([]Proposal, 0, max(q.taken, 1))
	}
	q.queue = append(q.queue, p)
	q.bytes += size
	return nil
}

// MaxCommandBytes returns the size of the largest command that fits into an entry.
func (l Limits) MaxCommandBytes() int64 {
	return l.withDefaults().MaxEntryBytes - int64(batchOverhead)
}

// Cancel takes back a proposal, a membership change or a read that has not left
// the replica's queues. True: it is gone, no outcome follows, it had and will have
// no effect. False: it was not found, or is in the log already, and its outcome
// follows as always.
func (r *Replica) Cancel(token any) bool {
	if token == nil || !reflect.ValueOf(token).Comparable() || r.closed {
		return false
	}
	if r.proposals.cancel(token) || r.reads.cancel(token) {
		return true
	}
	if c := r.change; c != nil && !c.logged && c.token == token {
		r.change = nil
		return true
	}
	return false
}

func (q *proposals) cancel(token any) bool {
	i := slices.IndexFunc(q.queue, func(p Proposal) bool { return p.Token == token })
	if i < 0 {
		return false
	}
	q.bytes -= q.queue[i].size()
	q.queue = slices.Delete(q.queue, i, i+1)
	return true
}

// canFlush reports whether a batch of the queue may enter the log now.
func (r *Replica) canFlush() bool {
	q := &r.proposals
	return len(q.queue) > 0 && len(q.inflight) < q.limits.MaxInflightBatches &&
		!q.refused && r.canPropose()
}

// canPropose reports whether raft would take a proposal, as far as is known.
func (r *Replica) canPropose() bool {
	if r.view.role != Leader || r.removed || r.closed {
		return false
	}
	if r.view.transferring {
		r.view.transferring = r.rn.BasicStatus().LeadTransferee != 0
	}
	return !r.view.transferring
}

// flush gives raft as many batches as may be in flight and returns how many. They are the
// last ones in flight, and their entries the last ones of the Ready that must follow at once.
func (r *Replica) flush() (batches int) {
	q := &r.proposals
	for r.canFlush() {
		n, size := q.nextBatch()
		data, tokens := q.queue[0].skip, make([]any, n)
		if data == nil {
			data = appendBatchHeader(make([]byte, 0, size), n)
			for _, p := range q.queue[:n] {
				data = appendCommand(data, p.ID, p.Data)
			}
		}
		for i, p := range q.queue[:n] {
			tokens[i] = p.Token
		}
		if err := r.rn.Propose(data); err != nil {
			// Not the leader any more, which this Ready tells; or the tail of the
			// log is too long, which an Advance may change. Nothing is lost.
			q.refused = true
			break
		}
		q.take(n)
		q.inflight = append(q.inflight, batch{tokens: tokens})
		batches++
	}
	return batches
}

// nextBatch returns how many commands of the queue the next entry takes, and the
// most bytes that they need.
func (q *proposals) nextBatch() (n, size int) {
	size = batchOverhead
	if q.queue[0].skip != nil {
		return 1, size
	}
	for n < len(q.queue) && n < q.limits.MaxBatchCommands {
		next := size + commandSize(len(q.queue[n].Data))
		if n > 0 && (int64(next) > q.limits.MaxEntryBytes || q.queue[n].skip != nil) {
			break
		}
		size = next
		n++
	}
	return n, size
}

// take removes the first n proposals from the queue.
func (q *proposals) take(n int) {
	for i, p := range q.queue[:n] {
		q.bytes -= p.size()
		q.queue[i] = Proposal{}
	}
	if q.queue = q.queue[n:]; len(q.queue) == 0 {
		q.queue = nil
	}
	q.taken = n
}

// failQueued ends what is not in the log yet.
func (r *Replica) failQueued(err error) {
	for _, p := range r.proposals.queue {
		r.outcomes = append(r.outcomes, Outcome{Token: p.Token, Err: err})
	}
	r.proposals.queue, r.proposals.bytes = nil, 0
	if c := r.change; c != nil && !c.logged {
		r.outcomes = append(r.outcomes, Outcome{Token: c.token, Err: err})
		r.change = nil
	}
}

// decide returns the tokens of a committed entry's commands if this replica has
// proposed it. A batch that was proposed for the same index in another term has
// lost it for good. The batches are in the order in which they were proposed, which
// is that of their indexes only within a term.
func (q *proposals) decide(e *raftpb.Entry, outcomes *[]Outcome) (tokens []any) {
	q.inflight = slices.DeleteFunc(q.inflight, func(b batch) bool {
		switch {
		case b.index != e.GetIndex():
			return false
		case b.term == e.GetTerm():
			tokens = b.tokens
		case mutant.On(mutant.AnswerOther):
			outcomeAll(outcomes, b.tokens, nil)
		default:
			outcomeAll(outcomes, b.tokens, ErrDropped)
		}
		return true
	})
	return tokens
}

// pass ends the batches up to index with an unknown outcome: a snapshot holds
// their effect, if they had one.
func (q *proposals) pass(index uint64, outcomes *[]Outcome) {
	q.inflight = slices.DeleteFunc(q.inflight, func(b batch) bool {
		if b.index > index {
			return false
		}
		outcomeAll(outcomes, b.tokens, ErrUnknown)
		return true
	})
}

func outcomeAll(outcomes *[]Outcome, tokens []any, err error) {
	for _, token := range tokens {
		*outcomes = append(*outcomes, Outcome{Token: token, Err: err})
	}
}

// abandon ends all batches in the log with an unknown outcome.
func (q *proposals) abandon(outcomes *[]Outcome) { q.pass(1<<64-1, outcomes) }
