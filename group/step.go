package group

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard"
)

// maxContext bounds a message's Context and the question of a MsgReadIndex.
const maxContext = 64

// readMarkSize is the length of a heartbeat's context, a position in the leader's
// queue of reads.
const readMarkSize = 8

func refuse(m *raftpb.Message, format string, args ...any) error {
	return fmt.Errorf("%w: %s from %d: "+format,
		append([]any{ErrMessage, m.GetType(), m.GetFrom()}, args...)...)
}

// Step takes a message from another replica of the group. It checks everything on
// which raft would panic or go wrong. An error means that the message had no
// effect: it wraps [ErrMessage] or [ErrNotMember] for a message that is wrong or
// comes from the wrong replica, and [ErrDamaged] if it shows that this replica has
// lost what it once acknowledged.
//
// Messages that would only be wrong here, such as proposals and requests to
// transfer leadership, are refused too: the driver sends those in its own way.
func (r *Replica) Step(m *raftpb.Message) error {
	if r.closed {
		return ErrStopped
	}
	if r.removed {
		return ErrRemoved
	}
	if err := r.checkAddresses(m); err != nil {
		return err
	}
	if err := r.dispatch(m); err != nil {
		return err
	}
	r.remember(m)
	return nil
}

// dispatch hands a message on by its type.
func (r *Replica) dispatch(m *raftpb.Message) error {
	switch m.GetType() {
	case raftpb.MsgApp:
		return r.stepAppend(m)
	case raftpb.MsgSnap:
		return r.stepSnapshot(m)
	case raftpb.MsgHeartbeat:
		return r.stepHeartbeat(m)
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return r.stepResponse(m)
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		return r.stepElection(m)
	case raftpb.MsgReadIndex:
		return r.stepReadIndex(m)
	case raftpb.MsgReadIndexResp:
		return r.stepReadIndexResp(m)
	default:
		return refuse(m, "type not accepted")
	}
}

// checkAddresses checks what holds for messages of every type.
func (r *Replica) checkAddresses(m *raftpb.Message) error {
	self := uint64(r.cfg.Replica)
	switch {
	case m == nil:
		return fmt.Errorf("%w: nil", ErrMessage)
	case m.GetTo() != self:
		return refuse(m, "it is for replica %d", m.GetTo())
	case m.GetFrom() == 0 || m.GetFrom() == self || raftyard.ReplicaID(m.GetFrom()) > maxReplica:
		return refuse(m, "no such sender")
	case len(m.GetContext()) > maxContext:
		return refuse(m, "context of %d bytes, want at most %d", len(m.GetContext()), maxContext)
	case len(m.GetResponses()) > 0:
		return refuse(m, "it carries responses")
	case (m.GetTerm() == 0) != (m.GetType() == raftpb.MsgReadIndex):
		// raft takes a message without a term for one of its own.
		return refuse(m, "term %d", m.GetTerm())
	default:
		return nil
	}
}

// maxReplica is the greatest id that raft does not use for itself.
const maxReplica = raftyard.ReplicaID(1<<64 - 3)

// checkLeader checks that the sender may be the leader of the message's term.
func (r *Replica) checkLeader(m *raftpb.Message) error {
	v := &r.view
	if m.GetTerm() == v.hard.term && v.leader != 0 && uint64(v.leader) != m.GetFrom() {
		return refuse(m, "replica %d leads term %d", v.leader, m.GetTerm())
	}
	return nil
}

// stepElection takes part in an election. A replica without a state does not: it cannot
// know whether it is new, or has lost what it has promised with a former directory. No
// group needs its vote, since nobody becomes a voter before it has a state.
func (r *Replica) stepElection(m *raftpb.Message) error {
	if r.state.IsZero() {
		return fmt.Errorf("%w: %s from replica %d", ErrUninitialised, m.GetType(), m.GetFrom())
	}
	if m.GetType() == raftpb.MsgTimeoutNow && (r.ready || r.rn.HasReady()) {
		r.takeover = m
		return nil
	}
	return r.rn.Step(m)
}

// takeOver stands for election if the leader has wished so and all that came before the
// wish is handed out. Raft forgets a wish that comes while a change of members is
// committed and not applied; the leader would take no proposal until an election
// timeout has passed. In a later term raft ignores it.
func (r *Replica) takeOver() {
	m := r.takeover
	if m == nil || r.removed || r.rn.HasReady() {
		return
	}
	r.takeover = nil
	if err := r.rn.Step(m); err != nil {
		r.fault(err, "raft refused a %s that Step did not", m.GetType())
	}
}

func (r *Replica) stepAppend(m *raftpb.Message) error {
	if err := r.checkLeader(m); err != nil {
		return err
	}
	if r.state.IsZero() && m.GetIndex() == 0 {
		// raft would take it: before an empty log there is nothing that could
		// differ. But the log of a group begins with a snapshot.
		return refuse(m, "it begins a log without a state")
	}
	last, term := m.GetIndex(), m.GetLogTerm()
	if term > m.GetTerm() {
		return refuse(m, "previous entry of term %d in term %d", term, m.GetTerm())
	}
	for _, e := range m.GetEntries() {
		if e.GetIndex() != last+1 || e.GetIndex() == 0 {
			return refuse(m, "entry %d follows entry %d", e.GetIndex(), last)
		}
		if e.GetTerm() < term || e.GetTerm() > m.GetTerm() || e.GetTerm() == 0 {
			return refuse(m, "entry %d of term %d follows term %d, in term %d",
				e.GetIndex(), e.GetTerm(), term, m.GetTerm())
		}
		if err := checkEntry(e); err != nil {
			return refuse(m, "%w", err)
		}
		last, term = e.GetIndex(), e.GetTerm()
	}
	if err := r.checkCommitted(m); err != nil {
		return err
	}
	if len(m.GetEntries()) > 0 {
		r.view.safeLast = min(r.view.safeLast, last)
	}
	return r.rn.Step(m)
}

// checkCommitted compares what a leader says of entries that are committed here with
// the log. A leader has every committed entry (Raft, section 5.4), so a difference
// proves that one of the two has lost what it had acknowledged. Messages of deposed
// leaders prove nothing; raft ignores them.
func (r *Replica) checkCommitted(m *raftpb.Message) error {
	if m.GetTerm() < r.view.hard.term {
		return nil
	}
	check := func(index, term uint64) error {
		if index == 0 || index > r.view.settled {
			return nil
		}
		own, err := r.cfg.Storage.Term(index)
		if err != nil || own == term {
			return nil //nolint:nilerr // cut off already, or as it should be
		}
		return damaged("replica %d has committed entry %d in term %d, the leader has it in term %d",
			r.cfg.Replica, index, own, term)
	}
	if err := check(m.GetIndex(), m.GetLogTerm()); err != nil {
		return err
	}
	for _, e := range m.GetEntries() {
		if err := check(e.GetIndex(), e.GetTerm()); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry checks an entry that is about to enter the log. What it refuses could
// not be applied later.
func checkEntry(e *raftpb.Entry) error {
	if e.GetType() == raftpb.EntryNormal {
		if isSkip(e) {
			_, err := decodeSkip(e)
			return err
		}
		if data := e.GetData(); len(data) > 0 && data[0] != batchVersion {
			return fmt.Errorf("entry %d: batch of version %d", e.GetIndex(), data[0])
		}
		return nil
	}
	_, err := decodeConfChange(e)
	return err
}

func (r *Replica) stepSnapshot(m *raftpb.Message) error {
	if err := r.checkLeader(m); err != nil {
		return err
	}
	if len(m.GetContext()) > 0 {
		return refuse(m, "it is sent aside from raft") // and not by a leader
	}
	snap := m.GetSnapshot()
	manifest, err := checkSnapshot(snap)
	if err != nil {
		return refuse(m, "%w", err)
	}
	index, term := snap.GetMetadata().GetIndex(), snap.GetMetadata().GetTerm()
	if term > m.GetTerm() {
		return refuse(m, "snapshot of term %d in term %d", term, m.GetTerm())
	}
	d := manifest.State.Descriptor
	if d.Group != r.cfg.Group || d.Incarnation != r.cfg.Incarnation {
		return refuse(m, "snapshot of group %d, incarnation %s", d.Group, d.Incarnation)
	}
	self, ok := d.Member(r.cfg.Replica)
	if !ok {
		return fmt.Errorf("%w: replica %d is not in the snapshot's epoch %d",
			ErrNotMember, r.cfg.Replica, d.Epoch)
	}
	if self.Node != r.cfg.Node {
		return refuse(m, "snapshot puts replica %d on node %d", self.ID, self.Node)
	}
	if !r.cfg.owns(self) {
		return fmt.Errorf("%w: replica %d was given to data directory %s, this is %s",
			ErrNotMember, self.ID, self.Store, r.cfg.Store)
	}
	if index > r.view.hard.commit && d.Epoch < r.state.Descriptor.Epoch {
		return refuse(m, "snapshot goes back from epoch %d to %d",
			r.state.Descriptor.Epoch, d.Epoch)
	}
	r.view.safeLast = min(r.view.safeLast, index)
	return r.rn.Step(m)
}

// stepHeartbeat makes sure that the commit index lies within the log. A leader
// sends none beyond what this replica has acknowledged.
func (r *Replica) stepHeartbeat(m *raftpb.Message) error {
	if err := r.checkLeader(m); err != nil {
		return err
	}
	if n := len(m.GetContext()); n != 0 && n != readMarkSize {
		return refuse(m, "context of %d bytes", n)
	}
	commit := m.GetCommit()
	switch {
	case r.state.IsZero() && commit > 0:
		// The leader counts on a replica that had this id in a directory that is lost.
		return refuse(m, "it counts on entry %d of a replica without a state", commit)
	case r.state.IsZero():
		// It is answered, so that the leader sends a snapshot. But who may have followed
		// a later leader, and forgotten it, must not confirm that this one still leads.
		return r.rn.Step(heartbeat(m, 0, nil))
	case commit > r.view.last:
		return damaged("replica %d counts on entry %d, the log ends at %d",
			m.GetFrom(), commit, r.view.last)
	case commit > r.view.safeLast:
		// The log may have been cut since. What is committed never is, so this is
		// an old leader's message or a wrong one; a lower index is always true.
		m = heartbeat(m, r.view.safeLast, m.GetContext())
	}
	return r.rn.Step(m)
}

// heartbeat returns m with another commit index and context.
func heartbeat(m *raftpb.Message, commit uint64, context []byte) *raftpb.Message {
	return &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term,
		Commit: new(commit), Context: context,
	}
}

func (r *Replica) stepResponse(m *raftpb.Message) error {
	if !r.isMember(m.GetFrom()) {
		return fmt.Errorf("%w: %s from replica %d", ErrNotMember, m.GetType(), m.GetFrom())
	}
	current := m.GetTerm() == r.view.hard.term && r.view.role == Leader
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if current && !m.GetReject() && m.GetIndex() > r.view.last {
			return refuse(m, "it acknowledges %d, the log ends at %d", m.GetIndex(), r.view.last)
		}
		if current {
			r.speaks.hear(m)
		}
	case raftpb.MsgHeartbeatResp:
		n := len(m.GetContext())
		if n != 0 && n != readMarkSize {
			return refuse(m, "context of %d bytes", n)
		}
		if n != 0 && current && readMark(m.GetContext()) > r.view.readMark {
			return refuse(m, "it answers a heartbeat that was not sent")
		}
	default:
	}
	return r.rn.Step(m)
}

func (r *Replica) isMember(id uint64) bool {
	_, ok := r.state.Descriptor.Member(raftyard.ReplicaID(id))
	return ok
}
