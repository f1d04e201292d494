package group

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// LearnCommitted tells the replica that the entry at index, of that term, is
// committed, on the word of a replica that has applied it. It does nothing if the
// replica knows, or does not have the entry.
//
// In raft a leader says what is committed, and that is not enough where members
// leave. Who has applied a change that removes it is gone; who stays may have the
// change in its log, and not know that it is committed, because the leader has
// crashed before it could say so, or was among those who are gone. Then it counts
// the members from before the change, and waits for the votes of replicas that are
// no more. Those tell it with this.
//
// It is safe: an entry of the same index and term is the same entry, and so is
// everything before it (log matching: Ongaro, Consensus: Bridging Theory and Practice,
// section 3.5); what is committed once is for ever.
func (r *Replica) LearnCommitted(index, term uint64, from raftyard.ReplicaID) error {
	if err := r.usable(); err != nil {
		return err
	}
	v := &r.view
	if index <= v.hard.commit || index > v.safeLast || v.role == Leader || v.leader != 0 {
		return nil // known, unknown to us, or a leader will tell
	}
	if from == 0 || from == r.cfg.Replica || from > maxReplica {
		return fmt.Errorf("%w: replica %d cannot vouch for a commit", ErrMessage, from)
	}
	have, err := r.log.Term(index)
	if err != nil || have != term {
		return nil //nolint:nilerr // it is not in the log, or not yet: nothing can be done with it
	}
	// raft takes a commit index from a leader only: from this one, for a moment.
	if err := r.rn.Step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(),
		To:   new(uint64(r.cfg.Replica)), From: new(uint64(from)),
		Term: new(r.rn.BasicStatus().GetTerm()), Commit: new(index),
	}); err != nil {
		return fmt.Errorf("group: commit index %d: %w", index, err)
	}
	return r.rn.ForgetLeader()
}
