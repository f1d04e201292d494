package group

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
)

// Each error is one reaction of the caller. [NotApplied] tells whether a request
// that ended with an error certainly had no effect.
var (
	// ErrOverloaded: a queue of the replica is full. Retry later, with back-off.
	ErrOverloaded = errors.New("group: overloaded")

	// ErrTooLarge: the command or change does not fit into one log entry.
	ErrTooLarge = errors.New("group: too large")

	// ErrDropped: the log position at which the command was proposed has been
	// decided, and it holds something else. The command will never be applied.
	ErrDropped = errors.New("group: dropped by a leader change")

	// ErrSkipped: the group has skipped the entry that carried the command. It certainly
	// has no effect.
	ErrSkipped = errors.New("group: skipped")

	// ErrUnknown: the command may or may not be applied, now or later.
	ErrUnknown = errors.New("group: outcome unknown")

	// ErrChangeInProgress: another membership change is under way, or may be.
	ErrChangeInProgress = errors.New("group: membership change in progress")

	// ErrEpochMismatch: the change was made for another epoch of the group.
	ErrEpochMismatch = errors.New("group: epoch mismatch")

	// ErrInvalidChange: the change breaks a rule, which the text names.
	ErrInvalidChange = errors.New("group: invalid membership change")

	// ErrInvalid: a descriptor, or something else that was handed in, breaks a
	// rule, which the text names.
	ErrInvalid = errors.New("group: invalid")

	// ErrTransfer: leadership cannot be handed to that replica, for the reason
	// that the text gives.
	ErrTransfer = errors.New("group: cannot transfer leadership")

	// ErrUninitialised: the replica still waits for its first snapshot.
	ErrUninitialised = errors.New("group: replica is not initialised")

	// ErrRemoved: the group has removed this replica.
	ErrRemoved = errors.New("group: replica was removed from its group")

	// ErrStopped: the replica was closed.
	ErrStopped = errors.New("group: replica is closed")

	// ErrDamaged: log, state and state machine of a replica do not fit together,
	// or less is there than the replica has acknowledged. It must not vote or
	// acknowledge anything again.
	ErrDamaged = errors.New("group: replica is damaged")

	// ErrMessage: a message was refused, for the reason that the text gives. It
	// had no effect.
	ErrMessage = errors.New("group: message refused")

	// ErrNotMember: a message was refused because its sender is no member of the
	// group as this replica knows it, or because this replica is none.
	ErrNotMember = errors.New("group: not a member")
)

// A NotLeaderError reports that another replica leads the group. The request had
// no effect.
type NotLeaderError struct {
	Group  raftyard.GroupID
	Leader raftyard.ReplicaID // zero while the leader is unknown
}

// Error names the leader, if one is known.
func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("group %d: not the leader, no leader known", e.Group)
	}
	return fmt.Sprintf("group %d: not the leader, replica %d leads", e.Group, e.Leader)
}

// NotApplied reports whether a request that ended with err certainly has not been
// applied and never will be. It is false for nil, for [ErrUnknown] and for errors
// that are not of this package.
func NotApplied(err error) bool {
	if _, ok := errors.AsType[*NotLeaderError](err); ok {
		return true
	}
	for _, target := range []error{
		ErrOverloaded, ErrTooLarge, ErrDropped, ErrChangeInProgress, ErrEpochMismatch,
		ErrInvalidChange, ErrInvalid, ErrTransfer, ErrUninitialised, ErrRemoved, ErrStopped,
		ErrSkipped,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// A FaultError is the value with which a replica panics when its log, its state or
// raft's own invariants are broken. It concerns this replica alone: the driver
// recovers it, never calls the replica again except for [Replica.Close], and goes
// on with the others.
type FaultError struct {
	Group   raftyard.GroupID
	Replica raftyard.ReplicaID
	Reason  string
	Err     error // the cause, or nil
}

// Error says which replica is broken, and why.
func (f *FaultError) Error() string {
	text := fmt.Sprintf("group %d: replica %d: %s", f.Group, f.Replica, f.Reason)
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (f *FaultError) Unwrap() error { return f.Err }
