package node

import (
	"errors"
	"fmt"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/group"
)

// Each error here is one reaction of the caller. [NotApplied] tells whether a
// request that ended with an error certainly had no effect.
var (
	// ErrUnknownOutcome: the command may or may not be applied, now or later.
	// Retry only what is idempotent, or read back first.
	ErrUnknownOutcome = errors.New("outcome unknown")

	// ErrNoLeader: the group had no leader within the request's deadline. The
	// request had no effect.
	ErrNoLeader = errors.New("no leader")

	// ErrGroupNotFound: the registry has no such group.
	ErrGroupNotFound = errors.New("group not found")

	// ErrNodeNotFound: the registry has no such node.
	ErrNodeNotFound = errors.New("node not found")

	// ErrNoReplica: this node has no replica of the group, or none with state.
	ErrNoReplica = errors.New("no replica of the group on this node")

	// ErrGroupExists: a group with the id exists with another spec.
	ErrGroupExists = errors.New("group exists with another spec")

	// ErrEpochMismatch: the group is at another epoch than the caller expects.
	ErrEpochMismatch = errors.New("epoch mismatch")

	// ErrChangeInProgress: another change of the group's members is under way.
	ErrChangeInProgress = errors.New("membership change in progress")

	// ErrNotReached: a change of members, or a deletion, is decided, and was not reached
	// within the deadline; it goes on by itself.
	ErrNotReached = errors.New("not reached yet")

	// ErrNoQuorum: a majority of the group's voters cannot be reached, or not every node
	// where all are needed, so that the change could not be made safely. It had no effect.
	ErrNoQuorum = errors.New("no quorum")

	// ErrUnhealthy: the members that are asked for would have no majority that lives,
	// or are on nodes that were removed, are leaving, or are short of disk space. The
	// request had no effect.
	ErrUnhealthy = errors.New("unhealthy members")

	// ErrNodeInUse: the node still holds members of groups, which the text counts.
	ErrNodeInUse = errors.New("node in use")

	// ErrNodeRemoved: the node was taken out of the cluster; its id is spent.
	ErrNodeRemoved = errors.New("node removed")

	// ErrNoState: the group is led by a replica that has its log and not its state,
	// and none that has both could take over. The request had no effect.
	ErrNoState = errors.New("no state")

	// ErrOverloaded: a queue is full; the request was not queued. Retry later,
	// with back-off.
	ErrOverloaded = errors.New("overloaded")

	// ErrTooLarge: the command is over a size limit, which the text names.
	ErrTooLarge = errors.New("too large")

	// ErrInvalid: the request itself is wrong; the text says what.
	ErrInvalid = errors.New("invalid request")

	// ErrTransfer: leadership could not be handed over; the text says why.
	ErrTransfer = errors.New("leadership transfer failed")

	// ErrFaulty: the replica or its state machine is stopped; the text says why.
	ErrFaulty = errors.New("replica is stopped")

	// ErrUnsupported: the group's state machine cannot do what was asked.
	ErrUnsupported = errors.New("not supported by the state machine")

	// ErrDiskFull: too little disk space is left to take writes.
	ErrDiskFull = errors.New("disk full")

	// ErrNotReady: the node has not read the registry since its start, so it
	// cannot tell which groups there are.
	ErrNotReady = errors.New("node is not ready")

	// ErrDropped: another leader's entry took the command's place in the log. The
	// command certainly has no effect.
	ErrDropped = errors.New("dropped by a change of leader")

	// ErrSkipped: the group has skipped the entry with the command, because all its state
	// machines failed at it. The command certainly has no effect.
	ErrSkipped = errors.New("skipped")

	// ErrTimeout: the deadline passed before the request had any effect.
	ErrTimeout = errors.New("out of time")

	// ErrQueryFailed: the state machine could not answer a query.
	ErrQueryFailed = errors.New("query failed")

	// ErrClosed: the node is closed or closing.
	ErrClosed = errors.New("node is closed")
)

// NotLeaderError reports that another node leads the group. The request had no effect.
type NotLeaderError struct {
	Group  raftyard.GroupID
	Leader raftyard.NodeID // zero while the leader is unknown
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("group %d has no known leader", e.Group)
	}
	return fmt.Sprintf("group %d is led by node %d", e.Group, e.Leader)
}

// NotApplied reports whether the request that ended with err certainly had, and
// will have, no effect, so that repeating it blindly is safe. It is false for nil.
func NotApplied(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotReached) &&
		!errors.Is(err, group.ErrUnknown)
}
