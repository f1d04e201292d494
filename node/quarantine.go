package node

import (
	"errors"
	"slices"
	"time"

	"github.com/raftyard/raftyard/group"
)

// A Quarantine says that a replica was taken out of service for a fault of its own, and
// why. Nothing else on the node is concerned.
type Quarantine struct {
	Reason QuarantineReason `json:"reason"`
	// Detail is the reason for people.
	Detail string `json:"detail"`
	// Index is the index in the log that the fault is about, and Term the term of the
	// entry there; zero: none, or not known.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`
	// Since is when it was taken out of service, by the node's clock.
	Since time.Time `json:"since"`
	// Votes: the log is sound, so that the replica goes on to keep it, acknowledges and
	// votes, and only its state machine stands still. Otherwise the replica is silent.
	Votes bool `json:"votes,omitempty"`
	// Events are the last things that happened to the replica, the oldest first.
	Events []string `json:"events,omitempty"`
}

// A QuarantineReason is a stable word for why a replica is in quarantine.
type QuarantineReason string

// The reasons.
const (
	// DamagedLog: the log has lost or changed something, so that the replica must neither
	// vote nor acknowledge.
	DamagedLog QuarantineReason = "damaged_log"
	// DamagedState: what the state machine has stored is damaged, or is not what the
	// group has decided. The log is sound.
	DamagedState QuarantineReason = "damaged_state"
	// MachineFailed: the state machine returned an error.
	MachineFailed QuarantineReason = "machine_failed"
	// MachinePanicked: the state machine panicked.
	MachinePanicked QuarantineReason = "machine_panicked"
	// RaftPanicked: a panic in what drives the replica: an invariant is broken.
	RaftPanicked QuarantineReason = "raft_panicked"
	// PoisonEntry: a committed entry cannot be understood.
	PoisonEntry QuarantineReason = "poison_entry"
	// RefusedWrite: the log store refused what the replica wanted to write.
	RefusedWrite QuarantineReason = "refused_write"
)

// QuarantineReasons returns all reasons, in a fixed order.
func QuarantineReasons() []QuarantineReason {
	return []QuarantineReason{
		DamagedLog, DamagedState, MachineFailed, MachinePanicked, RaftPanicked, PoisonEntry,
		RefusedWrite,
	}
}

// damaged reports whether something that was stored is lost.
func (q QuarantineReason) damaged() bool { return q == DamagedLog || q == DamagedState }

// A faultError is why a replica is in quarantine. It is [ErrFaulty].
type faultError struct {
	reason QuarantineReason
	index  uint64 // in the log; zero: none, or not known
	term   uint64
	held   bool // it is not known yet whether the entry is skipped
	err    error
}

// faulty returns err as the reason of a quarantine.
func faulty(reason QuarantineReason, err error) error {
	return &faultError{reason: reason, err: err}
}

// faultyAt is faulty for a fault that is about one entry of the log.
func faultyAt(reason QuarantineReason, index, term uint64, err error) error {
	return &faultError{reason: reason, index: index, term: term, err: err}
}

// machineFault returns an error of a state machine as the reason of a quarantine.
func machineFault(index, term uint64, err error) error {
	if _, known := errors.AsType[*faultError](err); known {
		return err
	}
	reason := MachineFailed
	if _, ok := errors.AsType[*panicError](err); ok {
		reason = MachinePanicked
	}
	if errors.Is(err, errRotten) {
		reason = DamagedState
	}
	return faultyAt(reason, index, term, err)
}

func (e *faultError) Error() string { return ErrFaulty.Error() + ": " + e.err.Error() }

// Unwrap returns ErrFaulty and the cause.
func (e *faultError) Unwrap() []error { return []error{ErrFaulty, e.err} }

// quarantineOf describes the fault that err is.
func quarantineOf(err error) *Quarantine {
	q := &Quarantine{Reason: RaftPanicked, Detail: err.Error()}
	if errors.Is(err, group.ErrDamaged) {
		q.Reason = DamagedLog
	}
	if f, ok := errors.AsType[*faultError](err); ok {
		q.Reason, q.Index, q.Term = f.reason, f.index, f.term
	}
	return q
}

// quarantine describes why the replica is in quarantine; nil: it is not.
func (r *replica) quarantine() *Quarantine {
	err := r.fault()
	if err == nil {
		return nil
	}
	q := quarantineOf(err)
	q.Since, q.Events = r.events.told()
	q.Votes = r.serving()
	return q
}

// countQuarantined returns how many replicas are in quarantine, by reason.
func countQuarantined(rs []*replica) map[string]uint64 {
	count := make(map[string]uint64)
	for _, reason := range QuarantineReasons() {
		count[string(reason)] = 0
	}
	for _, r := range rs {
		if err := r.fault(); err != nil {
			count[string(quarantineOf(err).Reason)]++
		}
	}
	return count
}

// addFault adds the problems that replicas in quarantine are.
func (s *GroupSummary) addFault(reasons []QuarantineReason) {
	s.addProblem(len(reasons) > 0, "faulty")
	s.addProblem(slices.ContainsFunc(reasons, QuarantineReason.damaged), "damaged")
}

// loadFault returns the error with which a replica could not be loaded as the reason of
// its quarantine.
func loadFault(err error) error {
	if errors.Is(err, group.ErrDamaged) {
		return faulty(DamagedLog, err)
	}
	return machineFault(0, 0, err)
}
